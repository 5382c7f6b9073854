"""What teams were entitled to within hours, and whether that is still the same."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import accumulate
from typing import NamedTuple

from django.db.models import Q, QuerySet

from apps.clusters.domain.window import Window
from apps.clusters.models.sql import UnixSeconds
from apps.clusters.models.validity import holds_after
from apps.quotas.models import Entitlement

_HOUR = timedelta(hours=1)
_BITS = (1 << 64) - 1
_COLUMNS = ("tier_id", "team_id", "gpus", "weight")


class EntitlementSpan(NamedTuple):
    """GPU-equivalents that a team was entitled to, and its weight, from `start` to `end`."""

    gpus: float
    weight: float
    start: float
    end: float


class HourEntitlements(NamedTuple):
    """The promises of an hour by tier and team, the times within it at which one begins or ends.

    `mark` stands for all of them, as in `marks`.
    """

    promises: Mapping[int, Mapping[int, Sequence[EntitlementSpan]]]
    changes: frozenset[float]
    mark: str


def read_entitlements(hour: Window) -> HourEntitlements:
    """Return what was promised within an hour. Two queries."""
    found: dict[int, dict[int, list[EntitlementSpan]]] = defaultdict(lambda: defaultdict(list))
    whole = list(_lasting(hour))
    for tier, team, gpus, weight in whole:
        # Of these, nearly all, the times need not be read.
        found[tier][team].append(
            EntitlementSpan(gpus, weight, hour.start_seconds, hour.end_seconds)
        )
    parts = []
    for tier, team, gpus, weight, since, until in _changing(hour):
        start, end = _clipped(since, until, hour)
        found[tier][team].append(EntitlementSpan(gpus, weight, start, end))
        parts.append((tier, team, gpus, weight, start, end))
    edges = frozenset(edge for *_, start, end in parts for edge in (start, end))
    return HourEntitlements(
        found, edges, _mark(len(whole) + len(parts), sum(map(_digest, [*whole, *parts])))
    )


def marks(hours: Sequence[datetime]) -> list[str]:
    """Return what stands for the promises of each of some hours, in order. One query.

    It changes with any promise of the hour. A sum of digests, so that what lasts need not be
    looked at hour by hour.
    """
    if not hours:
        return []
    ends = [hour + _HOUR for hour in hours]
    counts, sums = [0] * (len(hours) + 1), [0] * (len(hours) + 1)
    for *promise, since, until in _entitlement_rows(hours[0], ends[-1]):
        first, last = bisect_left(hours, since), len(hours)
        if until is not None:
            last = max(first, bisect_right(ends, until))
        own = _digest(tuple(promise))
        for place, sign in ((first, 1), (last, -1)):
            counts[place] += sign
            sums[place] += sign * own
        for number in (first - 1, last):
            if 0 <= number < len(hours) and _touches(hours[number], since, until):
                hour = Window(hours[number], ends[number])
                part = (*promise, *_clipped(since, until, hour))
                for place, sign in ((number, 1), (number + 1, -1)):
                    counts[place] += sign
                    sums[place] += sign * _digest(part)
    in_all = zip(accumulate(counts), accumulate(sums), strict=True)
    return [_mark(count, total) for count, total in in_all][: len(hours)]


def mark_of_all(since: datetime) -> str:
    """Return what stands for all promises that lasted beyond a time. One query."""
    rows = _beyond(since).annotate(start=UnixSeconds("valid_from"), until=UnixSeconds("valid_to"))
    count = total = 0
    for *promise, until in rows.values_list(*_COLUMNS, "start", "until").iterator():
        total += _digest((*promise, 0.0 if until is None else until))
        count += 1
    return _mark(count, total)


def _entitlement_rows(
    since: datetime, until: datetime
) -> Iterable[tuple[int, int, float, float, datetime, datetime | None]]:
    """Yield the promises that overlap a span: _COLUMNS, and from when until when each holds."""
    rows = _beyond(since).filter(valid_from__lt=until)
    return rows.values_list(*_COLUMNS, "valid_from", "valid_to").iterator()


def _beyond(since: datetime) -> QuerySet[Entitlement]:
    return Entitlement.objects.filter(holds_after(since)).order_by()


def _lasting(hour: Window) -> Iterable[tuple[int, int, float, float]]:
    """Return what was promised all the hour."""
    rows = Entitlement.objects.filter(_lasts(hour), valid_from__lte=hour.start)
    return rows.order_by().values_list(*_COLUMNS)


def _changing(
    hour: Window,
) -> Iterable[tuple[int, int, float, float, datetime, datetime | None]]:
    """Return what was promised for a part of the hour."""
    begins = Q(valid_from__gt=hour.start, valid_from__lt=hour.end)
    ends = Q(valid_from__lte=hour.start, valid_to__gt=hour.start) & ~_lasts(hour)
    rows = Entitlement.objects.filter(begins | ends).order_by("pk")
    return rows.values_list(*_COLUMNS, "valid_from", "valid_to")


def _lasts(hour: Window) -> Q:
    return Q(valid_to__isnull=True) | Q(valid_to__gte=hour.end)


def _touches(hour: datetime, since: datetime, until: datetime | None) -> bool:
    return since < hour + _HOUR and (until is None or until > hour)


def _clipped(since: datetime, until: datetime | None, hour: Window) -> tuple[float, float]:
    end = hour.end if until is None else min(until, hour.end)
    return max(since, hour.start).timestamp(), end.timestamp()


def _digest(row: tuple[float, ...]) -> int:
    """Return 64 bits that stand for a row of numbers, the same in every process.

    Python's hash of a tuple is nearly additive: its sums often stay the same when two teams
    exchange their entitlements. blake2b mixes it.
    """
    number = hash(row).to_bytes(8, "little", signed=True)
    return int.from_bytes(blake2b(number, digest_size=8).digest(), "little")


def _mark(count: int, total: int) -> str:
    return f"{count}:{total & _BITS:016x}"

"""How full every quota key was in each closed hour: from the ledger into rows."""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F, OuterRef, Q, Subquery

from apps.clusters.domain.window import SLOT_SECONDS, Window
from apps.clusters.gateways import metrics_source
from apps.clusters.models import Cluster
from apps.clusters.ports import MetricsSource, SourceRejected, SourceUnavailable
from apps.clusters.selectors import team_spans
from apps.clusters.services import OBJECTS_KEPT, revision_of_hour, team_finder_at
from apps.quotas.domain.keys import Counting, QuotaRef, QuotaSource
from apps.quotas.domain.saturation import Filled, KeyIntervals, fill, fill_queue, together
from apps.quotas.models import QuotaHour, QuotaKey, QuotaKeyHour
from apps.quotas.services.inputs import Inputs, read_inputs
from apps.usage.models import HAS_FACTS, CollectionWindow
from apps.usage.services import insert, instant

logger = logging.getLogger(__name__)

_COLUMNS = (
    *("key_id", "cluster_id", "team_id", "hour", "seconds"),
    *("hard", "used", "held", "pending", "suppressed"),
)
_KEY_FIELDS = ("source", "namespace", "name", "key")
_DAY = timedelta(hours=24)
_WINDOWS_AT_A_TIME = 4
_HOUR = timedelta(hours=1)

_Users = Mapping[tuple[str, str], Collection[str]]


def roll_window(
    cluster_id: int, window: Window, *, now: datetime, source: MetricsSource | None = None
) -> int:
    """Sum the collected hours of a window of at most a day; return how many rows were written.

    Once more gives the same rows. What is no longer known of an old hour, as who was admitted by
    a queue, stays as it was summed when it was. Raises SourceUnavailable and SourceRejected where
    nobody watched and the metrics source does not answer.
    """
    cluster = Cluster.objects.get(pk=cluster_id)
    # Before anything is read that it stands for: what changes meanwhile is due the next time.
    collected = _collected(cluster_id, window)
    _forget_withheld(cluster_id, window)
    if not collected:
        return 0
    ask = partial(metrics_source, cluster) if source is None else lambda: source
    inputs = read_inputs(cluster, window, ask)
    ids = _key_ids(cluster_id, inputs.keys)
    written = 0
    for hour in window.hours():
        if hour.start in collected:
            recent = now - hour.start < OBJECTS_KEPT
            rows = list(_rows(hour, inputs, recent=recent))
            _write(cluster_id, hour, rows, ids, collected[hour.start])
            written += len(rows)
    return written


def roll_hours(*, now: datetime, source: MetricsSource | None = None) -> int:
    """Sum the hours that are due, newest first; return how many.

    Those are the hours that were collected and not summed since, and those of whose pods another
    hour told something else since.
    Some days of each cluster at a time. A cluster whose source does not answer, or whose hours
    cannot be summed, is left for the next time and keeps no other from it.
    """
    rolled = 0
    for cluster_id in (
        Cluster.objects.filter(active=True).order_by("pk").values_list("pk", flat=True)
    ):
        for window in due_windows(cluster_id)[:_WINDOWS_AT_A_TIME]:
            try:
                roll_window(cluster_id, window, now=now, source=source)
            except (SourceUnavailable, SourceRejected) as error:
                logger.warning("quotas of cluster %s at %s: %s", cluster_id, window.start, error)
                break
            except (OperationalError, InterfaceError):
                raise
            except Exception:
                logger.exception(
                    "quotas of cluster %s at %s could not be summed", cluster_id, window.start
                )
                continue
            rolled += round(window.seconds / 3600)
    return rolled


def due_windows(cluster_id: int) -> list[Window]:
    """Return what is to be summed: runs of hours of at most a day, the newest first. One query."""
    summed = QuotaHour.objects.filter(cluster_id=OuterRef("cluster_id"), hour=OuterRef("hour"))
    hours = CollectionWindow.objects.filter(
        cluster_id=cluster_id, collected_at__isnull=False
    ).annotate(
        summed=Subquery(summed.values("collected_at")[:1]),
        summed_revision=Subquery(summed.values("pod_revision")[:1]),
        revision=revision_of_hour(),
    )
    changed = ~Q(summed=F("collected_at")) | ~Q(summed_revision=F("revision"))
    due = hours.filter(
        HAS_FACTS & (Q(summed__isnull=True) | changed) | Q(withheld=True, summed__isnull=False)
    )
    windows: list[Window] = []
    for hour in due.order_by("-hour").values_list("hour", flat=True):
        last = windows[-1] if windows else None
        if last is not None and last.start == hour + _HOUR and last.end - hour <= _DAY:
            windows[-1] = Window(hour, last.end)
        else:
            windows.append(Window(hour, hour + _HOUR))
    return windows


class _Basis(NamedTuple):
    """What an hour is summed from: its collection, and the revision of its pods."""

    collected_at: datetime
    pod_revision: int


def _collected(cluster_id: int, window: Window) -> dict[datetime, _Basis]:
    """Return hour → what there is to sum, of those that have facts. One query."""
    rows = CollectionWindow.objects.filter(
        HAS_FACTS,
        cluster_id=cluster_id,
        hour__gte=window.start,
        hour__lt=window.end,
        collected_at__isnull=False,
    )
    found = rows.order_by("hour").values_list("hour", "collected_at", revision_of_hour())
    return {hour: _Basis(at, number) for hour, at, number in found if at is not None}


def _forget_withheld(cluster_id: int, window: Window) -> None:
    """Delete the sums of hours whose facts turned out to rest on contradictory sources."""
    withheld = CollectionWindow.objects.filter(
        cluster_id=cluster_id, hour__gte=window.start, hour__lt=window.end, withheld=True
    )
    hours = list(withheld.order_by("hour").values_list("hour", flat=True))
    for model in (QuotaKeyHour, QuotaHour) if hours else ():
        model._default_manager.filter(cluster_id=cluster_id, hour__in=hours).delete()


# ---------------------------------------------------------------- one hour, by key


class _KeyRow(NamedTuple):
    """A key, whose it was, how full, and whether what is not known is kept as it was."""

    id: QuotaRef
    team: int | None
    filled: Filled
    kept: bool


def _rows(hour: Window, inputs: Inputs, *, recent: bool) -> Iterator[_KeyRow]:
    watched = all(slot in inputs.watched for slot in hour.slots())
    start = hour.start_seconds
    spans = team_spans(hour, {id_.namespace for id_ in inputs.keys if id_.namespace})
    team_of = team_finder_at(hour.start)
    for id_, key in sorted(inputs.keys.items()):
        if id_.source == QuotaSource.RESOURCE_QUOTA:
            of_teams: dict[int, list[Filled]] = defaultdict(list)
            for span in spans[id_.namespace]:
                part = Window(span.start, span.end)
                filled = _quota(key, hour, part, inputs, watched=watched)
                if filled is not None:
                    of_teams[span.team_id].append(filled)
            # A namespace may leave a team and come back within the hour: that is one row of it.
            for team_id, parts in of_teams.items():
                yield _KeyRow(id_, team_id, together(parts), kept=False)
        else:
            filled = _queue(key, start, inputs, known=watched and recent)
            if filled is not None and filled.used is None:
                _fill_shown(filled, key, hour, inputs)
            if filled is not None:
                yield _KeyRow(id_, _team(id_, inputs.users, team_of), filled, kept=not recent)


def _quota(
    key: KeyIntervals, hour: Window, part: Window, inputs: Inputs, *, watched: bool
) -> Filled | None:
    """Return how full a key was in the part of an hour in which it was one team's."""
    known = watched or key.counting is not Counting.CLAIMS
    filled = fill(
        key,
        part.start_seconds,
        inputs.lives.get((int(hour.start_seconds), key.id.namespace), ()),
        inputs.refused.get(key.id.namespace, ()),
        end=part.end_seconds,
        known=known,
    )
    if filled is not None and not known:
        # Nobody saw the claims; what was used of them is what the series say.
        filled.used = _shown(inputs.shown_used.get(key.id, {}), hour, part)
    if filled is not None and not watched:
        filled.suppressed = None  # No series shows work that never became a pod.
    return filled


def _shown(slots: Mapping[int, float], hour: Window, part: Window) -> float | None:
    """Return the unit-hours of a part of an hour that its slots show; None where none does."""
    shown = []
    for slot in hour.slots():
        start = max(float(slot), part.start_seconds)
        seconds = min(slot + SLOT_SECONDS, part.end_seconds) - start
        if slot in slots and seconds > 0:
            shown.append(slots[slot] * seconds / 3600)
    return sum(shown) if shown else None


def _queue(key: KeyIntervals, start: float, inputs: Inputs, *, known: bool) -> Filled | None:
    part = key.id.key.partition("/")[0]
    flavor = part if key.id.source == QuotaSource.CLUSTER_QUEUE else ""
    cell = (key.id.name, flavor, key.resource)
    return fill_queue(
        key,
        start,
        inputs.queue_use.taken.get(cell, ()),
        inputs.queue_use.held.get(cell, ()),
        inputs.queue_waits.get((key.id.name, key.resource), ()),
        known=known,
    )


def _fill_shown(filled: Filled, key: KeyIntervals, hour: Window, inputs: Inputs) -> None:
    """Put to a queue what Kueue's series show in every slot of the hour: reserved, and pending."""
    used = inputs.shown_used.get(key.id, {})
    pending = inputs.shown_pending.get((key.id.name, key.resource), {})
    if used.keys() >= set(hour.slots()):
        filled.used = _shown(used, hour, hour)
    if pending.keys() >= set(hour.slots()):
        filled.suppressed = _shown(pending, hour, hour)


# ---------------------------------------------------------------- writing


def _key_ids(cluster_id: int, keys: Iterable[QuotaRef]) -> dict[QuotaRef, int]:
    """Return the ids of keys; those that are new are made, also where another does so at once."""
    wanted = set(keys)
    known = _known_ids(cluster_id)
    new = sorted(wanted - known.keys())
    if new:
        # A ref of one cluster does not name it: the zip leaves the fifth field out.
        names = [dict(zip(_KEY_FIELDS, one, strict=False)) for one in new]
        rows = [QuotaKey(cluster_id=cluster_id, **one) for one in names]
        QuotaKey.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
        known = _known_ids(cluster_id)
    return {id_: known[id_] for id_ in wanted}


def _known_ids(cluster_id: int) -> dict[QuotaRef, int]:
    rows = QuotaKey.objects.filter(cluster_id=cluster_id).order_by("pk")
    return {QuotaRef(*rest): pk for pk, *rest in rows.values_list("pk", *_KEY_FIELDS)}


def _write(
    cluster_id: int,
    hour: Window,
    rows: Sequence[_KeyRow],
    ids: Mapping[QuotaRef, int],
    basis: _Basis,
) -> None:
    at = instant(hour.start)
    with transaction.atomic():
        # One writer of a cluster's hours at a time.
        list(Cluster.objects.filter(pk=cluster_id).select_for_update(no_key=True))
        there = QuotaKeyHour.objects.filter(cluster_id=cluster_id, hour=hour.start)
        before = _before(there) if any(row.kept for row in rows) else {}
        there.delete()
        insert(
            QuotaKeyHour,
            _COLUMNS,
            (
                (ids[row.id], cluster_id, row.team, at, *_values(row.filled, known))
                for row in rows
                for known in [before.get(ids[row.id]) if row.kept else None]
            ),
        )
        QuotaHour.objects.update_or_create(
            cluster_id=cluster_id,
            hour=hour.start,
            defaults={**basis._asdict(), "keys": len(rows)},
        )


def _before(there: Any) -> dict[int, Sequence[float | None]]:
    return {pk: rest for pk, *rest in there.values_list("key_id", *_COLUMNS[6:])}


def _values(filled: Filled, before: Sequence[float | None] | None) -> tuple[float | None, ...]:
    amounts = (filled.used, filled.held, filled.pending, filled.suppressed)
    if before is not None and filled.used is None:
        amounts = tuple(before)  # type: ignore[assignment]
    return (filled.seconds, filled.hard, *amounts)


def _team(id_: QuotaRef, users: _Users, team_of: Callable[[str], int]) -> int | None:
    """Return whose a queue is: the one team whose namespaces use it, if it is one."""
    teams = {team_of(namespace) for namespace in users.get((id_.source, id_.name), ())}
    return teams.pop() if len(teams) == 1 else None

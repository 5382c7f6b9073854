"""Evidence by hour: empty pools, unused quota, pending demand and idle timeouts."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from math import fsum

from django.db.models import F, Min, Sum
from msgspec import Struct, field

from apps.clusters.domain.window import day_start
from apps.clusters.models import Pod, Tier
from apps.costs.domain.recommendations.capacity import HoursEvidence, LendingEvidence
from apps.costs.domain.recommendations.evidence import QuotaEvidence
from apps.costs.domain.recommendations.idle_time import TEAM, TimeoutEvidence
from apps.costs.domain.recommendations.recommendation import Subject
from apps.costs.services.evidence.offers import OfferBook, Pool, PricesInForce, pool_basis
from apps.costs.services.evidence.span import EvidenceSpan
from apps.costs.services.evidence.workloads import WorkloadOfTeam
from apps.quotas.models import QuotaKeyHour
from apps.usage.domain.amounts import NANO, hours
from apps.usage.models import TierHour, WorkloadActivityDay
from gpuportal.database_functions import UnixSeconds

_ROWS_AT_A_TIME = 2000
_LEAST_WAIT = timedelta(minutes=10)
_HOUR = 3600
_SATURDAY = 5
MOST_KEYS = 200
"""Looked at hour by hour are the keys that allow most."""
USUAL = 0.9
_Hours = dict[int, float]
"""GPU-hours by hour, in Unix seconds."""
_Holder = tuple[int, str, str]
"""A workload's id, and the GPU model and capacity type that it held."""


class PendingHours(Struct):
    """GPU-hours pending for one tier, by the start of the hour (Unix seconds) and namespace.

    Known are pods that came to be bound: others are of no tier. `first` is the start of any hour:
    in a zone at half past that of every other is too.
    """

    first: int = 0
    by_hour: dict[int, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )

    def of_all(self, hour: int) -> float:
        return fsum(self.by_hour[hour].values()) if hour in self.by_hour else 0.0

    def of_others(self, hour: int, namespace: str) -> float:
        """Return the pending GPU-hours of all namespaces but one."""
        waits = self.by_hour.get(hour, {})
        return fsum(amount for name, amount in waits.items() if name != namespace)

    def add(self, namespace: str, gpus: float, start: float, end: float) -> None:
        # Aligned with the window and not with UTC: India's days begin at half past.
        at = int(start) - (int(start) - self.first) % _HOUR
        while at < end:
            seconds = min(end, at + _HOUR) - max(start, at)
            self.by_hour[at][namespace] += gpus * seconds / _HOUR
            at += _HOUR


def pending_hours(span: EvidenceSpan, book: OfferBook) -> dict[str, PendingHours]:
    """Return by tier how many GPU-hours were pending until they were bound. One query.

    Queue times of a few minutes are the scheduler's normal work, and left out.
    """
    first, last = span.window.start.timestamp(), span.window.end.timestamp()
    pods = Pod.objects.filter(
        cluster=span.cluster,
        tier__isnull=False,
        bound_at__gt=F("created_at") + _LEAST_WAIT,
        bound_at__gte=span.window.start,
        created_at__lt=span.window.end,
    ).order_by("pk")
    times = pods.annotate(since=UnixSeconds("created_at"), until=UnixSeconds("bound_at"))
    columns = ("tier__name", "workload__namespace__name", "units", "since", "until")
    found: dict[str, PendingHours] = defaultdict(lambda: PendingHours(int(first)))
    for tier, namespace, units, since, until in times.values_list(*columns).iterator(
        _ROWS_AT_A_TIME
    ):
        unit = book.units.get(tier)
        if unit is not None:
            gpus = units * unit.weight
            found[tier].add(namespace, gpus, max(since, first), min(until, last))
    return dict(found)


def hours_evidence(
    span: EvidenceSpan,
    book: OfferBook,
    prices: PricesInForce,
    pending: Mapping[str, PendingHours],
) -> Iterator[HoursEvidence]:
    """Yield how many GPUs of each pool stood empty by hour of the day. One query.

    Stranded slices of a MIG layout are not part of it: no pod can have them, nor can they be given
    up alone. Nor is what was away as planned. `pending` is the pending work of each tier.
    """
    empty: dict[Pool, dict[datetime, float]] = defaultdict(dict)
    stranded: dict[Pool, float] = defaultdict(float)
    wanted: dict[Pool, float] = defaultdict(float)
    rows = TierHour.objects.filter(span.in_hours).order_by("hour")
    names = ("tier__name", "gpu_model__name", "capacity_type")
    sums = rows.values_list("hour", *names).annotate(
        free=Sum("unallocated"), lost=Sum("stranded"), first=Min("pk")
    )
    for hour, tier, model, kind, free, lost, _ in sums.iterator(_ROWS_AT_A_TIME):
        of = Pool(tier, model, kind)
        empty[of][hour] = max(0.0, hours(int(free) - int(lost)))
        stranded[of] += hours(int(lost))
        if tier in pending:
            wanted[of] += min(empty[of][hour], pending[tier].of_all(int(hour.timestamp())))
    for pool in book.pools:
        if pool in empty:
            yield HoursEvidence(
                **pool_basis(span, pool, min(empty[pool]), prices),
                empty=_by_hour_of_day(span, empty[pool]),
                owned=prices.is_owned(span.cluster.name, pool),
                stranded_gpu_hours=stranded[pool],
                pending_gpu_hours=wanted[pool],
            )


def _by_hour_of_day(
    span: EvidenceSpan, empty: Mapping[datetime, float]
) -> dict[tuple[bool, int], list[float]]:
    """Return what was empty by (weekend, local hour)."""
    by_hour: dict[tuple[bool, int], list[float]] = defaultdict(list)
    for hour, gpus in empty.items():
        local = hour.astimezone(span.zone)
        by_hour[local.weekday() >= _SATURDAY, local.hour].append(gpus)
    return by_hour


def lending_evidence(
    span: EvidenceSpan, quotas: Mapping[int, QuotaEvidence], pending: Mapping[str, PendingHours]
) -> Iterator[tuple[int, LendingEvidence]]:
    """Yield the id of each key with its evidence; `pending` is by tier. One query."""
    ordered = sorted(quotas.items(), key=lambda one: (-one[1].hard * one[1].weight, one[0]))
    chosen = dict(ordered[:MOST_KEYS])
    used = _used_by_hour(span, chosen) if chosen else {}
    for pk, quota in chosen.items():
        waits = pending.get(quota.subject.tier)
        hours = used.get(pk, {})
        if waits is None or not hours:
            continue
        free = waited = 0.0
        for hour, amount in hours.items():
            others = waits.of_others(int(hour.timestamp()), quota.subject.namespace)
            if others > 0:
                free += max(0.0, quota.hard - amount)
                waited += others / quota.weight
        amounts = sorted(hours.values())
        usual = amounts[min(len(amounts) - 1, int(len(amounts) * USUAL))]
        yield pk, LendingEvidence(quota, usual, free, waited)


def _used_by_hour(span: EvidenceSpan, keys: Iterable[int]) -> dict[int, dict[datetime, float]]:
    """Return the mean that was used of each key by hour."""
    rows = QuotaKeyHour.objects.filter(
        span.in_hours, key__in=list(keys), seconds__gt=0, used__isnull=False
    ).order_by("key_id", "hour")
    found: dict[int, dict[datetime, float]] = defaultdict(dict)
    columns = ("key_id", "hour", "used", "seconds")
    for key, hour, used, seconds in rows.values_list(*columns).iterator(_ROWS_AT_A_TIME):
        # A key that changed teams within the hour has two rows of it.
        found[key][hour] = max(found[key].get(hour, 0.0), used * 3600.0 / seconds)
    return found


class TimeoutOfTeam(Struct, frozen=True):
    evidence: TimeoutEvidence
    team_id: int


class _Freed(Struct):
    """What would have been freed of a team's work, in GPU-hours."""

    by_hour: _Hours = field(default_factory=lambda: defaultdict(float))
    by_holder: dict[_Holder, float] = field(default_factory=lambda: defaultdict(float))
    pods: dict[_Holder, int] = field(default_factory=lambda: defaultdict(int))


def timeout_evidence(
    span: EvidenceSpan, tier: Tier, pending: PendingHours | None, found: Sequence[WorkloadOfTeam]
) -> Iterator[TimeoutOfTeam]:
    """Yield for each team what a stop after an idle hour would have freed of a tier.

    `found` is the evidence of the tier's workloads: one that is well used, or has too few metrics,
    is left alone. `pending` is the pending work of the tier. One query.
    """
    known = {
        (pk, one.evidence.gpu_model, one.evidence.capacity_type): one
        for one in found
        for pk in one.members
    }
    freed: dict[int, _Freed] = defaultdict(_Freed)
    for team, held, day_at, after, pods in _freed_days(span, tier):
        one = known.get(held)
        # A timeout would stop what is marked to stay, each time that it has nothing to do.
        if one is None or one.evidence.is_well_used or one.kept_for_latency:
            continue
        of = freed[team]
        of.pods[held] += pods
        for place, nano in enumerate(after):
            if nano:
                of.by_hour[day_at + place * _HOUR] += nano / NANO
                of.by_holder[held] += nano / NANO
    for team, of in sorted(freed.items()):
        yield TimeoutOfTeam(_team_timeout(span, tier, known, of, pending), team)


def _freed_days(
    span: EvidenceSpan, tier: Tier
) -> Iterator[tuple[int, _Holder, int, Sequence[int], int]]:
    """Yield (team, holder, start of the day, freed by hour of the day, pods)."""
    rows = WorkloadActivityDay.objects.filter(span.in_days, tier=tier, idle_pods__gt=0).order_by(
        "day", "pk"
    )
    columns = ("day", "idle_after", "idle_pods", "team_id")
    holder = ("workload_id", "gpu_model__name", "capacity_type")
    for row in rows.values_list(*columns, *holder).iterator(_ROWS_AT_A_TIME):
        day, after, pods, team, *held = row
        at = int(day_start(day, span.zone).timestamp())
        yield team, (held[0], held[1], held[2]), at, after or (), pods


def _team_timeout(
    span: EvidenceSpan,
    tier: Tier,
    known: Mapping[_Holder, WorkloadOfTeam],
    of: _Freed,
    pending: PendingHours | None,
) -> TimeoutEvidence:
    freed: dict[str, float] = defaultdict(float)
    waste: dict[str, float] = {}
    hit: dict[str, int] = defaultdict(int)
    worth, currencies, whole = Decimal(0), set(), True
    team = ""
    for holder, gpu_hours in sorted(of.by_holder.items()):
        one = known[holder].evidence
        team = known[holder].team
        freed[one.cell] += gpu_hours
        waste[one.cell] = one.idle_gpu_hours + one.underused_gpu_hours
        hit[one.subject.workload] += of.pods[holder]
        currencies.add(one.currency)
        whole = whole and one.price_per_gpu_hour is not None
        worth += Decimal(repr(gpu_hours)) * (one.price_per_gpu_hour or 0)
    could = None
    if pending is not None:
        # Hour by hour: work pending at night does not use what was freed by day.
        could = fsum(min(gpus, pending.of_all(at)) for at, gpus in of.by_hour.items())
    one_currency = len(currencies) == 1 and whole
    return TimeoutEvidence(
        subject=Subject(span.cluster.name, workload=f"{TEAM}/{team}", tier=tier.name),
        days=span.days(span.first),
        coverage=span.coverage(span.first),
        freed=dict(freed),
        waste=waste,
        hit=dict(hit),
        could_have_run=could,
        worth=worth if one_currency else None,
        currency=currencies.pop() if one_currency else "",
    )

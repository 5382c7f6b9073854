"""Evidence of workloads and services of a tier, from the facts of their days."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from math import fsum
from typing import Any

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.names import ONE_OFF, family_of
from apps.clusters.domain.tiers import GpuSharing
from apps.clusters.models import Pod, Tier
from apps.costs.domain.recommendations.evidence import WorkloadEvidence
from apps.costs.domain.recommendations.idle_time import SERVICES, ServiceEvidence
from apps.costs.domain.recommendations.recommendation import LEAST_DAYS, Subject
from apps.costs.domain.recommendations.rightsizing import (
    LOOKBACK_HOURS,
    RESTARTABLE,
    gpu_memory_mib,
)
from apps.costs.services.evidence.offers import Pool, PricesInForce
from apps.costs.services.evidence.span import EvidenceSpan
from apps.usage.domain.activity import (
    CLASSES,
    LETTERS,
    lower_edge,
    most_active_first,
    percentile,
    summed,
)
from apps.usage.domain.amounts import Amounts, hours
from apps.usage.models import PodHour, WorkloadActivityDay, WorkloadDay

P95 = 0.95
STILL_THERE_DAYS = 7
"""A workload that held nothing for longer is over: nothing about it can be changed."""
_IDS_AT_A_TIME = 1000
_ROWS_AT_A_TIME = 2000
COMES_AGAIN = 3
"""A family that was begun on so many days will be begun again."""
"""Kinds that end for good: without a pod there is nothing left of which anything could change."""
_COMPLETED = "Completed"
_KEY = ("workload_id", "team_id", "gpu_model_id", "capacity_type")
_SUMS = ("allocated", "not_running", "unmeasured", "idle", "underused", "busy")

_MEASURED = Q(busy__gt=0) | Q(underused__gt=0) | Q(idle__gt=0)

_WorkloadKey = tuple[int, int, int, str]
_NAMES = (
    *("team__name", "workload__namespace__name", "workload__kind", "workload__name"),
    "gpu_model__name",
)
PATTERN_DAYS = 14
MOST_SERVICES = 200
"""Of a tier's services those that waste most are looked at hour by hour."""


class WorkloadOfTeam(Struct, frozen=True):
    """Evidence, whose it is, the workload's id, and the ids of all that are judged with it.

    `main`: of the pool that rules look at; of each workload there is one. `kept_for_latency`: a
    pod of it is marked to stay for quick answers, however idle it is.
    """

    evidence: WorkloadEvidence
    team_id: int
    team: str
    workload_id: int
    members: frozenset[int] = frozenset()
    main: bool = True
    kept_for_latency: bool = False


class _WorkloadUse(Struct):
    """What a workload or a family held of one kind; `key` has the id of the first of them."""

    key: _WorkloadKey
    team: str
    namespace: str
    kind: str
    name: str
    gpu_model: str
    first: date
    last: date
    measured: set[date] | int
    amounts: Amounts
    members: set[int] = field(default_factory=set)
    begun: set[date] = field(default_factory=set)

    @property
    def measured_days(self) -> int:
        return self.measured if isinstance(self.measured, int) else len(self.measured)


class _Active(Struct):
    """What a workload's days of activity add up to; `gpus` None: not told, or all were active."""

    days: set[date] = field(default_factory=set)
    slots: list[int] = field(default_factory=lambda: [0] * CLASSES)
    head: int = 0
    tail: int = 0
    resources: set[str] = field(default_factory=set)
    units: set[float] = field(default_factory=set)
    gpus: dict[str, str] | None = field(default_factory=dict)


class _Runs(Struct):
    restarts: int = 0
    finished_after_restart: int = 0
    run_hours: list[float] = field(default_factory=list)


class _TierWork(Struct, frozen=True):
    """What was read of all workloads of a tier; `activity` is of the whole tier."""

    active: Mapping[_WorkloadKey, _Active]
    runs: Mapping[int, _Runs]
    there: set[int]
    main: Mapping[int, _WorkloadUse]
    activity: Mapping[int, float | None]
    kept_for_latency: set[int]


def workload_evidence(
    span: EvidenceSpan, tier: Tier, sharing: GpuSharing, prices: PricesInForce
) -> Iterator[WorkloadOfTeam]:
    """Yield what each workload did that held something of a tier, by pool.

    A workload that held GPUs of several models or capacity types has its main evidence for the pair
    that it held last, then for that of which it held most. Work that runs once is judged with all
    of its family: same namespace, kind and stem of the name. Seven queries, and one for every
    thousand notebooks.
    """
    held, families = _held(span, tier)
    known = _TierWork(
        active=_activity(span, tier, families),
        runs=_runs(span, tier, families),
        there=_still_there(span),
        main=_main(held),
        activity=_tier_activity(held),
        kept_for_latency=_marked_workloads(span),
    )
    found = [_evidence(span, tier, sharing, one, known, prices) for one in held]
    notebooks = sorted({one.workload_id for one in found if one.evidence.is_notebook})
    idle = _idle_now(span, tier, notebooks)
    for one in found:
        since = idle.get(one.workload_id, 0.0)
        yield replace(one, evidence=replace(one.evidence, idle_hours_now=since)) if since else one


def _held(span: EvidenceSpan, tier: Tier) -> tuple[list[_WorkloadUse], dict[int, int]]:
    """Return what was held by workload or family, and the first member of each family's members.

    Two queries.
    """
    rows = WorkloadDay.objects.filter(span.in_days, tier=tier).order_by()
    found: list[_WorkloadUse] = []
    families: dict[tuple[str, str, str], int] = {}
    of_family: dict[_WorkloadKey, _WorkloadUse] = {}
    leaders: dict[int, int] = {}
    for row in _once(rows):
        one = _held_of(row[1:], {row[0]} if row[12] else set())
        family = (one.namespace, one.kind, family_of(one.kind, one.name))
        # The first member stands for its family: facts have no id for families.
        leader = families.setdefault(family, one.key[0])
        leaders[one.key[0]] = leader
        key = (leader, *one.key[1:])
        known = of_family.get(key)
        of_family[key] = one if known is None else _joined(known, one)
    for (leader, *_), one in of_family.items():
        one.key = (leader, *one.key[1:])
        if len(one.members) > 1:
            one.name = family_of(one.kind, one.name)
        found.append(one)
    # Summed by the database: long-running work has one row a day for months.
    found += [_held_of(row, row[11]) for row in _lasting(rows)]
    return sorted(found, key=lambda one: one.key), leaders


def _main(held: Iterable[_WorkloadUse]) -> dict[int, _WorkloadUse]:
    """Return by workload what it held of its main pool."""
    main: dict[int, _WorkloadUse] = {}
    for one in held:
        known = main.get(one.key[0])
        if known is None or _rank(one) > _rank(known):
            main[one.key[0]] = one
    return main


def _tier_activity(held: Iterable[_WorkloadUse]) -> dict[int, float | None]:
    """Return the mean activity of each workload on the whole tier."""
    sums: dict[int, Amounts] = defaultdict(Amounts)
    for one in held:
        sums[one.key[0]].add(one.amounts)
    return {workload: amounts.utilization_ratio for workload, amounts in sums.items()}


_TOTALS = {f"sum_{name}": Sum(name) for name in _SUMS}


def _lasting(rows: QuerySet[WorkloadDay, WorkloadDay]) -> Iterator[tuple[Any, ...]]:
    """Yield (key, names, first and last day, measured days, sums, peak) of what goes on."""
    measured = Count("day", distinct=True, filter=_MEASURED)
    grouped = (
        rows.exclude(workload__kind__in=sorted(ONE_OFF))
        .values_list(*_KEY, *_NAMES)
        .annotate(since=Min("day"), until=Max("day"), on=measured, **_TOTALS)
        .annotate(peak=Max("memory_peak_mib"))
    )
    yield from grouped.iterator(_ROWS_AT_A_TIME)


def _once(rows: QuerySet[WorkloadDay, WorkloadDay]) -> Iterator[tuple[Any, ...]]:
    """Yield the same, with the day in front, of work that runs once: a row for each day."""
    grouped = (
        rows.filter(workload__kind__in=sorted(ONE_OFF))
        .values_list("day", *_KEY, *_NAMES)
        .annotate(since=Min("day"), until=Max("day"), on=Count("day", filter=_MEASURED), **_TOTALS)
        .annotate(peak=Max("memory_peak_mib"))
    )
    yield from grouped.order_by("day", *_KEY).iterator(_ROWS_AT_A_TIME)


def _held_of(row: tuple[Any, ...], measured: set[date] | int) -> _WorkloadUse:
    key, (team, namespace, kind, name, model) = row[:4], row[4:9]
    since, until, _ = row[9:12]
    amounts = Amounts(**dict(zip(_SUMS, map(int, row[12:18]), strict=True)))
    amounts.memory_peak_mib = row[18]
    return _WorkloadUse(
        *(key, team, namespace, kind, name, model, since, until, measured, amounts),
        members={key[0]},
        begun={since},
    )


def _joined(known: _WorkloadUse, more: _WorkloadUse) -> _WorkloadUse:
    """Add what one more member or day held to its family."""
    known.first, known.last = min(known.first, more.first), max(known.last, more.last)
    known.amounts.add(more.amounts)
    if isinstance(known.measured, set) and isinstance(more.measured, set):
        known.measured |= more.measured
    if not more.members <= known.members:
        # Only for a new member: its later days are no new begin.
        known.begun |= more.begun
        known.members |= more.members
    return known


def _rank(one: _WorkloadUse) -> tuple[date, int, _WorkloadKey]:
    return one.last, one.amounts.allocated, one.key


def _evidence(
    span: EvidenceSpan,
    tier: Tier,
    sharing: GpuSharing,
    one: _WorkloadUse,
    known: _TierWork,
    prices: PricesInForce,
) -> WorkloadOfTeam:
    pool = Pool(tier.name, one.gpu_model, one.key[3])
    did, ran = known.active.get(one.key, _Active()), known.runs.get(one.key[0], _Runs())
    price, currency = prices.of(span.cluster.name, pool)
    # A percentile of few days is of one run, and says nothing of the next.
    long = len(did.days) >= LEAST_DAYS
    main = known.main[one.key[0]]
    evidence = WorkloadEvidence(
        subject=Subject(span.cluster.name, one.namespace, f"{one.kind}/{one.name}", tier.name),
        sharing=sharing,
        gpu_model=one.gpu_model,
        capacity_type=one.key[3],
        owner_kind=one.kind,
        days=span.days(one.first),
        measured_days=one.measured_days,
        gpu_hours=hours(one.amounts.allocated),
        units=int(max(did.units, default=0)),
        coverage=one.amounts.coverage_ratio,
        mean_activity=one.amounts.utilization_ratio,
        tier_activity=known.activity[one.key[0]],
        p95_activity=percentile(did.slots, P95) if long else None,
        idle_gpu_hours=hours(one.amounts.idle),
        waste_gpu_hours=hours(one.amounts.idle + one.amounts.underused + one.amounts.not_running),
        underused_gpu_hours=hours(one.amounts.underused),
        head_gpu_hours=hours(did.head),
        tail_gpu_hours=hours(did.tail),
        members=len(one.members),
        memory_peak_mib=one.amounts.memory_peak_mib,
        gpu_memory_mib=gpu_memory_mib(one.gpu_model),
        gpus=_gpus(did) if long else (),
        restarts=ran.restarts,
        finished_after_restart=ran.finished_after_restart,
        mean_run_hours=fsum(ran.run_hours) / len(ran.run_hours) if ran.run_hours else None,
        resource=next(iter(did.resources)) if len(did.resources) == 1 else "",
        price_per_gpu_hour=price,
        currency=currency,
        owned=prices.is_owned(span.cluster.name, pool),
        over=_is_over(span, main, known.there),
    )
    return WorkloadOfTeam(
        *(evidence, one.key[1], one.team, one.key[0], frozenset(one.members), one is main),
        kept_for_latency=not one.members.isdisjoint(known.kept_for_latency),
    )


def _is_over(span: EvidenceSpan, main: _WorkloadUse, there: set[int]) -> bool:
    """Say whether nothing of a workload is left to be changed, going by its main pool."""
    lately = main.last > span.last - timedelta(days=STILL_THERE_DAYS)
    returns = bool(main.members & there) or len(main.begun) >= COMES_AGAIN
    return not lately or (main.kind in ONE_OFF and not returns)


# ---------------------------------------------------------------- activity


def _activity(
    span: EvidenceSpan, tier: Tier, leaders: Mapping[int, int]
) -> dict[_WorkloadKey, _Active]:
    rows = WorkloadActivityDay.objects.filter(span.in_days, tier=tier).order_by("day", "pk")
    found: dict[_WorkloadKey, _Active] = defaultdict(_Active)
    columns = ("day", "slots", "resource", "least_units", "most_units", "gpus", "head", "tail")
    for workload, *rest in rows.values_list(*_KEY, *columns).iterator(_ROWS_AT_A_TIME):
        key = _key((leaders.get(workload, workload), *rest[:3]))
        day, slots, resource, least, most, gpus, head, tail = rest[3:]
        of = found[key]
        of.days.add(day)
        of.head += head
        of.tail += tail
        of.slots = summed((of.slots, slots))
        of.resources.add(resource)
        of.units |= {least, most}
        of.gpus = _with(of.gpus, gpus)
    return found


def _key(values: Iterable[Any]) -> _WorkloadKey:
    workload, team, model, kind = values
    return workload, team, model, kind


def _with(known: dict[str, str] | None, more: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the highest class of each pod's devices over one more day."""
    if known is None or more is None:
        return None
    for pod, letters in more.items():
        before = known.get(pod, LETTERS[0] * len(letters))
        known[pod] = "".join(map(max, before, letters))
    return known


def _gpus(did: _Active) -> tuple[float, ...]:
    """Return what is certain of each GPU of a pod; empty where pods differ or it is not known."""
    if not did.gpus or len(did.units) != 1:
        return ()
    return tuple(lower_edge(class_) for class_ in most_active_first(did.gpus))


# ---------------------------------------------------------------- runs


def _runs(span: EvidenceSpan, tier: Tier, leaders: Mapping[int, int]) -> dict[int, _Runs]:
    """Return how pods of work that can be restarted ended, by workload."""
    window = span.window
    pods = Pod.objects.filter(
        cluster=span.cluster,
        tier=tier,
        workload__kind__in=sorted(RESTARTABLE),
        ended_at__gte=window.start,
        ended_at__lt=window.end,
        started_at__isnull=False,
    ).order_by("pk")
    found: dict[int, _Runs] = defaultdict(_Runs)
    columns = ("workload_id", "runs", "end_reason", "started_at", "ended_at")
    for workload, spans, reason, started, ended in pods.values_list(*columns).iterator(
        _ROWS_AT_A_TIME
    ):
        of = found[leaders.get(workload, workload)]
        again = max(0, len(spans) - 1)
        of.restarts += again
        of.finished_after_restart += bool(again) and reason == _COMPLETED
        of.run_hours.append((ended - started) / timedelta(hours=1))
    return found


def _still_there(span: EvidenceSpan) -> set[int]:
    """Return the workloads that are to end for good and have a pod that has not ended yet."""
    pods = Pod.objects.filter(
        cluster=span.cluster, workload__kind__in=sorted(ONE_OFF), ended_at__isnull=True
    )
    return set(pods.order_by().values_list("workload_id", flat=True).distinct())


def _marked_workloads(span: EvidenceSpan) -> set[int]:
    """Return the workloads that have a pod that is there and is marked to stay."""
    # Of pods that are gone the mark does not count: a new template may have taken it out.
    pods = Pod.objects.filter(cluster=span.cluster, kept_for_latency=True, ended_at__isnull=True)
    return set(pods.order_by().values_list("workload_id", flat=True).distinct())


# ---------------------------------------------------------------- idle now


def _idle_now(span: EvidenceSpan, tier: Tier, workloads: list[int]) -> dict[int, float]:
    """Return for how many hours up to the newest collected one each workload was idle.

    An hour counts whose measured time was idle throughout: nothing underutilized, without metrics
    or not running. Hours longer ago than LOOKBACK_HOURS are not read.
    """
    newest = span.newest_hour
    if newest is None:
        return {}
    since = newest - timedelta(hours=LOOKBACK_HOURS - 1)
    found: dict[int, float] = {}
    for at in range(0, len(workloads), _IDS_AT_A_TIME):
        some = workloads[at : at + _IDS_AT_A_TIME]
        rows = PodHour.objects.filter(
            cluster=span.cluster, hour__gte=since, tier=tier, workload_id__in=some
        )
        sums = (
            rows.order_by()
            .values_list("workload_id", "hour")
            .annotate(
                was_idle=Sum("idle"), rest=Sum("underused") + Sum("unmeasured") + Sum("not_running")
            )
        )
        idle: dict[int, set[datetime]] = defaultdict(set)
        for workload, hour, was_idle, rest in sums:
            if was_idle > 0 and not rest:
                idle[workload].add(hour)
        found |= {workload: _up_to(newest, hours_) for workload, hours_ in idle.items()}
    return found


def _up_to(newest: datetime, hours_: set[datetime]) -> float:
    """Return how many hours in a row up to the newest one are among `hours_`."""
    count = 0
    while newest - timedelta(hours=count) in hours_:
        count += 1
    return float(count)


def service_evidence(
    span: EvidenceSpan, tier: Tier, found: Sequence[WorkloadOfTeam]
) -> Iterator[tuple[ServiceEvidence, WorkloadOfTeam]]:
    """Yield the pattern of the last two weeks of each service of a tier. One query.

    Those that are kept for latency are left out: their replicas wait on purpose.
    """
    services = [
        one
        for one in found
        if one.main
        and not one.kept_for_latency
        and one.evidence.owner_kind in SERVICES
        and one.evidence.is_enough
        and one.evidence.waste_gpu_hours > 0
    ]
    services.sort(key=lambda one: (-one.evidence.waste_gpu_hours, one.workload_id))
    chosen = {one.workload_id: one for one in services[:MOST_SERVICES]}
    if not chosen:
        return
    patterns = _hours_with_pods(span, tier, sorted(chosen))
    for pk, pattern in sorted(patterns.items()):
        held: dict[int, list[float]] = defaultdict(list)
        active: dict[int, list[float]] = defaultdict(list)
        for hour, gpus, busy, _ in pattern:
            held[hour].append(gpus)
            active[hour].append(busy)
        pods = sum(count for *_, count in pattern)
        one = chosen[pk]
        evidence = ServiceEvidence(
            of=one.evidence,
            per_replica=sum(gpus for _, gpus, *_ in pattern) / pods if pods else 0.0,
            held=held,
            active=active,
        )
        yield evidence, one


def _hours_with_pods(
    span: EvidenceSpan, tier: Tier, workloads: Sequence[int]
) -> Mapping[int, list[tuple[int, float, float, int]]]:
    """Return (local hour, GPUs held, GPUs active, pods) of every hour with pods, by workload.

    What has no metrics may have been active, and is taken to have been.
    """
    since = span.window.end - timedelta(days=PATTERN_DAYS)
    rows = PodHour.objects.filter(
        cluster=span.cluster,
        tier=tier,
        hour__gte=max(since, span.window.start),
        hour__lt=span.window.end,
        workload_id__in=workloads,
    ).order_by("workload_id", "hour")
    sums = rows.values_list("workload_id", "hour").annotate(
        held=Sum("allocated"),
        active=Sum(F("busy") + F("unmeasured")),
        pods=Count("pod_id", distinct=True),
    )
    found: dict[int, list[tuple[int, float, float, int]]] = defaultdict(list)
    for pk, hour, held, active, pods in sums.iterator(_ROWS_AT_A_TIME):
        local = hour.astimezone(span.zone).hour
        found[pk].append((local, hours(int(held)), hours(int(active)), pods))
    return found

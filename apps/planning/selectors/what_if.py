"""What if: the work of a window replayed against other entitlements, capacity or tiers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from django.db.models import Max, Min, Q
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED, UNDETERMINED
from apps.clusters.domain.window import HOUR_SECONDS, SLOT_SECONDS, Window, from_seconds
from apps.clusters.models import Namespace, Pod, holds_at
from apps.clusters.selectors import TeamSpan, team_spans
from apps.fairness.domain.measures import Measured, integrate
from apps.fairness.domain.shares import Array
from apps.fairness.selectors import TierSums, explain_jain, plan_of, tier_names, tier_sums
from apps.pending.domain.queues.unrecorded import CLUSTER_QUEUE
from apps.pending.models import CauseInterval, Episode
from apps.pending.selectors import counted_causes, queue_time
from apps.planning.domain.capacity_cases import (
    SizePoint,
    replay_size,
    sizes_to_replay,
    with_typical_runs,
)
from apps.planning.domain.replay import AddGpus, Layout, ReplayWork, TierPlan, WhatIfChange
from apps.planning.domain.what_if import (
    TierOutcome,
    TierReplay,
    replay_changes,
    replay_tier,
    tiers_of,
)
from apps.planning.selectors.rows import OutcomeRow, TierOutcomeRow, WhatIfReport
from apps.quotas.models import Entitlement
from apps.usage.domain.amounts import hours
from apps.usage.domain.explained import Explained, FigureUnit, RowColumn
from apps.usage.models import HAS_FACTS, CollectionWindow
from gpuportal.database_functions import UnixSeconds

LONGEST = timedelta(days=31)
_INSTANT = timedelta(seconds=1)
_CLAIM = "ResourceClaim"
# GPU-hours below which an index does not count a team, as fairness has it.
_SMALLEST_SHARE = 1e-9
_READ_FROM = (
    "A tier's capacity is its mean over the hours of the window that are known; entitlements are "
    "those at its end.",
    "A pod is its own work; pods of one job are started one by one.",
    "Work is the demand that fairness counts: pods pending for causes of demand, and before the "
    "watch all that series show. Work that had no pod yet is left out, but for what Kueue's series "
    "show: that is replayed by the half hour, each ClusterQueue's as one.",
    "Work of a cluster that is in the catalog no more ends with the last hour that is known of it.",
)
_REPLAY_ORIGIN = "Work of the window, replayed by the rules that the page lists as assumptions."
_JAIN, _QUEUE_TIMES = "what_if_jain_index", ("what_if_queue_time_p50", "what_if_queue_time_p95")


class ReplayLimits(Struct, frozen=True):
    """How much is replayed at most within one page request.

    Each of the `pods` is scheduled twice. `cells` are slots × teams, summed over the tiers that
    are replayed: what is measured of each is kept in memory.
    """

    pods: int = 20_000
    cells: int = 1_000_000


_LIMITS = ReplayLimits()


class TooMuchToReplay(ValueError):
    """A replay would take too long; the text says of what there is too much, and what to do."""


class CapacityUnknown(ValueError):
    """No hour of the window is known of a tier that a change concerns; the text says so."""


def what_if(
    window: Window,
    changes: Sequence[WhatIfChange],
    *,
    visibility: Visibility,
    limits: ReplayLimits = _LIMITS,
) -> WhatIfReport:
    """Replay the window's work as it was and after the changes; GPU-hours and queue times.

    The result has the tiers that the changes concern; all known ones where there is no change. Work
    is what the pod ledger knows: pending, running or created within the window. Sums of GPUs of
    teams, which every user may see: `visibility` narrows nothing. Raises TooMuchToReplay,
    CapacityUnknown, and ChangeImpossible where a change names something unknown. At most 15
    queries.
    """
    chosen, layout, works, edges = _prepared(window, changes, limits)
    found = replay_changes(works, layout, changes, edges=edges)
    return WhatIfReport(
        window=window,
        changes=tuple(changes),
        summary=found.changes,
        before=tuple(_tier_row(name, found.before[name]) for name in chosen.values()),
        after=tuple(_tier_row(name, found.after[name]) for name in chosen.values()),
        assumptions=(*_READ_FROM, *found.assumptions),
    )


def replayed_tier(
    window: Window,
    changes: Sequence[WhatIfChange],
    tier: str,
    *,
    after: bool,
    visibility: Visibility,
) -> TierReplay | None:
    """Return one tier of `what_if` slot by slot, before or after the changes.

    None for a tier that they do not concern. Raises and reads as `what_if`.
    """
    _, layout, works, edges = _prepared(window, changes, _LIMITS)
    if tier not in layout:
        return None
    return replay_tier(works, layout, changes if after else (), tier, edges=edges)


def replayed_sizes(
    window: Window,
    tier: str,
    *,
    capacity: float,
    visibility: Visibility,
) -> tuple[SizePoint, ...]:
    """Return a tier's window replayed with `capacity` GPUs and with fewer and more.

    `capacity` may differ from that of the window, as where nodes came since. Raises and reads as
    `what_if`; TooMuchToReplay for a window of more than 31 days.
    """
    _, layout, works, edges = _prepared(window, [AddGpus(tier, 0)], _LIMITS)
    plan, works = layout[tier], with_typical_runs(works)
    return tuple(
        replay_size(works, plan, gpus, start=edges[0], end=edges[-1])
        for gpus in sizes_to_replay(capacity)
    )


def _prepared(
    window: Window, changes: Sequence[WhatIfChange], limits: ReplayLimits
) -> tuple[dict[int, str], Layout, list[ReplayWork], list[float]]:
    """Return the tiers that changes concern, with plans and work, and the edges of the slots."""
    if window.end - window.start > LONGEST:
        raise TooMuchToReplay(f"At most {LONGEST.days} days are replayed: choose a shorter window.")
    tiers, names = tier_names(), team_names()
    layout = _layout(window, tiers, names, tiers_of(changes))
    chosen = {pk: name for pk, name in tiers.items() if name in layout}
    works = _works(window, chosen, limits.pods)
    edges = _edges(window)
    _check_size(works, layout, slots=len(edges) - 1, cells=limits.cells)
    return chosen, layout, works, edges


def _check_size(works: Sequence[ReplayWork], layout: Layout, *, slots: int, cells: int) -> None:
    teams: dict[str, set[str]] = {tier: set(plan.entitlements) for tier, plan in layout.items()}
    for work in works:
        teams[work.tier].add(work.team)
    # The replay is slots × teams: a bound on each alone would refuse long windows of few teams.
    most = cells // max(1, sum(map(len, teams.values())))
    if slots > most:
        days = most * SLOT_SECONDS / (24 * HOUR_SECONDS)
        raise TooMuchToReplay(
            f"So many teams share these tiers that at most {days:.1f} days of them are replayed: "
            "choose a shorter window."
        )


def _edges(window: Window) -> list[float]:
    edges = np.arange(window.start_seconds, window.end_seconds, SLOT_SECONDS).tolist()
    return [*map(float, edges), window.end_seconds]


def _layout(
    window: Window, tiers: Mapping[int, str], names: Mapping[int, str], asked: Collection[str]
) -> Layout:
    """Return the plans of the tiers that are asked for, else of all tiers with a known hour."""
    sums = tier_sums(plan_of(window), tiers)
    chosen = [
        tier
        for tier, name in tiers.items()
        if name != UNDETERMINED and (name in asked if asked else sums.get(tier, TierSums()).known)
    ]
    # One set of entitlements for the whole replay, that of its last moment.
    entitled = _entitled(window.end - _INSTANT, chosen, names)
    return {
        tiers[tier]: TierPlan(
            capacity=_capacity(tier, sums, tiers),
            entitlements={team: gpus for team, (gpus, _) in entitled[tier].items()},
            weights={team: weight for team, (_, weight) in entitled[tier].items()},
        )
        for tier in chosen
    }


def _capacity(tier: int, sums: Mapping[int, TierSums], tiers: Mapping[int, str]) -> float:
    """Return the mean GPU-equivalents of a tier; 0 where others are known and this had nothing."""
    own = sums.get(tier)
    if own is None and any(other.known for other in sums.values()):
        return 0.0
    if own is None or not own.known:
        raise CapacityUnknown(
            f"No data on the capacity of {tiers[tier]} in this window. Choose another window: Data "
            "quality shows which hours are collected."
        )
    return hours(own.capacity) / own.known


def _entitled(
    at: datetime, tiers: Collection[int], names: Mapping[int, str]
) -> dict[int, dict[str, tuple[float, float]]]:
    """Return of each tier what each team is entitled to at a moment, and its weight."""
    found: dict[int, dict[str, tuple[float, float]]] = {tier: {} for tier in tiers}
    rows = Entitlement.objects.filter(holds_at(at), tier__in=tiers).order_by("pk")
    for tier, team, gpus, weight in rows.values_list("tier_id", "team_id", "gpus", "weight"):
        found[tier][names.get(team, UNASSIGNED)] = (gpus, weight)
    return found


class _ReplayedPod(NamedTuple):
    """A pod of the ledger; times are Unix seconds."""

    uid: str
    namespace: str
    tier: int | None
    gpus: float
    created: float
    bound: float | None
    ended: float | None


def _works(window: Window, tiers: Mapping[int, str], most: int) -> list[ReplayWork]:
    rows = _pods(window, tiers, most)
    asked, since = _pod_demand(window), _demand_since(window)
    names = set(Namespace.objects.order_by("pk").values_list("name", flat=True))
    spans = team_spans(window, names)
    works = _of_queues(window, tiers, spans)
    for row in rows:
        tier, gpus = row.tier, row.gpus
        if tier is None:
            # Not bound yet: its episode tells the tier that it would have come to.
            tier, gpus = asked.get(row.uid, (None, 0.0))
        if tier is None or tier not in tiers or gpus <= 0:
            continue
        if row.uid in asked and not _has_run(row, window):
            begin = since.get(row.uid, row.bound)
            if begin is None:
                continue  # It never started, for causes that are no demand.
            row = row._replace(created=max(row.created, begin))
        # The team of the moment when the work was asked for, not of today: namespaces move.
        at = max(window.start_seconds, row.created)
        span = next(s for s in spans[row.namespace] if s.end.timestamp() > at)
        works.append(_work(row, span.team, tiers[tier], gpus, window))
    return works


def _of_queues(
    window: Window, tiers: Mapping[int, str], spans: Mapping[str, Sequence[TeamSpan]]
) -> list[ReplayWork]:
    """Return the demand of ClusterQueues that only Kueue's series show, where a team is known."""
    of_tiers = Q(episode__kind=CLUSTER_QUEUE, episode__tier__in=tiers)
    in_time = Q(end__gt=window.start, start__lt=window.end)
    rows = CauseInterval.objects.filter(counted_causes(), of_tiers, in_time)
    columns = ("episode__workload__namespace__name", "episode__tier_id", "counted", "start", "end")
    works = []
    for space, tier, gpus, start, end in rows.order_by("start", "pk").values_list(*columns):
        at = max(window.start, start)
        span = next(one for one in spans[space] if one.end > at)
        # Without a namespace no team is known to have asked.
        if not space or end is None:
            continue
        asked, until = at.timestamp(), min(end, window.end).timestamp()
        work = ReplayWork(span.team, tiers[tier], gpus, asked, until - asked, until, of_queue=True)
        works.append(work)
    return works


def _has_run(row: _ReplayedPod, window: Window) -> bool:
    return row.bound is not None and row.bound < window.start_seconds


def _work(row: _ReplayedPod, team: str, tier: str, gpus: float, window: Window) -> ReplayWork:
    start, end = window.start_seconds, window.end_seconds
    running = _has_run(row, window)
    began = start if running else row.bound
    # What ends after the window is still there when the replay ends.
    over = row.ended if row.ended is not None and row.ended < end else None
    return ReplayWork(
        team=team,
        tier=tier,
        gpus=gpus,
        asked_at=row.created,
        runs_seconds=None if began is None or row.ended is None else max(0.0, row.ended - began),
        leaves_at=over if row.bound is None else None,
        running=running,
    )


def _pods(window: Window, tiers: Collection[int], most: int) -> list[_ReplayedPod]:
    """Return the pods that were pending or held GPUs within the window; claims are their pods'
    holding.

    Those not bound may be of any tier. Raises TooMuchToReplay.
    """
    # One query for pending and holding pods: a pod is often both within the window.
    lived = Q(ended_at__isnull=True) | Q(ended_at__gt=window.start)
    of_tiers = Q(tier__in=tiers) | Q(tier__isnull=True)
    last = _last_known(window)
    known = Q(workload__namespace__cluster__active=True) | Q(
        workload__namespace__cluster__in=sorted(last)
    )
    rows = Pod.objects.filter(lived, of_tiers, known, created_at__lt=window.end).exclude(
        workload__kind=_CLAIM
    )
    timed = rows.annotate(
        created=UnixSeconds("created_at"),
        bound=UnixSeconds("bound_at"),
        end=UnixSeconds("ended_at"),
    )
    columns = ("uid", "workload__namespace__name", "tier_id", "gpu_equivalents")
    times = ("created", "bound", "end")
    cluster = "workload__namespace__cluster_id"
    found = list(
        timed.order_by("created_at", "pk").values_list(cluster, *columns, *times)[: most + 1]
    )
    if len(found) > most:
        raise TooMuchToReplay(
            f"More than {most:,} pods asked for GPUs in these days, too many to replay: "
            "choose a shorter window."
        )
    return [row for pk, *values in found if (row := _until(_ReplayedPod(*values), last.get(pk)))]


def _last_known(window: Window) -> dict[int, float]:
    """Return when the facts end (Unix seconds) of clusters that are in the catalog no more.

    Of those with any hour in the window: nothing shows the end of what such a cluster's pods hold.
    """
    rows = CollectionWindow.objects.filter(
        HAS_FACTS, cluster__active=False, hour__gte=window.start, hour__lt=window.end
    )
    newest = rows.order_by().values_list("cluster_id").annotate(Max("hour"))
    return {cluster: hour.timestamp() + HOUR_SECONDS for cluster, hour in newest}


def _until(row: _ReplayedPod, end: float | None) -> _ReplayedPod | None:
    """Return a pod as it was known until `end`; None for one that came later."""
    if end is None or (row.ended is not None and row.ended <= end):
        return row
    if row.created >= end:
        return None
    bound = row.bound if row.bound is not None and row.bound < end else None
    return row._replace(bound=bound, ended=end)


def _pod_demand(window: Window) -> dict[str, tuple[int | None, float]]:
    """Return the tier and GPU-equivalents of pods that were pending, by uid."""
    rows = Episode.objects.filter(
        Q(until__isnull=True) | Q(until__gt=window.start), since__lt=window.end, kind="Pod"
    ).order_by("since", "pk")
    return {
        uid: (tier, gpus)
        for uid, tier, gpus in rows.values_list("uid", "tier_id", "gpu_equivalents")
    }


def _demand_since(window: Window) -> dict[str, float]:
    """Return from when on a pending pod was demand (Unix seconds), by uid, as fairness has it."""
    rows = CauseInterval.objects.filter(
        counted_causes(),
        Q(end__isnull=True) | Q(end__gt=window.start),
        start__lt=window.end,
        episode__kind="Pod",
    )
    first = rows.order_by().values_list("episode__uid").annotate(Min("start"))
    return {uid: at.timestamp() for uid, at in first}


def _tier_row(name: str, outcome: TierOutcome) -> TierOutcomeRow:
    sums = outcome.sums
    rows = []
    for number, team in enumerate(outcome.teams):
        waits = outcome.waits[team]
        p50, p95 = waits.percentiles()
        rows.append(
            OutcomeRow(
                tier=name,
                team=team,
                entitlement_gpu_hours=float(sums.entitlement[number]),
                demand_gpu_hours=float(sums.demand[number]),
                fair_share_gpu_hours=float(sums.fair_share[number]),
                allocated_gpu_hours=float(sums.allocated[number]),
                borrowed_gpu_hours=float(sums.borrowed[number]),
                denied_gpu_hours=float(sums.denied[number]),
                wait_p50_seconds=p50,
                wait_p95_seconds=p95,
                waits_ended=waits.ended.total(),
                waiting_now=waits.waiting_now,
                gave_up=waits.gave_up,
            )
        )
    return TierOutcomeRow(
        tier=name,
        capacity_gpu_hours=sums.capacity,
        allocated_gpu_hours=float(sums.allocated.sum()),
        denied_gpu_hours=float(sums.denied.sum()),
        jain_index=sums.jain_index,
        teams=tuple(rows),
    )


class _ReplaySum(Struct, frozen=True):
    """A measure in each half hour, of each team or, of a tier's capacity, alone."""

    label: str
    meaning: str
    of: Callable[[Measured], Array]


_REPLAY_SUMS: Mapping[str, _ReplaySum] = {
    "what_if_capacity": _ReplaySum(
        "Capacity", "GPUs of the tier × time.", lambda m: m.slots.capacity
    ),
    "what_if_allocated": _ReplaySum(
        "Allocated", "GPUs of placed work × time.", lambda m: m.slots.held
    ),
    "what_if_unmet": _ReplaySum(
        "Unmet fair share",
        "In each half hour min(pending, max(0, fair share − allocated)).",
        lambda m: m.denied,
    ),
    "what_if_entitled": _ReplaySum(
        "Entitlement", "Entitlement at the window's end × time.", lambda m: m.slots.entitlement
    ),
    "what_if_fair_share": _ReplaySum(
        "Fair share",
        "What a team gets by entitlement, and its weighted part of what others leave.",
        lambda m: m.fair_share,
    ),
}
WHAT_IF = (*_REPLAY_SUMS, _JAIN, *_QUEUE_TIMES)


def explain_what_if(
    figure: str, window: Window, found: TierReplay | None, *, team: str
) -> Explained | None:
    """Explain one of WHAT_IF of a replayed tier, or of one `team`.

    None for other figures, and for a tier or team that is not replayed.
    """
    if figure not in WHAT_IF or found is None or (team and team not in found.teams):
        return None
    if figure in _REPLAY_SUMS:
        return _explain_replay_sum(figure, window, found, team)
    if figure == _JAIN:
        return _explain_index(found)
    return _explain_queue_time(figure, found, team) if team else None


def _explain_replay_sum(figure: str, window: Window, found: TierReplay, team: str) -> Explained:
    of, hours = _REPLAY_SUMS[figure], found.measured.slots.hours
    values = of.of(found.measured)
    if team and values.ndim > 1:
        values = values[:, found.teams.index(team)]
    gpus = values.sum(axis=1) if values.ndim > 1 else values
    starts = window.start_seconds + 3600 * (np.cumsum(hours) - hours)
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="fairness",
        value=float(hours @ gpus),
        unit=FigureUnit.GPU_HOURS,
        formula="dot(gpus, hours)",
        columns=(
            RowColumn("start", "From", FigureUnit.TIME),
            RowColumn("gpus", of.label, FigureUnit.GPUS),
            RowColumn("hours", "Hours", FigureUnit.HOURS),
        ),
        rows=[
            {"start": from_seconds(start), "gpus": amount, "hours": long}
            for start, amount, long in zip(
                starts.tolist(), gpus.tolist(), hours.tolist(), strict=True
            )
        ],
        origin=_REPLAY_ORIGIN,
    )


def _explain_index(found: TierReplay) -> Explained:
    sums = integrate(found.measured)
    columns = (sums.allocated.tolist(), sums.fair_share.tolist(), sums.demand.tolist())
    teams = [
        (team, allocated, share)
        for team, allocated, share, demand in zip(found.teams, *columns, strict=True)
        if demand > 0 and share > _SMALLEST_SHARE
    ]
    return replace(
        explain_jain(_JAIN, sums.jain_index, teams, below="fair share"),
        origin=_REPLAY_ORIGIN,
        nothing="" if sums.jain_index is not None else "No team requested this tier.",
    )


def _explain_queue_time(figure: str, found: TierReplay, team: str) -> Explained:
    return queue_time(
        figure,
        found.waits[team].ended,
        meaning="From creation to start, of work that starts in the replay.",
        origin=_REPLAY_ORIGIN,
        counted="Started",
    )

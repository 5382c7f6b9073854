"""Recommendations replayed: what they would do to the recorded demand, handed to costs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

from apps.accounts.domain.structs import replace
from apps.clusters.domain.tiers import TierRule, capacity_type, gpu_model, same_model
from apps.clusters.domain.window import HOUR_SECONDS, from_seconds, utc_midnight
from apps.clusters.models import Cluster
from apps.clusters.selectors import report
from apps.clusters.services import TierHistory
from apps.costs.domain.recommendations.idle_time import TIMEOUT_MINUTES
from apps.costs.domain.recommendations.recommendation import (
    CutLayout,
    LentQuota,
    LoweredLimit,
    PodRequest,
    ReplayGap,
    ScaledPool,
)
from apps.costs.services import (
    ReplayableChange,
    ReplayedEffects,
    note_replay_gaps,
    note_replayed_effects,
    take_replayable,
)
from apps.planning.domain.cluster_replay.inputs import ReplayCluster
from apps.planning.domain.layouts.figures import (
    DemandWindow,
    LayoutFigures,
    layout_figures,
)
from apps.planning.domain.layouts.options import recut_node
from apps.planning.domain.moved_work import MoveReplay, OtherRequest
from apps.planning.domain.policy_change import LimitChange, PolicyChange
from apps.planning.domain.policy_effects import ALL_TEAMS, RecordedWeeks, policy_effects
from apps.planning.domain.scaled_pools import ScaleReplay
from apps.planning.selectors import NothingRecorded
from apps.planning.selectors.policy_inputs import (
    OtherLimits,
    least_other_limits,
    with_others,
)
from apps.planning.services.policy_simulations import recorded_weeks
from apps.quotas.domain.keys import QuotaSource

_DAY = timedelta(days=1).total_seconds()


def replay_recommendations(*, now: datetime, anew: bool = False) -> int:
    """Replay recommended timeouts, limits, lent quota, layouts, requests of pods and pools.

    Each once a day; return how many.

    `anew`: also those of today, after more days were collected. Where one cannot be replayed the
    reason is kept.
    """
    clusters = Cluster.objects.filter(active=True).order_by("name")
    return sum(_replay(one, now, anew=anew) for one in clusters)


def _replay(cluster: Cluster, now: datetime, *, anew: bool) -> int:
    midnight = utc_midnight(now)
    due = take_replayable(cluster.pk, since=now if anew else midnight, now=now)
    if not due:
        return 0
    found: dict[int, ReplayedEffects | ReplayGap] = {}
    try:
        # One reading for all: how long work did nothing matters to timeouts alone.
        weeks, demand = recorded_weeks(cluster, PolicyChange(idle_minutes=TIMEOUT_MINUTES), now=now)
        others = least_other_limits(cluster.name, now)
        layouts = _LayoutReplay(weeks)
        moves = MoveReplay(weeks, [life.owner for life in demand.lives])
        scales = ScaleReplay(weeks)
        for one in due:
            if one.node:
                found[one.pk] = layouts.effects(one)
            elif isinstance(one.change_values, PodRequest):
                found[one.pk] = _of_request(one, one.change_values, moves, weeks)
            elif isinstance(one.change_values, ScaledPool):
                found[one.pk] = _of_pool(one.tier, one.change_values, scales, weeks)
            else:
                found[one.pk] = _of_policy(one, weeks, others)
    except NothingRecorded:
        found = {one.pk: ReplayGap.NOTHING_RECORDED for one in due}
    effects = {pk: one for pk, one in found.items() if isinstance(one, ReplayedEffects)}
    note_replayed_effects(effects)
    note_replay_gaps({pk: one for pk, one in found.items() if isinstance(one, ReplayGap)})
    return len(effects)


class _PendingEffect(Protocol):
    """What work was pending in a replay, and its queue time (None: nothing started)."""

    @property
    def unmet_gpu_hours(self) -> float: ...
    @property
    def p95_seconds(self) -> float | None: ...


def _effects(
    span: RecordedWeeks | DemandWindow,
    freed: float,
    before: _PendingEffect,
    after: _PendingEffect,
    **more: Any,
) -> ReplayedEffects:
    """Return what a change frees, and what is pending without and with it."""
    return ReplayedEffects(
        replayed_days=(span.end - span.start) / _DAY,
        replayed_freed_gpu_hours=freed,
        replayed_unmet_before_gpu_hours=before.unmet_gpu_hours,
        replayed_unmet_after_gpu_hours=after.unmet_gpu_hours,
        replayed_p95_before_seconds=before.p95_seconds,
        replayed_p95_after_seconds=after.p95_seconds,
        **more,
    )


def _of_request(
    one: ReplayableChange, then: PodRequest, moves: MoveReplay, weeks: RecordedWeeks
) -> ReplayedEffects | ReplayGap:
    """Return what another request of a workload's pods does to the tiers that it concerns."""
    # Before its work is looked for: without an offer there is nothing to place it on.
    if not moves.offers(then.tier, then.node_selector):
        return ReplayGap.NOT_OFFERED
    kind, _, name = one.workload.partition("/")
    request = OtherRequest(**then._asdict())
    effects = moves.effects((one.namespace, kind, name), one.tier, request)
    if effects is None:
        return ReplayGap.NO_WORK
    return _effects(
        *(weeks, effects.freed_gpu_hours, effects.before, effects.after),
        replayed_held_gpu_hours=effects.held_gpu_hours,
        replayed_works=effects.works,
        replayed_works_started=effects.started,
    )


def _of_pool(
    tier: str, pool: ScaledPool, scales: ScaleReplay, weeks: RecordedWeeks
) -> ReplayedEffects | ReplayGap:
    """Return what fewer GPUs of a pool at some hours of each week do to its tier."""
    nodes = {
        node.name
        for node in weeks.cluster.nodes
        if same_model(gpu_model(node.labels), pool.gpu_model)
        and capacity_type(node.labels) == pool.capacity_type
    }
    zone = report().zone
    hours = range(round((weeks.end - weeks.start) / HOUR_SECONDS))
    local = (from_seconds(weeks.start + hour * HOUR_SECONDS).astimezone(zone) for hour in hours)
    effects = scales.effects(tier, nodes, [pool.gpus[at.weekday() * 24 + at.hour] for at in local])
    if effects is None:
        return ReplayGap.NOT_OFFERED
    return _effects(weeks, effects.freed_gpu_hours, effects.before, effects.after)


def _of_policy(
    one: ReplayableChange, weeks: RecordedWeeks, others: OtherLimits
) -> ReplayedEffects | ReplayGap:
    """Return what a timeout or limit does to its tier."""
    effects = policy_effects(weeks, _change(one, others))
    rows = {(row.team, row.tier): row for row in effects.rows}
    own, whole = rows.get((one.team, one.tier)), rows.get((ALL_TEAMS, one.tier))
    # Work of these weeks may all be of other teams: that is no effect of zero.
    if own is None or whole is None:
        return ReplayGap.NO_WORK
    return _effects(weeks, own.freed_gpu_hours, whole.before, whole.after)


class _LayoutReplay:
    """The recorded weeks with the layouts of now, replayed once, and with others of one node."""

    def __init__(self, weeks: RecordedWeeks) -> None:
        self._demand = DemandWindow(
            weeks.works, weeks.happened, weeks.cluster, weeks.start, weeks.end
        )
        self._packing = weeks.policy.packing

    @cached_property
    def _rules(self) -> Sequence[TierRule]:
        # Half-open: rules that begin at the end itself do not hold in these weeks.
        return TierHistory.load().at(self._demand.end - 1)

    @cached_property
    def _before(self) -> LayoutFigures:
        return self._figures(self._demand.cluster)

    def _figures(self, cluster: ReplayCluster) -> LayoutFigures:
        return layout_figures(self._demand, cluster, self._packing)[0]

    def effects(self, one: ReplayableChange) -> ReplayedEffects | ReplayGap:
        """Return what another layout does, if the node has the layout that it is meant for."""
        cluster = self._demand.cluster
        place = next((n for n, node in enumerate(cluster.nodes) if node.name == one.node), None)
        if place is None or not isinstance(one.change_values, CutLayout):
            return ReplayGap.OTHER_LAYOUT
        node = recut_node(
            cluster.nodes[place], one.change_values.now, one.change_values.then, self._rules
        )
        if node is None:
            return ReplayGap.OTHER_LAYOUT
        nodes = (*cluster.nodes[:place], node, *cluster.nodes[place + 1 :])
        before, after = self._before, self._figures(replace(cluster, nodes=nodes))
        freed = before.stranded_gpu_hours - after.stranded_gpu_hours
        return _effects(self._demand, freed, before, after)


def _change(one: ReplayableChange, others: OtherLimits) -> PolicyChange:
    """Return a recommended change as policies are replayed."""
    of = (QuotaSource.RESOURCE_QUOTA, one.namespace, one.quota)
    values = one.change_values
    if isinstance(values, LentQuota):
        limit = LimitChange(
            *of, values.key, values.hard, values.hard, team=one.team, lends=values.lent
        )
    elif isinstance(values, LoweredLimit):
        limit = LimitChange(*of, values.key, values.before, values.after, team=one.team)
    else:
        return PolicyChange(idle_minutes=one.minutes, idle_of=(one.team, one.tier))
    return PolicyChange(limits=(with_others(limit, others),))

"""Recommendations replayed: what they would do to the recorded demand, handed to costs."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property

from apps.clusters.domain.tiers import TierRule
from apps.clusters.domain.window import utc_midnight
from apps.clusters.models import Cluster
from apps.clusters.services import TierHistory
from apps.costs.domain.recommendations.idle_time import TIMEOUT_MINUTES
from apps.costs.domain.recommendations.recommendation import CutLayout, LentQuota, LoweredLimit
from apps.costs.services import (
    ReplayableChange,
    ReplayedEffects,
    forget_replayed_effects,
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
from apps.planning.domain.policy_change import LimitChange, PolicyChange
from apps.planning.domain.policy_effects import ALL_TEAMS, RecordedWeeks, policy_effects
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
    """Replay recommended idle timeouts, limits, lent quota and MIG layouts, each once a day.

    Return how many.

    `anew`: also those of today, after more days were collected. Where nothing is recorded nothing
    is said of effects.
    """
    clusters = Cluster.objects.filter(active=True).order_by("name")
    return sum(_replay(one, now, anew=anew) for one in clusters)


def _replay(cluster: Cluster, now: datetime, *, anew: bool) -> int:
    midnight = utc_midnight(now)
    due = take_replayable(cluster.pk, since=now if anew else midnight, now=now)
    if not due:
        return 0
    found = {}
    try:
        # One reading for all: how long work did nothing matters to timeouts alone.
        weeks, _ = recorded_weeks(cluster, PolicyChange(idle_minutes=TIMEOUT_MINUTES), now=now)
        others = least_other_limits(cluster.name, now)
        layouts = _LayoutReplay(weeks)
        for one in due:
            effects = layouts.effects(one) if one.node else _of_policy(one, weeks, others)
            if effects is not None:
                found[one.pk] = effects
    except NothingRecorded:
        found = {}
    note_replayed_effects(found)
    forget_replayed_effects([one.pk for one in due if one.pk not in found])
    return len(found)


def _of_policy(
    one: ReplayableChange, weeks: RecordedWeeks, others: OtherLimits
) -> ReplayedEffects | None:
    """Return what a timeout or limit does to its tier; None where the team has no work there."""
    effects = policy_effects(weeks, _change(one, others))
    rows = {(row.team, row.tier): row for row in effects.rows}
    own, whole = rows.get((one.team, one.tier)), rows.get((ALL_TEAMS, one.tier))
    # Work of these weeks may all be of other teams: that is no effect of zero.
    if own is None or whole is None:
        return None
    return ReplayedEffects(
        replayed_days=(weeks.end - weeks.start) / _DAY,
        replayed_freed_gpu_hours=own.freed_gpu_hours,
        replayed_unmet_before_gpu_hours=whole.before.unmet_gpu_hours,
        replayed_unmet_after_gpu_hours=whole.after.unmet_gpu_hours,
    )


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

    def effects(self, one: ReplayableChange) -> ReplayedEffects | None:
        """Return what another layout does; None for a node that has not the layout of now."""
        cluster = self._demand.cluster
        place = next((n for n, node in enumerate(cluster.nodes) if node.name == one.node), None)
        if place is None or not isinstance(one.change_values, CutLayout):
            return None
        node = recut_node(
            cluster.nodes[place], one.change_values.now, one.change_values.then, self._rules
        )
        if node is None:
            return None
        nodes = (*cluster.nodes[:place], node, *cluster.nodes[place + 1 :])
        before, after = self._before, self._figures(replace(cluster, nodes=nodes))
        return ReplayedEffects(
            replayed_days=(self._demand.end - self._demand.start) / _DAY,
            replayed_freed_gpu_hours=before.stranded_gpu_hours - after.stranded_gpu_hours,
            replayed_unmet_before_gpu_hours=before.unmet_gpu_hours,
            replayed_unmet_after_gpu_hours=after.unmet_gpu_hours,
        )


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

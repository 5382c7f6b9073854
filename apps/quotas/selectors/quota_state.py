"""What is known of quotas at a moment, which the lists of them are made of."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import fsum

from django.db.models import QuerySet
from msgspec import Struct, field

from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import ObservedKind, ObservedObject
from apps.clusters.domain.tiers import TierRule
from apps.clusters.domain.window import Window
from apps.clusters.models import Pod
from apps.clusters.selectors import TeamSpan, team_spans
from apps.clusters.services import TierHistory, observed_in
from apps.quotas.domain.keys import (
    Counting,
    QuotaSource,
    ScopedRequest,
    counts,
    reachable_tiers,
    sharing_of,
)
from apps.quotas.selectors.demand import BlockedWork, OpenPods, blocked_in, open_pods
from apps.quotas.selectors.observed_quotas import (
    ObservedKey,
    PresentQuotas,
    named_by_tiers,
    present_quotas,
    queue_users,
)
from apps.quotas.selectors.rows import QuotaFilters
from apps.usage.selectors import exists_at

_INSTANT = timedelta(seconds=1)
_NOTHING_BLOCKED = BlockedWork()


class QuotaState(Struct):
    """What is known at a moment, and the keys of it that are shown.

    The teams of namespaces, their open pods, and how fresh the pending data is.
    """

    at: datetime
    there: PresentQuotas
    rules: Sequence[TierRule]
    users: dict[int, dict[tuple[str, str], set[str]]]
    spans: dict[str, tuple[TeamSpan, ...]] = field(default_factory=dict)
    open: OpenPods = field(default_factory=OpenPods)
    waits: dict[int, BlockedWork] | None = None
    shown: list[ObservedKey] = field(default_factory=list)
    _tiers: dict[tuple[object, ...], tuple[str, ...]] = field(default_factory=dict)

    def find_teams(self, keys: Iterable[ObservedKey]) -> None:
        """Read whose the namespaces of keys are. Two queries where some are not known yet."""
        names: set[str] = set()
        for one in keys:
            names.update([one.namespace] if one.namespace else self._users_of(one))
        if names - self.spans.keys():
            self.spans.update(team_spans(Window(self.at, self.at + _INSTANT), names))

    def read_pods(self, keys: Sequence[ObservedKey]) -> None:
        """Read the open and pending pods in the namespaces of keys. At most four queries."""
        self.find_teams(keys)
        self.open = open_pods(self.at, {one.namespace for one in keys if one.namespace})
        if self.waits is None:
            self.read_blocked()

    def read_blocked(self) -> None:
        """Read the work that quotas block. One query."""
        window = Window(self.at, self.at + _INSTANT)
        self.waits = blocked_in(window, self.there.local, clusters=list(self.there.clusters))

    def _users_of(self, one: ObservedKey) -> Collection[str]:
        return self.users.get(one.cluster_id, {}).get((one.source, one.name), ())

    def teams(self, one: ObservedKey) -> list[TeamSpan]:
        """Return whose a key is; of a queue all whose namespaces use it."""
        if one.namespace:
            return [self.spans[one.namespace][0]]
        spans = (self.spans[name][0] for name in self._users_of(one))
        return list({span.team_id: span for span in spans}.values())

    def team(self, one: ObservedKey) -> str | None:
        teams = self.teams(one)
        return teams[0].team if len(teams) == 1 else None

    def tiers(self, one: ObservedKey) -> tuple[str, ...]:
        flavor = one.key.partition("/")[0] if one.source == QuotaSource.CLUSTER_QUEUE else ""
        # Without a flavor the tiers follow from the resource alone, alike in all clusters.
        place = (one.cluster_id if flavor else 0, flavor, one.meaning.resource)
        if place not in self._tiers:
            labels = self.there.flavors.get(one.cluster_id, {}).get(flavor)
            self._tiers[place] = reachable_tiers(one.meaning.resource, self.rules, labels)
        return self._tiers[place]

    def unit(self, one: ObservedKey) -> str:
        """Return what the amounts of a key count, in words."""
        return one.meaning.unit(sharing_of(self.tiers(one), self.rules))

    def requested(self, one: ObservedKey) -> tuple[float | None, float | None]:
        """Return what is held and what is pending of a ResourceQuota's key, by the ledger."""
        if not one.meaning.effective:
            return 0.0, 0.0
        place = (one.cluster_id, one.namespace, one.meaning.resource, one.meaning.counting)
        by_class = self.open.requests.get(place, {})
        matching = [
            asked
            for priority, asked in by_class.items()
            if counts(one.scopes, ScopedRequest(priority_class=priority)) is not False
        ]
        held = at_most(one.used, fsum(asked.held for asked in matching))
        if one.meaning.counting is Counting.CLAIMS:
            # The ledger knows allocated claims; the others are what the quota counts beside.
            return held, None if one.used is None else max(0.0, one.used - held)
        left = None if one.used is None else one.used - held
        return held, at_most(left, fsum(asked.pending for asked in matching))

    def suppressed(self, one: ObservedKey) -> float:
        return fsum(units for units, _ in self.blocked(one))

    def blocked(self, one: ObservedKey) -> list[tuple[float, float]]:
        """Return units that are refused, and since when; of a queue those that pend in it."""
        waits = (self.waits or {}).get(one.cluster_id, _NOTHING_BLOCKED)
        if not one.namespace:
            spans = waits.queued.get((one.name, one.meaning.resource), ())
            return [(units, since) for units, since, _ in spans]
        return [
            (refused.units, refused.start)
            for refused in waits.refused.get(one.namespace, ())
            if refused.resource == one.meaning.resource
            # A message that names no quota may mean any on that resource.
            and (not refused.quotas or one.name in refused.quotas)
        ]


def at_most(used: float | None, units: float) -> float:
    """Return units as part of what a quota says is used: no part is more than the whole.

    The status of a quota and the pods are seen one after the other, and scopes that pods do not
    tell may leave some of them out.
    """
    return units if used is None else max(0.0, min(used, units))


def held_units(state: QuotaState, one: ObservedKey) -> float | None:
    """Return what is held of a quota key; without a live watch that of the last summed hour."""
    return one.amounts[1] if one.amounts else state.requested(one)[0]


def suppressed_units(state: QuotaState, one: ObservedKey) -> float | None:
    """Return what a key blocks; without a live watch that of the last summed hour."""
    return one.amounts[3] if one.amounts else state.suppressed(one)


def quota_state(
    at: datetime, filters: QuotaFilters, visibility: Visibility, *, every_cluster: bool = False
) -> QuotaState:
    history = TierHistory.load()
    clusters = () if every_cluster else filters.cluster
    there = present_quotas(at, named=named_by_tiers(history), clusters=clusters)
    state = QuotaState(at, there, history.at(at.timestamp()), _queue_users(at, there))
    # Whose namespaces these are takes two queries, which a list of everything does not need.
    if filters.team or not visibility.everything:
        state.find_teams(there.keys)
    state.shown = [one for one in there.keys if _is_shown(state, one, filters, visibility)]
    return state


def _queue_users(at: datetime, there: PresentQuotas) -> dict[int, dict[tuple[str, str], set[str]]]:
    """Return which namespaces use which queues. A query where a cluster has Volcano, or KAI."""
    groups: Mapping[int, Sequence[ObservedObject]] = {}
    pods: dict[int, list[tuple[str, str]]] = defaultdict(list)
    if volcano := there.with_queues.get(QuotaSource.VOLCANO_QUEUE.value):
        groups = observed_in(volcano, [ObservedKind.VOLCANO_POD_GROUP])
    if kai := there.with_queues.get(QuotaSource.KAI_QUEUE.value):
        for pk, queue, namespace in _queued_namespaces(at, kai):
            pods[pk].append((queue, namespace))
    return {
        pk: queue_users(there.local.get(pk, {}), groups.get(pk, ()), pods.get(pk, ()))
        for pk in set().union(*there.with_queues.values())
    }


def _queued_namespaces(
    at: datetime, clusters: Collection[int]
) -> QuerySet[Pod, tuple[int, str, str]]:
    pods = Pod.objects.filter(exists_at(at), cluster_id__in=clusters).exclude(queue="")
    columns = ("cluster_id", "queue", "workload__namespace__name")
    return pods.order_by(*columns).values_list(*columns).distinct()


def _is_named(one: ObservedKey, filters: QuotaFilters) -> bool:
    if filters.key is not None and one.ref != filters.key:
        return False
    if filters.cluster and one.cluster not in filters.cluster:
        return False
    if filters.source and one.source not in filters.source:
        return False
    return not filters.namespace or one.namespace in filters.namespace


def _is_shown(
    state: QuotaState, one: ObservedKey, filters: QuotaFilters, visibility: Visibility
) -> bool:
    if not _is_named(one, filters):
        return False
    if filters.effective is not None and one.meaning.effective is not filters.effective:
        return False
    if not filters.matches(one.namespace, one.name, one.key):
        return False
    if filters.tier and not set(filters.tier) & set(state.tiers(one)):
        return False
    if visibility.everything and not filters.team:
        return True
    teams = state.teams(one)
    if filters.team and not any(span.team in filters.team for span in teams):
        return False
    return visibility.everything or any(visibility.sees(span.team_id) for span in teams)

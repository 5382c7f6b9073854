"""Quotas as they are: how much they allow, what is used of it, and when they will be full."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from math import fsum, inf

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.observed.objects import ClusterQueueSnapshot, ObservedKind
from apps.clusters.domain.tiers import UNASSIGNED, TierRule
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.selectors import TeamSpan, team_spans
from apps.clusters.services import TierHistory, observed_objects
from apps.quotas.domain.allocations import QueueUse, UnitSpan, kueue_use, volcano_use
from apps.quotas.domain.keys import (
    Counting,
    NamedQuota,
    QuotaRef,
    QuotaSource,
    ScopedRequest,
    counts,
    headroom,
    reachable_tiers,
    scope_words,
)
from apps.quotas.domain.limits import QueueLimit
from apps.quotas.domain.saturation import full_at, sum_known
from apps.quotas.selectors.demand import (
    BlockedWork,
    OpenPods,
    blocked_in,
    open_pods,
    pod_lives,
    pods_counted,
)
from apps.quotas.selectors.history import trends
from apps.quotas.selectors.observed_quotas import (
    ObservedKey,
    PresentQuotas,
    key_page,
    named_by_tiers,
    present_quotas,
    queue_users,
)
from apps.quotas.selectors.rows import (
    TIGHT_FROM,
    QuotaBand,
    QuotaDetail,
    QuotaFilters,
    QuotaOrder,
    QuotaRow,
    QuotaShare,
    QuotaSum,
    QuotaUnits,
)
from apps.usage.domain.usage_query import RowPage

ALL_QUOTAS = QuotaFilters()
_INSTANT = timedelta(seconds=1)
_NOTHING_BLOCKED = BlockedWork()
_NO_LIMIT = QueueLimit("", "", "", 0.0, None)
_BELOW_USE = "Limit lowered below use: running pods stay, new pods are blocked by quota."


def quota_rows(
    at: datetime,
    *,
    filters: QuotaFilters = ALL_QUOTAS,
    visibility: Visibility,
    cursor: str | None = None,
    page_size: int = 100,
    order: QuotaOrder = QuotaOrder.NAME,
) -> RowPage[QuotaRow]:
    """Return the GPU keys of all quotas and queues that are there, one row each.

    Of namespaces only those of teams that the reader sees; a queue is shown to who sees a team
    whose namespaces use it. Everybody may read sums of teams. Twelve queries and one for
    each cluster, at most; one more for each cluster that has queues of Volcano or queues on the
    page, and two where one is not watched. Raises CursorRefused.

    `exhausted_at` of a row: when what is used reaches `hard` along the straight line through the
    hourly means of the last seven days; `at` where it is full, None where that takes more than
    30 days.
    """
    state = _quota_state(at, filters, visibility)
    part = key_page(state.shown, order, cursor, page_size)
    state.read_pods(part.keys)
    return RowPage(rows=tuple(_rows(state, part.keys)), next_cursor=part.following)


def every_quota_row(
    at: datetime, *, filters: QuotaFilters, visibility: Visibility
) -> list[QuotaRow]:
    """Return all rows of which `quota_rows` returns pages, in no order. Queries as of that."""
    state = _quota_state(at, filters, visibility)
    state.read_pods(state.shown)
    return list(_rows(state, state.shown))


def quota_row(at: datetime, ref: QuotaRef, *, visibility: Visibility) -> QuotaRow | None:
    """Return one key; None where there is none or the reader may not see it.

    Queries as of `quota_rows`, of its cluster alone.
    """
    found = every_quota_row(
        at, filters=QuotaFilters(cluster=(ref.cluster,), key=ref), visibility=visibility
    )
    return next(iter(found), None)


class QuotasNow:
    """The keys that are there, those that block work and the fullest first, in parts.

    `counts` says how many there are in each band, `blocking` how many block work now. Rows are
    read when a part is asked for.
    """

    def __init__(self, state: "_QuotaState") -> None:
        self._state = state
        blocked = {one.ref: _suppressed(state, one) or 0.0 for one in state.shown}

        def rank(one: ObservedKey) -> tuple[bool | float | str, ...]:
            # The fullest first; without a limit there is no usage, and such come last.
            usage = inf if one.saturation is None else -one.saturation
            names = (one.cluster, one.namespace, one.source, one.name, one.key)
            return (not blocked[one.ref], usage, *names)

        keys = sorted(state.shown, key=rank)
        self._keys = {
            QuotaBand.TIGHT: [
                one for one in keys if blocked[one.ref] or (one.saturation or 0.0) >= TIGHT_FROM
            ],
            QuotaBand.ALL: keys,
            QuotaBand.UNENFORCED: [one for one in keys if not one.meaning.effective],
        }
        self.counts = {band: len(found) for band, found in self._keys.items()}
        self.blocking = sum(1 for units in blocked.values() if units)

    def rows(self, band: QuotaBand, part: slice) -> list[QuotaRow]:
        """Return a part of a band. Queries as of `quota_rows`, but for those of what is there."""
        keys = self._keys[band][part]
        self._state.read_pods(keys)
        return list(_rows(self._state, keys))


def quotas_now(
    at: datetime, *, filters: QuotaFilters = ALL_QUOTAS, visibility: Visibility
) -> QuotasNow:
    """Return the keys of which `quota_rows` returns rows, to be read in parts."""
    state = _quota_state(at, filters, visibility)
    state.read_blocked()
    return QuotasNow(state)


def team_quotas(at: datetime) -> list[QuotaSum]:
    """Return the sums of teams: what ResourceQuotas allow and count, by team and resource.

    They are GPUs at the level of a team, which everybody may see. Of several quotas on one
    resource of a namespace the least counts; those with scopes, which limit some pods only, and
    those that limit nothing are left out. Queries as of `quota_rows` without a filter of clusters.
    """
    state = _quota_state(at, ALL_QUOTAS, Visibility(everything=False), every_cluster=True)
    least = _least(state.there.keys)
    state.read_pods(least)
    return _sums(state, least)


def limits_of_tier(at: datetime, tier: str) -> list[ObservedKey]:
    """Return what limits a tier: of a namespace the least quota on a resource, and all queues."""
    state = _quota_state(at, QuotaFilters(tier=(tier,), effective=True), EVERYTHING)
    return [*_least(state.shown), *(one for one in state.shown if not one.namespace)]


def _least(keys: Iterable[ObservedKey]) -> list[ObservedKey]:
    """Return of the quotas on one resource of a namespace the one that allows the least."""
    least: dict[tuple[int, str, str, Counting], ObservedKey] = {}
    for one in keys:
        if one.source != QuotaSource.RESOURCE_QUOTA or one.scopes or not one.meaning.effective:
            continue
        place = (one.cluster_id, one.namespace, one.meaning.resource, one.meaning.counting)
        # All quotas of a namespace hold at once: their sum would allow what none of them does.
        if place not in least or one.hard < least[place].hard:
            least[place] = one
    return list(least.values())


def _sums(state: "_QuotaState", least: Iterable[ObservedKey]) -> list[QuotaSum]:
    groups: dict[tuple[str, str, Counting], list[ObservedKey]] = defaultdict(list)
    for one in least:
        team = state.team(one) or UNASSIGNED
        groups[team, one.meaning.resource, one.meaning.counting].append(one)
    return [
        _sum(state, team, resource, rows) for (team, resource, _), rows in sorted(groups.items())
    ]


def _sum(state: "_QuotaState", team: str, resource: str, rows: Sequence[ObservedKey]) -> QuotaSum:
    return QuotaSum(
        team=team,
        resource=resource,
        unit=rows[0].meaning.unit,
        tiers=state.tiers(rows[0]),
        hard=fsum(one.hard for one in rows),
        used=sum_known(one.used for one in rows),
        held=sum_known(_held(state, one) for one in rows),
        suppressed=sum_known(_suppressed(state, one) for one in rows),
        as_of=min((one.as_of for one in rows if one.as_of is not None), default=None),
        stale=any(one.stale for one in rows),
        from_series=any(one.from_series for one in rows),
    )


def _held(state: "_QuotaState", one: ObservedKey) -> float | None:
    """Return what is held of a quota key; without a live watch that of the last summed hour."""
    return one.amounts[1] if one.amounts else state.requested(one)[0]


def _suppressed(state: "_QuotaState", one: ObservedKey) -> float | None:
    return one.amounts[3] if one.amounts else state.suppressed(one)


def quota_shares(
    at: datetime, *, team: str, resource: str, unit: str, visibility: Visibility
) -> tuple[QuotaSum, list[QuotaShare]] | None:
    """Return a sum of `team_quotas` and what each quota adds; None where there is no such sum.

    The shares are for who sees the team; others see the sum alone. Queries as of `quota_rows`.
    """
    state = _quota_state(at, ALL_QUOTAS, visibility, every_cluster=True)
    wanted = (resource, unit)
    least = _least(
        one for one in state.there.keys if (one.meaning.resource, one.meaning.unit) == wanted
    )
    state.find_teams(least)
    own = [one for one in least if (state.team(one) or UNASSIGNED) == team]
    if not own:
        return None
    state.read_pods(own)
    total = _sum(state, team, resource, own)
    if not all(visibility.sees(span.team_id) for one in own for span in state.teams(one)):
        return total, []
    return total, [
        QuotaShare(
            *(one.cluster, one.namespace, one.name, one.key, one.hard, one.used),
            held=_held(state, one),
            suppressed=_suppressed(state, one),
        )
        for one in own
    ]


def quota_detail(at: datetime, ref: QuotaRef, *, visibility: Visibility) -> QuotaDetail | None:
    """Return one key with what its amounts are made of; None where there is none to be seen.

    Queries as of `quota_rows`, and three.
    """
    state = _quota_state(at, QuotaFilters(cluster=(ref.cluster,), key=ref), visibility)
    if not state.shown:
        return None
    state.read_pods(state.shown)
    (row,) = _rows(state, state.shown)
    one = state.shown[0]
    if one.amounts:
        return QuotaDetail(row, is_mean=True)
    allocated, pending = _pods_of(state, one) if one.namespace else (_spans_of(state, one), ())
    left = _QuotaRoom(state, [one]).each(one) if one.quota is not None else ()
    return QuotaDetail(
        row=row,
        allocated=tuple(allocated),
        pending=tuple(pending),
        blocked=tuple(
            QuotaUnits("", units, from_seconds(since)) for units, since in state.blocked(one)
        ),
        left=tuple(left),
        lent=tuple(_lent(one, visibility)),
        claims=one.meaning.counting is Counting.CLAIMS,
    )


def _lent(one: ObservedKey, visibility: Visibility) -> Iterator[QuotaUnits]:
    """Yield what members of a queue's cohort lend; other queues are not for everybody's eyes."""
    parts = () if one.limit is None else one.limit.lent
    others = 0.0
    for name, units in parts:
        # Names of other queues tell of teams that the reader may not see; their sum does not.
        if visibility.everything or name == one.name:
            yield QuotaUnits(name, units)
        else:
            others += units
    if others:
        yield QuotaUnits("others of the cohort", others)


def _pods_of(state: "_QuotaState", one: ObservedKey) -> tuple[list[QuotaUnits], list[QuotaUnits]]:
    """Return the pods that a ResourceQuota counts, bound ones and others."""
    if not one.meaning.effective:
        return [], []
    pods = pods_counted(
        state.at, one.cluster_id, one.namespace, one.meaning.resource, one.meaning.counting
    )
    matching = [
        pod
        for pod in pods
        if counts(one.scopes, ScopedRequest(priority_class=pod.priority_class)) is not False
    ]
    found = [(pod.bound, QuotaUnits(pod.name, pod.units, pod.since)) for pod in matching]
    return [pod for bound, pod in found if bound], [pod for bound, pod in found if not bound]


def _spans_of(state: "_QuotaState", one: ObservedKey) -> list[QuotaUnits]:
    """Return what pods hold of a queue."""
    spans = _held_of_queue(one, _queue_use(state, [one]))
    return [QuotaUnits("", units, from_seconds(since)) for units, since, _ in spans]


@dataclass(slots=True)
class _QuotaState:
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
        held = _at_most(one.used, fsum(asked.held for asked in matching))
        if one.meaning.counting is Counting.CLAIMS:
            # The ledger knows allocated claims; the others are what the quota counts beside.
            return held, None if one.used is None else max(0.0, one.used - held)
        left = None if one.used is None else one.used - held
        return held, _at_most(left, fsum(asked.pending for asked in matching))

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


def _at_most(used: float | None, units: float) -> float:
    """Return units as part of what a quota says is used: no part is more than the whole.

    The status of a quota and the pods are seen one after the other, and scopes that pods do not
    tell may leave some of them out.
    """
    return units if used is None else max(0.0, min(used, units))


def _quota_state(
    at: datetime, filters: QuotaFilters, visibility: Visibility, *, every_cluster: bool = False
) -> _QuotaState:
    history = TierHistory.load()
    clusters = () if every_cluster else filters.cluster
    there = present_quotas(at, named=named_by_tiers(history), clusters=clusters)
    state = _QuotaState(at, there, history.at(at.timestamp()), _queue_users(there))
    # Whose namespaces these are takes two queries, which a list of everything does not need.
    if filters.team or not visibility.everything:
        state.find_teams(there.keys)
    state.shown = [one for one in there.keys if _is_shown(state, one, filters, visibility)]
    return state


def _queue_users(there: PresentQuotas) -> dict[int, dict[tuple[str, str], set[str]]]:
    """Return which namespaces use which queues. One query for each cluster with Volcano."""
    return {
        pk: queue_users(
            there.local.get(pk, {}),
            observed_objects(pk, [ObservedKind.VOLCANO_POD_GROUP])
            if pk in there.with_volcano
            else (),
        )
        for pk in there.with_queues | there.with_volcano
    }


def _is_named(one: ObservedKey, filters: QuotaFilters) -> bool:
    if filters.key is not None and one.ref != filters.key:
        return False
    if filters.cluster and one.cluster not in filters.cluster:
        return False
    if filters.source and one.source not in filters.source:
        return False
    return not filters.namespace or one.namespace in filters.namespace


def _is_shown(
    state: _QuotaState, one: ObservedKey, filters: QuotaFilters, visibility: Visibility
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


def _rows(state: _QuotaState, page: Sequence[ObservedKey]) -> Iterable[QuotaRow]:
    use = _queue_use(state, page)
    effective = [one.ref for one in page if one.meaning.effective]
    sums = trends(state.at, effective) if effective else {}
    room = _QuotaRoom(state, page)
    for one in page:
        held, pending, suppressed = _amounts(state, one, use)
        trend = sums.get(one.ref)
        limit, quota = one.limit or _NO_LIMIT, one.quota
        observed = None if quota is None else quota.observed_hard.get(one.key)
        yield QuotaRow(
            cluster=one.cluster,
            namespace=one.namespace,
            source=one.source,
            name=one.name,
            key=one.key,
            resource=one.meaning.resource,
            tiers=state.tiers(one),
            team=state.team(one),
            unit=one.meaning.unit,
            hard=one.hard,
            used=one.used,
            held=held,
            pending=pending,
            suppressed=suppressed,
            saturation_ratio=one.saturation,
            effective=one.meaning.effective,
            exhausted_at=None
            if one.used is None
            else full_at(_known_at(state, one), hard=one.hard, used=one.used, sums=trend),
            scopes=tuple(scope_words(scope) for scope in one.scopes),
            finding=one.meaning.finding or (_BELOW_USE if _is_below_use(one) else ""),
            fix=one.meaning.fix,
            instead=one.meaning.instead,
            observed_hard=None if observed == one.hard else observed,
            headroom=room.left(one),
            reserved=limit.reserved,
            borrowed=limit.borrowed,
            borrowing_limit=limit.borrowing_limit,
            lending_limit=limit.lending_limit,
            # Without any limit; JSON has no infinity.
            ceiling=None if limit.ceiling == inf else limit.ceiling,
            guarantee=limit.guarantee,
            weight=limit.weight,
            cohort=limit.cohort,
            set_at=None if one.set_at is None else from_seconds(one.set_at),
            as_of=one.as_of,
            stale=one.stale,
            from_series=one.from_series,
            team_count=len(state.teams(one)),
        )


def _is_below_use(one: ObservedKey) -> bool:
    """Say whether a ResourceQuota allows less than is used: no admission lets use come to that."""
    return (
        one.source == QuotaSource.RESOURCE_QUOTA
        and one.meaning.effective
        and one.used is not None
        and one.used > one.hard
    )


def _known_at(state: _QuotaState, one: ObservedKey) -> datetime:
    # A trend goes on from when the amount was true, not from when it is read.
    late = one.stale or one.from_series
    return one.as_of if late and one.as_of is not None else state.at


def _amounts(
    state: _QuotaState, one: ObservedKey, use: dict[int, QueueUse]
) -> tuple[float | None, float | None, float | None]:
    """Return the held, pending and blocked amounts of a key."""
    if one.amounts:
        _, held, pending, suppressed = one.amounts
        return held, pending, suppressed
    if one.namespace:
        return (*state.requested(one), state.suppressed(one))
    held = _at_most(one.used, fsum(units for units, _, _ in _held_of_queue(one, use)))
    pending = None if one.used is None else max(0.0, one.used - held)
    return held, pending, state.suppressed(one)


def _held_of_queue(one: ObservedKey, use: dict[int, QueueUse]) -> Sequence[UnitSpan]:
    flavor = one.key.partition("/")[0] if one.source == QuotaSource.CLUSTER_QUEUE else ""
    return use[one.cluster_id].held.get((one.name, flavor, one.meaning.resource), ())


def _queue_use(state: _QuotaState, page: Sequence[ObservedKey]) -> dict[int, QueueUse]:
    """Return what pods hold of the queues of each cluster on the page. Two queries for each."""
    clusters = {one.cluster_id for one in page if one.limit is not None}
    if not clusters:
        return {}
    # For all clusters of the page at once: one by one each would scan the open pods.
    lives = pod_lives(state.at, clusters)
    found = {}
    for pk in clusters:
        seen = observed_objects(
            pk,
            (
                ObservedKind.KUEUE_WORKLOAD,
                ObservedKind.VOLCANO_POD_GROUP,
                ObservedKind.CLUSTER_QUEUE,
            ),
        )
        queues = {one.name: one.body for one in seen if isinstance(one.body, ClusterQueueSnapshot)}
        use = kueue_use(seen, queues, state.there.local.get(pk, {}), lives[pk])
        of_volcano = volcano_use(seen, lives[pk])
        use.held.update(of_volcano.held)
        found[pk] = use
    return found


class _QuotaRoom:
    """What all quotas of a namespace leave of a resource, worked out once."""

    def __init__(self, state: _QuotaState, page: Sequence[ObservedKey]) -> None:
        named = frozenset(one.meaning.resource for one in state.there.keys)
        places = {(one.cluster_id, one.namespace) for one in page}
        quotas: dict[tuple[int, str], dict[str, NamedQuota]] = defaultdict(dict)
        for one in state.there.keys:
            if one.quota is not None and (one.cluster_id, one.namespace) in places:
                limit = NamedQuota(one.name, one.quota.hard, one.quota.used, one.quota.scopes)
                quotas[one.cluster_id, one.namespace][one.name] = limit

        @cache
        def left(place: tuple[int, str], resource: str, counting: Counting) -> float | None:
            found = headroom(
                resource, ScopedRequest(), quotas[place].values(), named=named, counting=counting
            )
            return None if found is None else found.units

        self._left = left
        self._quotas, self._named = quotas, named

    def left(self, one: ObservedKey) -> float | None:
        if one.quota is None:
            return None
        return self._left(
            (one.cluster_id, one.namespace), one.meaning.resource, one.meaning.counting
        )

    def each(self, one: ObservedKey) -> Iterator[QuotaUnits]:
        """Yield what each quota of the namespace leaves of a key's resource."""
        meaning = one.meaning
        for limit in self._quotas[one.cluster_id, one.namespace].values():
            found = headroom(
                meaning.resource,
                ScopedRequest(),
                [limit],
                named=self._named,
                counting=meaning.counting,
            )
            if found is not None:
                yield QuotaUnits(f"{found.quota} {found.key}", found.units)

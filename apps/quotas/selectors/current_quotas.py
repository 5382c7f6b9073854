"""Quotas as they are: how much they allow, what is used of it, and when they will be full."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from math import fsum, inf

from apps.accounts.domain.rows import row_from
from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed.objects import ClusterQueueSnapshot, ObservedKind
from apps.clusters.domain.window import from_seconds
from apps.clusters.services import observed_in
from apps.quotas.domain.allocations import QueueUse, UnitSpan, kai_use, kueue_use, volcano_use
from apps.quotas.domain.keys import (
    Counting,
    NamedQuota,
    QuotaRef,
    QuotaSource,
    ScopedRequest,
    counts,
    headroom,
    scope_words,
)
from apps.quotas.domain.limits import QueueLimit
from apps.quotas.domain.saturation import full_at
from apps.quotas.selectors.demand import pod_lives, pods_counted
from apps.quotas.selectors.history import trends
from apps.quotas.selectors.observed_quotas import ObservedKey, key_page
from apps.quotas.selectors.quota_state import QuotaState, at_most, quota_state, suppressed_units
from apps.quotas.selectors.rows import (
    TIGHT_FROM,
    QuotaBand,
    QuotaDetail,
    QuotaFilters,
    QuotaOrder,
    QuotaRow,
    QuotaUnits,
)
from apps.usage.domain.usage_query import RowPage

ALL_QUOTAS = QuotaFilters()
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
    state = quota_state(at, filters, visibility)
    part = key_page(state.shown, order, cursor, page_size)
    state.read_pods(part.keys)
    return RowPage(rows=tuple(_rows(state, part.keys)), next_cursor=part.following)


def fullest_quota_rows(
    at: datetime, *, filters: QuotaFilters, visibility: Visibility, at_most: int
) -> list[QuotaRow]:
    """Return the first rows that `quota_rows` has where the fullest come first.

    Without when they will be full, which takes two queries less.
    """
    state = quota_state(at, filters, visibility)
    part = key_page(state.shown, QuotaOrder.FULLEST, None, at_most)
    if not part.keys:
        return []
    state.read_pods(part.keys)
    return list(_rows(state, part.keys, with_trend=False))


def every_quota_row(
    at: datetime, *, filters: QuotaFilters, visibility: Visibility
) -> list[QuotaRow]:
    """Return all rows of which `quota_rows` returns pages, in no order. Queries as of that."""
    state = quota_state(at, filters, visibility)
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

    def __init__(self, state: QuotaState) -> None:
        self._state = state
        blocked = {one.ref: suppressed_units(state, one) or 0.0 for one in state.shown}

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
    state = quota_state(at, filters, visibility)
    state.read_blocked()
    return QuotasNow(state)


def quota_detail(at: datetime, ref: QuotaRef, *, visibility: Visibility) -> QuotaDetail | None:
    """Return one key with what its amounts are made of; None where there is none to be seen.

    Queries as of `quota_rows`, and three.
    """
    state = quota_state(at, QuotaFilters(cluster=(ref.cluster,), key=ref), visibility)
    if not state.shown:
        return None
    state.read_pods(state.shown)
    (row,) = _rows(state, state.shown)
    one = state.shown[0]
    if one.amounts:
        # Means of an hour are made of no pods that could be listed.
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


def _pods_of(state: QuotaState, one: ObservedKey) -> tuple[list[QuotaUnits], list[QuotaUnits]]:
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


def _spans_of(state: QuotaState, one: ObservedKey) -> list[QuotaUnits]:
    """Return what pods hold of a queue."""
    spans = _held_of_queue(one, _queue_use(state, [one]))
    return [QuotaUnits("", units, from_seconds(since)) for units, since, _ in spans]


def _rows(
    state: QuotaState, page: Sequence[ObservedKey], *, with_trend: bool = True
) -> Iterable[QuotaRow]:
    use = _queue_use(state, page)
    effective = [one.ref for one in page if one.meaning.effective and with_trend]
    sums = trends(state.at, effective) if effective else {}
    room = _QuotaRoom(state, page)
    for one in page:
        held, pending, suppressed = _amounts(state, one, use)
        trend = sums.get(one.ref)
        limit, quota = one.limit or _NO_LIMIT, one.quota
        observed = None if quota is None else quota.observed_hard.get(one.key)
        yield row_from(
            QuotaRow,
            one,
            resource=one.meaning.resource,
            tiers=state.tiers(one),
            team=state.team(one),
            unit=state.unit(one),
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


def _known_at(state: QuotaState, one: ObservedKey) -> datetime:
    # A trend goes on from when the amount was true, not from when it is read.
    late = one.stale or one.from_series
    return one.as_of if late and one.as_of is not None else state.at


def _amounts(
    state: QuotaState, one: ObservedKey, use: dict[int, QueueUse]
) -> tuple[float | None, float | None, float | None]:
    """Return the held, pending and blocked amounts of a key."""
    if one.amounts:
        _, held, pending, suppressed = one.amounts
        return held, pending, suppressed
    if one.namespace:
        return (*state.requested(one), state.suppressed(one))
    held = at_most(one.used, fsum(units for units, _, _ in _held_of_queue(one, use)))
    pending = None if one.used is None else max(0.0, one.used - held)
    return held, pending, state.suppressed(one)


def _held_of_queue(one: ObservedKey, use: dict[int, QueueUse]) -> Sequence[UnitSpan]:
    flavor = one.key.partition("/")[0] if one.source == QuotaSource.CLUSTER_QUEUE else ""
    return use[one.cluster_id].held.get((one.name, flavor, one.meaning.resource), ())


_IN_QUEUES = (
    ObservedKind.KUEUE_WORKLOAD,
    ObservedKind.VOLCANO_POD_GROUP,
    ObservedKind.CLUSTER_QUEUE,
    ObservedKind.KAI_QUEUE,
)


def _queue_use(state: QuotaState, page: Sequence[ObservedKey]) -> dict[int, QueueUse]:
    """Return what pods hold of the queues of each cluster on the page. Three queries."""
    clusters = {one.cluster_id for one in page if one.limit is not None}
    if not clusters:
        return {}
    # For all clusters of the page at once: one by one each would scan the open pods.
    lives = pod_lives(state.at, clusters)
    found = {}
    for pk, seen in observed_in(clusters, _IN_QUEUES).items():
        queues = {one.name: one.body for one in seen if isinstance(one.body, ClusterQueueSnapshot)}
        use = kueue_use(seen, queues, state.there.local.get(pk, {}), lives[pk])
        for other in (volcano_use(seen, lives[pk]), kai_use(seen, lives[pk])):
            use.held.update(other.held)
        found[pk] = use
    return found


class _QuotaRoom:
    """What all quotas of a namespace leave of a resource, worked out once."""

    def __init__(self, state: QuotaState, page: Sequence[ObservedKey]) -> None:
        # Every key at hand is of GPUs: together they name what the catalog would.
        named = frozenset(one.meaning.resource for one in state.there.keys)
        places = {(one.cluster_id, one.namespace) for one in page}
        quotas: dict[tuple[int, str], dict[str, NamedQuota]] = defaultdict(dict)
        for one in state.there.keys:
            place = (one.cluster_id, one.namespace)
            if one.quota is not None and place in places:
                # By its keys and not as it was observed: metrics may tell of later amounts.
                limit = quotas[place].get(one.name) or NamedQuota(one.name, {}, {}, one.scopes)
                hard = {**limit.hard, one.key: one.hard}
                used = {**limit.used, one.key: one.used or 0.0}
                quotas[place][one.name] = replace(limit, hard=hard, used=used)

        # Worked out once for each: of a long page many keys are of one namespace.
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

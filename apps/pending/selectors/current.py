"""Work pending at a moment: item by item, and in sums."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet, Sum

from apps.accounts.domain.rows import row_from
from apps.accounts.permissions import Visibility
from apps.clusters.domain.tiers import UNDETERMINED
from apps.clusters.models import ObservedPerson
from apps.pending.domain.diagnosis import PENDING_COUNTS, Counts, Suggestion, findings_of
from apps.pending.domain.queues.unrecorded import CLUSTER_QUEUE
from apps.pending.domain.wording import held_by
from apps.pending.domain.workload_groups import admits_of, queue_place
from apps.pending.models import Episode
from apps.pending.selectors.freshness import Freshness
from apps.pending.selectors.rows import (
    PendingFilters,
    PendingGrouping,
    PendingOrder,
    PendingPage,
    PendingRow,
    PendingSum,
    SuggestionRow,
)
from apps.pending.selectors.scope import ALL_PENDING, NamespaceContext, PendingScope
from apps.usage.domain.usage_query import RowPage, cursor_time, decode_cursor, encode_cursor
from apps.usage.selectors import CursorRefused

_KIND = "pending"
_FIRST_PAGE = PendingPage()
_SUMMED = (*PENDING_COUNTS, Counts.STARTING.value)
_COVERED = ("Workload", "PodGroup", "ResourceClaim")
"""Kinds whose pods count all that these do not count themselves."""
COLUMNS = (
    *("pk", "cluster_id", "cluster__name", "workload__namespace_id", "kind", "name", "uid"),
    *("workload__namespace__name", "workload__kind", "workload__name", "tier__name", "resource"),
    *("units", "gpu_equivalents", "since", "bound_at", "until", "outcome", "again", "cause"),
    *("detail", "message", "findings", "counts", "counted", "queue", "priority"),
)
_GROUPS = {
    PendingGrouping.CAUSE: "cause",
    PendingGrouping.TIER: "tier__name",
    PendingGrouping.TEAM: "workload__namespace_id",
    PendingGrouping.NAMESPACE: "workload__namespace_id",
    PendingGrouping.CLUSTER: "cluster__name",
}


def pending_at(at: datetime) -> QuerySet[Episode]:
    """Return the episodes that last at `at`; a queue's demand of a day is no such episode."""
    lasting = Episode.objects.filter(Q(until__isnull=True) | Q(until__gt=at), since__lte=at)
    return lasting.exclude(kind=CLUSTER_QUEUE)


def one_row_each(at: datetime, filters: PendingFilters) -> Q:
    """Return the condition of having a row: pod, Workload and controller share one.

    An item that counts none of its GPUs has no row where another item counts them: a Workload,
    PodGroup or claim with pods, or a controller with pending pods. A filter on a kind shows all
    items of that kind.
    """
    if filters.kind:
        return Q()
    counted = pending_at(at).filter(workload_id=OuterRef("workload_id"), counts__in=_SUMMED)
    covered = Q(kind__in=_COVERED) | Q(Exists(counted))
    return ~Q(covered, counts=Counts.NOTHING.value, gpu_equivalents__gt=0)


def pending_now(
    at: datetime,
    *,
    filters: PendingFilters = ALL_PENDING,
    visibility: Visibility,
    page: PendingPage = _FIRST_PAGE,
    context: NamespaceContext | None = None,
) -> RowPage[PendingRow]:
    """Return the items pending at `at`, longest pending or largest request first.

    One row for a pod, its Workload and its controller, see `one_row_each`. Only of teams that
    the reader sees. Causes are as last seen. Five queries at most, one
    with a context that knows how fresh it is. Raises CursorRefused.
    """
    scope = PendingScope(at, filters, visibility, context)
    order, kind = page.order, f"{_KIND}-{page.order.value}"
    rows = pending_at(at).filter(scope.condition(), one_row_each(at, filters))
    if page.cursor is not None:
        rows = rows.filter(_after(kind, page.cursor, order))
    first = "since" if order is PendingOrder.LONGEST else "-gpu_equivalents"
    # One more than a page, to know whether another follows.
    found = list(rows.order_by(first, "pk").values_list(*COLUMNS, named=True)[: page.size + 1])
    shown = found[: page.size]
    last = shown[-1] if len(found) > page.size else None
    return RowPage(
        rows=tuple(pending_row(row, at, scope) for row in shown),
        next_cursor=None if last is None else encode_cursor(kind, _key(last, order)),
    )


def _key(row: Any, order: PendingOrder) -> tuple[str, int]:
    first = row.since.isoformat() if order is PendingOrder.LONGEST else repr(row.gpu_equivalents)
    return (first, row.pk)


def _after(kind: str, cursor: str, order: PendingOrder) -> Q:
    # The cursor holds the order's value: rows that end meanwhile shift no page.
    text, pk = decode_cursor(kind, cursor, (str, int))
    if order is PendingOrder.LONGEST:
        at = cursor_time(text)
        return Q(since__gt=at) | Q(since=at, pk__gt=pk)
    try:
        most = float(text)
    except ValueError as error:
        raise CursorRefused("this cursor does not belong to this list") from error
    return Q(gpu_equivalents__lt=most) | Q(gpu_equivalents=most, pk__gt=pk)


def place_columns(row: Any, scope: PendingScope) -> dict[str, Any]:
    """Return which item an episode is, where it is and whose."""
    return {
        "id": row.pk,
        "cluster": row.cluster__name,
        "namespace": row.workload__namespace__name,
        "team": scope.team_of(row.workload__namespace_id),
        "workload": f"{row.workload__kind}/{row.workload__name}",
    }


def pending_row(row: Any, at: datetime, scope: PendingScope) -> PendingRow:
    """Return an episode's columns (COLUMNS) as a row at `at`."""
    # A cluster may have left the catalog since its row was read.
    known = scope.freshness.get(row.cluster_id) or Freshness(None, stale=True)
    found = findings_of(row.findings)
    suggestions = tuple(_suggestion(one, row.cluster__name, scope) for one in found.suggestions)
    is_open = row.until is None or row.until > at
    return row_from(
        PendingRow,
        row,
        **place_columns(row, scope),
        tier=row.tier__name or UNDETERMINED,
        wait_seconds=max(0.0, ((at if is_open else row.until) - row.since).total_seconds()),
        explanation=found.explanation,
        node_reasons=found.node_reasons,
        context=found.context,
        suggestion=suggestions[0].text if suggestions else None,
        suggestions=suggestions,
        blockers=found.blockers,
        place=queue_place(found),
        stale=is_open and known.is_stale(row.kind),
        as_of=known.until(row.kind),
    )


def suggestion_rows(
    suggestions: Iterable[Suggestion], cluster: str, *, at: datetime, visibility: Visibility
) -> list[SuggestionRow]:
    """Return suggestions of a diagnosis as a reader may have them. Three queries at most."""
    scope = PendingScope(at, ALL_PENDING, visibility)
    return [_suggestion(one, cluster, scope) for one in suggestions]


def _suggestion(given: Suggestion, cluster: str, scope: PendingScope) -> SuggestionRow:
    """Return a suggestion as the reader may have it: holders are pods, of other teams too."""
    change = dict(given.change)
    holders = change.pop("holders", ())
    seen = [one for one in holders if _is_seen(one, cluster, scope)]
    text = held_by(given.text, seen, len(holders))
    change |= {"holders": seen} if seen else {}
    return SuggestionRow(given.action.value, text, change, admits_of(given))


def _is_seen(holder: str, cluster: str, scope: PendingScope) -> bool:
    if scope.visibility.everything:
        return True
    # Holders are stored as namespace/name, of the cluster of the item.
    return (cluster, holder.partition("/")[0]) in scope.seen_names


def unstarted_of(
    people: Collection[str], *, visibility: Visibility, now: datetime
) -> frozenset[int]:
    """Return the ids of pending workloads of persons that have no pod yet, as suspended Jobs.

    Of teams that the reader sees. Four queries at most; none without persons.
    """
    if not people:
        return frozenset()
    scope = PendingScope(now, PendingFilters(), visibility)
    named = ObservedPerson.objects.filter(person__in=people).values("object__uid")
    rows = pending_at(now).filter(scope.condition(), uid__in=named)
    return frozenset(rows.order_by().values_list("workload_id", flat=True))


def pending_sums(
    at: datetime,
    *,
    by: PendingGrouping,
    visibility: Visibility,
    filters: PendingFilters = ALL_PENDING,
    context: NamespaceContext | None = None,
) -> list[PendingSum]:
    """Return GPU-equivalents that are pending, blocked or starting at `at`, the most first.

    By cause or namespace, of teams that the reader sees: as many items as `pending_now` lists. By
    tier, team or cluster the GPU sums of all teams, which every user may see. Four queries at most,
    one with a context. Raises ValueError for `by` day.
    """
    if by not in _GROUPS:
        raise ValueError(f"work pending at one moment cannot be summed by {by}")
    scope = PendingScope(at, filters, visibility, context)
    # Only sums by tier, team and cluster are open to every user.
    details = by in (PendingGrouping.CAUSE, PendingGrouping.NAMESPACE) or bool(filters.namespace)
    rows = pending_at(at).filter(scope.condition(details=details), one_row_each(at, filters))
    column = _GROUPS[by]
    sums = rows.order_by().values(column, "counts")
    found = sums.annotate(gpus=Sum("counted"), items=Count("pk"), oldest=Min("since"))
    named = ((_group_name(by, row[column], scope), row) for row in found)
    return sorted(_joined(named), key=lambda one: (-(one.pending + one.suppressed), one.name))


def _group_name(by: PendingGrouping, value: Any, scope: PendingScope) -> str:
    if by is PendingGrouping.TEAM:
        return scope.team_of(value)
    if by is PendingGrouping.NAMESPACE:
        owned = scope.namespaces.get(value)
        return "" if owned is None else f"{owned.cluster}/{owned.name}"
    return str(value or UNDETERMINED) if by is PendingGrouping.TIER else str(value)


def _joined(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[PendingSum]:
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for name, row in rows:
        groups[name].append(row)
    return [_sum(name, own) for name, own in groups.items()]


def _sum(name: str, rows: Sequence[Mapping[str, Any]]) -> PendingSum:
    gpus = {
        # Exact, whatever the order in which a database returns its groups.
        counts: math.fsum(row["gpus"] for row in rows if row["counts"] == counts)
        for counts in _SUMMED
    }
    return PendingSum(
        name=name,
        pending=gpus[Counts.PENDING.value],
        suppressed=gpus[Counts.SUPPRESSED.value],
        starting=gpus[Counts.STARTING.value],
        items=sum(row["items"] for row in rows),
        oldest_at=min(row["oldest"] for row in rows),
    )

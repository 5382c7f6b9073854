"""Finding teams, tiers, namespaces, workloads and pods by their names."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from django.db.models import Count, Exists, Max, Model, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Length, Lower, StrIndex
from msgspec import Struct

from apps.accounts.models import Team
from apps.accounts.permissions import Visibility
from apps.clusters.domain.observed import objects
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Namespace, Pod, Tier, Workload
from apps.clusters.selectors import TeamSpan, team_spans
from apps.usage.domain.usage_query import Filters
from apps.usage.selectors.pods import PodScope

# Pods are many: by name they are looked for among those that lived recently.
POD_DAYS = 31
_CACHED = timedelta(days=400)  # how long the pod ledger goes back
_INSTANT = timedelta(seconds=1)
_M = TypeVar("_M", bound=Model)
_Spans = Mapping[str, Sequence[TeamSpan]]

_MOST = 10


class ResultKind(StrEnum):
    TEAM = "team"
    TIER = "tier"
    NAMESPACE = "namespace"
    WORKLOAD = "workload"
    POD = "pod"


class SearchResult(Struct, frozen=True):
    """One thing of that name.

    `team` is the last team it belonged to, of those that the reader sees. `alive` says that a pod
    of it holds or requests a GPU now, `last_seen_at` when the last one ended; None where that is
    not known or nothing has ended. A workload has its `owner_kind`, a pod its `uid`.
    """

    kind: ResultKind
    name: str
    cluster: str = ""
    namespace: str = ""
    owner_kind: str = ""
    uid: str = ""
    team: str | None = None
    alive: bool = False
    last_seen_at: datetime | None = None


def search_by_name(
    text: str, *, visibility: Visibility, now: datetime, limit: int
) -> list[SearchResult]:
    """Return at most `limit` of each kind whose name holds `text`, whatever its case.

    In the order of Kind; within one, names that begin with it first, then the shorter ones, pods
    newest first. `A/B` finds workloads and pods named like B in namespaces named like A, and
    workloads of the kind A. Who does not see a team in detail finds its name only. A pod is found
    by its UID too, and by name while it lived in the last POD_DAYS days. Thirteen queries at most.
    """
    wanted = _SearchText(text)
    # Over all that is kept: a name is found for a team that had it at any time.
    scope = PodScope(Window(now - _CACHED, now + _INSTANT), Filters(), visibility)
    seen = scope.condition()
    namespaces = _namespaces(wanted, scope, seen, limit)
    workloads = _workloads(wanted, scope, seen, limit)
    pods = _pods(wanted, seen, now, limit)
    names = {row.name for row in namespaces} | {row.namespace__name for row in workloads}
    spans = team_spans(scope.window, names | {row.workload__namespace__name for row in pods})
    return [
        *(
            SearchResult(ResultKind.TEAM, row.name, team=row.name)
            for row in _active(Team, wanted, limit)
        ),
        *(SearchResult(ResultKind.TIER, row.name) for row in _active(Tier, wanted, limit)),
        *_found_namespaces(namespaces, scope, spans, seen),
        *_found_workloads(workloads, scope, spans, seen),
        *_found_pods(pods, scope, spans),
    ]


class _SearchText:
    """What was asked for, in small letters; `before` is what stands before a last slash."""

    def __init__(self, text: str) -> None:
        self.whole = text.strip().lower()
        self.before, _, self.last = self.whole.rpartition("/")

    def named(self, rows: QuerySet[_M], *, whole: bool = True) -> QuerySet[_M]:
        """Return the rows whose name holds the text (its last part), best first."""
        text = self.whole if whole else self.last
        # The place of the text in the name: 1 is at its beginning, which sorts first.
        at = StrIndex(Lower("name"), Value(text))
        # The mapper escapes what LIKE takes for a wildcard.
        return rows.filter(name__icontains=text).order_by(at, Length("name"), "name", "pk")


def _active(model: type[_M], wanted: _SearchText, limit: int) -> Sequence[Any]:
    rows = wanted.named(model._default_manager.filter(active=True))
    return list(rows.values_list("name", named=True)[:limit])


def _namespaces(wanted: _SearchText, scope: PodScope, seen: Q, limit: int) -> Sequence[Any]:
    rows = wanted.named(Namespace.objects.filter(cluster__active=True).exclude(name=""))
    if scope.teams is not None:
        rows = rows.filter(Exists(Pod.objects.filter(seen, workload__namespace=OuterRef("pk"))))
    return list(rows.values_list("pk", "name", "cluster__name", named=True)[:limit])


def _workloads(wanted: _SearchText, scope: PodScope, seen: Q, limit: int) -> Sequence[Any]:
    active = Workload.objects.filter(namespace__cluster__active=True)
    rows = active.exclude(kind=objects.ObservedKind.CLUSTER_QUEUE.short)
    if wanted.before:
        space = Q(namespace__name__icontains=wanted.before)
        rows = rows.filter(space | Q(kind__iexact=wanted.before))
    if scope.teams is not None:
        rows = rows.filter(Exists(Pod.objects.filter(seen, workload=OuterRef("pk"))))
    columns = ("pk", "name", "kind", "namespace__name", "namespace__cluster__name")
    return list(wanted.named(rows, whole=False).values_list(*columns, named=True)[:limit])


def _pods(wanted: _SearchText, seen: Q, now: datetime, limit: int) -> Sequence[Any]:
    lately = Q(ended_at__isnull=True) | Q(ended_at__gte=now - timedelta(days=POD_DAYS))
    named = lately & Q(name__icontains=wanted.last)
    if wanted.before:
        named &= Q(workload__namespace__name__icontains=wanted.before)
    rows = Pod.objects.filter(seen, cluster__active=True)
    at = StrIndex(Lower("name"), Value(wanted.last))
    order = "at", "-created_at", "pk"
    # For itself, by the index of UIDs: joined by OR to the names it has every pod ever read.
    clusters = Cluster.objects.filter(active=True).order_by()
    of_uid = rows.filter(cluster__in=clusters.values("pk"), uid=wanted.whole).order_by()
    uids = list(of_uid.values_list("pk", flat=True))
    # Names are joined to those found alone: how many hold a text, no database can guess.
    found = rows.filter(named).annotate(at=at).order_by(*order).values("pk")[:limit]
    columns = (
        *("name", "uid", "cluster__name", "workload__namespace__name"),
        *("created_at", "ended_at"),
    )
    those: Any = [*uids, *found.values_list("pk", flat=True)] if uids else found
    shown = Pod.objects.filter(pk__in=those).annotate(at=at).order_by(*order)
    return list(shown.values_list(*columns, named=True)[:limit])


def _ends(path: str, ids: Sequence[int], seen: Q) -> dict[int, dict[str, Any]]:
    """Return by id of what `path` leads to `last_seen_at` and `alive` of a SearchResult."""
    if not ids:
        return {}
    pods = Pod.objects.filter(seen, **{f"{path}__in": ids}).order_by()
    rows = pods.values(path).annotate(
        last=Max("ended_at"), pods=Count("pk"), over=Count("ended_at")
    )
    return {
        row[path]: {"last_seen_at": row["last"], "alive": row["pods"] > row["over"]} for row in rows
    }


def _last_team(spans: Sequence[TeamSpan], scope: PodScope) -> str | None:
    for span in reversed(spans):
        if scope.teams is None or span.team_id in scope.teams:
            return span.team
    return None


def _found_namespaces(
    rows: Sequence[Any], scope: PodScope, spans: _Spans, seen: Q
) -> list[SearchResult]:
    ends = _ends("workload__namespace", [row.pk for row in rows], seen)
    return [
        SearchResult(
            ResultKind.NAMESPACE,
            row.name,
            cluster=row.cluster__name,
            team=_last_team(spans[row.name], scope),
            **ends.get(row.pk, {}),
        )
        for row in rows
    ]


def _found_workloads(
    rows: Sequence[Any], scope: PodScope, spans: _Spans, seen: Q
) -> list[SearchResult]:
    ends = _ends("workload", [row.pk for row in rows], seen)
    return [
        SearchResult(
            ResultKind.WORKLOAD,
            row.name,
            cluster=row.namespace__cluster__name,
            namespace=row.namespace__name,
            owner_kind=row.kind,
            team=_last_team(spans[row.namespace__name], scope),
            **ends.get(row.pk, {}),
        )
        for row in rows
    ]


def _found_pods(rows: Sequence[Any], scope: PodScope, spans: _Spans) -> list[SearchResult]:
    return [
        SearchResult(
            ResultKind.POD,
            row.name,
            cluster=row.cluster__name,
            namespace=row.workload__namespace__name,
            uid=row.uid,
            team=scope.team_of(spans[row.workload__namespace__name], row),
            alive=row.ended_at is None,
            last_seen_at=row.ended_at,
        )
        for row in rows
    ]


class PodMatch(Struct, frozen=True):
    """A pod of the ledger; the times are None where it did not happen yet."""

    cluster: str
    namespace: str
    name: str
    created_at: datetime
    bound_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None


def pods_named(
    namespace: str, name: str, *, at: datetime, visibility: Visibility, cluster: str = ""
) -> list[PodMatch]:
    """Return the pods of this name, or of a controller of this name, newest first, at most 10.

    Only of namespaces whose team at `at` the reader sees. Three queries.
    """
    (span, *_) = team_spans(Window(at, at + timedelta(seconds=1)), {namespace})[namespace]
    if not visibility.sees(span.team_id):
        return []
    rows = Pod.objects.filter(
        Q(name=name) | Q(workload__name=name), workload__namespace__name=namespace
    )
    if cluster:
        rows = rows.filter(cluster__name=cluster)
    columns = ("cluster__name", "workload__namespace__name", "name")
    times = ("created_at", "bound_at", "started_at", "ended_at")
    return [
        PodMatch(*row)
        for row in rows.order_by("-created_at", "pk").values_list(*columns, *times)[:_MOST]
    ]

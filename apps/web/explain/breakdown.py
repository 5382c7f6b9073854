"""Explain a ledger figure: the rows that it sums, down to the hours of one pod."""

from collections.abc import Iterable, Sequence

from django.http import Http404, HttpRequest, HttpResponseBase
from msgspec import Struct

from apps.clusters import selectors as clusters
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.columns import collected_amounts
from apps.usage.domain.usage_query import Grouping, PodRow, TimeStep, UsageRow
from apps.usage.selectors import HOURLY_DAYS, PodPart, PodParts, pod_hours, pod_parts
from apps.web.components import tables
from apps.web.components.formats import Format, Value
from apps.web.components.listings import GROUP_LABELS
from apps.web.components.page_query import DAY, href, pages_from, path_of, with_query
from apps.web.components.tables import Column, Table, TableRow
from apps.web.components.window_picker import PLACE_KEYS, remaining_query
from apps.web.explain.explanation import explanation, instants_of, lasting_href, sources_of
from apps.web.explain.figures import (
    FigureScope,
    LedgerFigure,
    figure_named,
    scope_from,
    several,
    terms_of,
)
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
    usage_of,
)

_NODES = (Grouping.CLUSTER, Grouping.NODE)
_MODELS = (Grouping.CLUSTER, Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
_SHARE = Column("share_ratio", "Share", Format.RATIO, "%", "of the number that is explained")
_EXPLAINED_BY = frozenset(g for g in Grouping if g is not Grouping.NODE)
_TITLES = {
    (Grouping.TIER,): "By tier",
    (Grouping.TEAM,): "By team",
    (Grouping.CLUSTER, Grouping.NAMESPACE): "By namespace",
    (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD): "By workload",
    _MODELS: "By GPU model and capacity type",
    _NODES: "The nodes it sums",
}


class SplitFigure(Struct, frozen=True):
    """The figure that is split: its amounts and what it is of."""

    figure: LedgerFigure
    amounts: Amounts
    scope: FigureScope
    reading: QuerySession

    def columns(self, *, with_capacity: bool) -> list[Column]:
        """Return the columns of a table of its parts: itself, its share, and its inputs."""
        inputs = [f for f in terms_of(self.figure) if f.key != self.figure.key]
        shares = [] if self.figure.is_ratio else [_SHARE]
        return [
            _column(self.figure),
            *shares,
            *(_column(f) for f in inputs if with_capacity or not f.of_capacity),
        ]

    def values(self, amounts: Amounts) -> dict[str, Value]:
        """Return the values of a part for these columns."""
        figures = (self.figure, *terms_of(self.figure))
        whole = self.figure.value(self.amounts)
        part = self.figure.value(amounts)
        share = part / whole if part is not None and whole else None
        return {**{f.key: f.value(amounts) for f in figures}, _SHARE.key: share}


def _column(figure: LedgerFigure) -> Column:
    if figure.is_ratio:
        return Column(figure.key, figure.label, Format.RATIO, "%", figure.meaning)
    return Column(figure.key, figure.label, Format.GPU_HOURS, "GPU-h", figure.meaning)


# ---------------------------------------------------------------- groups and nodes


def group_tables(whole: SplitFigure, *, details: bool) -> list[Table]:
    """Return the parts by the next narrower group, and nodes of a capacity for who sees them.

    `details`: whether the reader sees the namespaces of the scope's team.
    """
    # A pod has no narrower group: its hours are its parts.
    if whole.scope["pod"]:
        return []
    levels = [_next_level(whole, details=details)]
    short = whole.reading.window.end - whole.reading.window.start <= HOURLY_DAYS * DAY
    # Nodes are of hourly facts alone, and who sees some teams sees no nodes.
    if whole.figure.of_capacity and whole.reading.visibility.everything and short:
        levels.append(_NODES)
    return [_groups(level, whole) for level in levels if level]


def _next_level(whole: SplitFigure, *, details: bool) -> tuple[Grouping, ...]:
    scope = whole.scope
    if not scope["tier"]:
        return (Grouping.TIER,)
    if whole.figure.of_capacity:
        return () if scope["gpu_model"] else _MODELS
    if not (scope["team"] or scope.is_detailed):
        return (Grouping.TEAM,)
    if not details:
        return () if scope["gpu_model"] else _MODELS
    if not scope["namespace"]:
        return (Grouping.CLUSTER, Grouping.NAMESPACE)
    if not scope["workload"]:
        return (Grouping.CLUSTER, Grouping.NAMESPACE, Grouping.WORKLOAD)
    return ()


def _groups(level: tuple[Grouping, ...], whole: SplitFigure) -> Table:
    reading, figure = whole.reading, whole.figure
    rows = usage_of(
        reading, by=level, interval=TimeStep.TOTAL, narrowed=whole.scope.filters(reading)
    )
    # Rows without either add nothing to any figure of the ledger.
    some = [row for row in rows if row.amounts.allocated or row.amounts.capacity]
    ordered = sorted(some, key=lambda row: -(figure.value(row.amounts) or 0))
    total = tables.summed(ordered)
    return Table(
        id="nodes" if level == _NODES else "groups",
        title=_TITLES[level],
        columns=[
            *(Column(g.value, GROUP_LABELS[g]) for g in level),
            *whole.columns(with_capacity=whole.scope.has_capacity),
        ],
        rows=[_group_line(row, level, whole) for row in ordered],
        zone=reading.choice.zone,
        empty="No part has data in this window.",
        total=TableRow({**whole.values(total), level[0].value: "Total"}) if len(some) > 1 else None,
    )


def _group_line(row: UsageRow, level: Sequence[Grouping], whole: SplitFigure) -> TableRow:
    explained = None
    # A node is no scope of this page: there is no explanation to lead to.
    if set(level) <= _EXPLAINED_BY:
        names = {**whole.scope.names, **{g.value: row.groups[g] for g in level}}
        explained = tables.Explained(whole.reading.query, names)
    return TableRow({**whole.values(row.amounts), **row.groups}, explained=explained)


# ---------------------------------------------------------------- pods


def pods_in(whole: SplitFigure) -> PodParts:
    """Return the pods that a figure sums."""
    return pod_parts(
        whole.reading.window,
        fields=whole.figure.facts,
        filters=whole.scope.filters(whole.reading),
        visibility=whole.reading.visibility,
    )


def pods_of(request: HttpRequest, whole: SplitFigure, pods: PodParts) -> Table:
    """Return the pods that a figure sums, largest part first, a page at a time."""
    pages = pages_from(request.GET, count=pods.count)
    table = Table(
        id="pods",
        title="Pods",
        columns=[
            Column("pod", "Pod"),
            *whole.columns(with_capacity=False),  # before the names: next to the pod on a phone
            Column("workload", "Workload"),
            Column("namespace", "Namespace"),
            Column("cluster", "Cluster"),
        ],
        rows=_pod_rows(pods.named(pages.part), whole),
        zone=whole.reading.choice.zone,
        empty="No pod that you may see held a GPU here in hours that are kept by the pod.",
        total=TableRow({**whole.values(pods.total), "pod": "Total"}) if pods.count > 1 else None,
        every=lambda: _pod_rows(pods.named(slice(0, None)), whole),
    )
    query = remaining_query(request, drop=PLACE_KEYS)
    return tables.paged(table, path_of(request), query, pages)


def _run_by(request: PageRequest, scope: FigureScope, reading: QuerySession) -> list[str]:
    """Return who is behind the one workload or pod that a figure is of; else no user."""
    # Of a team or a tier it would be a list of persons, which the tab of a lead has.
    if not (scope["pod"] or scope["workload"]):
        return []
    return usage.run_by(
        request.user,
        reading.window,
        filters=scope.filters(reading),
        visibility=reading.visibility,
        uid=scope["pod"],
    )


def _pod_rows(parts: Iterable[PodPart], whole: SplitFigure) -> list[TableRow]:
    query = whole.reading.query
    return [
        TableRow(
            {
                **whole.values(part.amounts),
                **{key: getattr(part, key) for key in ("pod", "cluster", "namespace", "workload")},
            },
            {"pod": href("pod", query, cluster=part.cluster, uid=part.uid)},
            explained=tables.Explained(query, {"cluster": part.cluster, "pod": part.uid}),
        )
        for part in parts
    ]


def hours_of(whole: SplitFigure) -> Table:
    """Return the hours that a pod's figure sums, oldest first."""
    reading = whole.reading
    hours = pod_hours(
        whole.scope["cluster"],
        whole.scope["pod"],
        window=reading.window,
        visibility=reading.visibility,
    )
    return Table(
        id="hours",
        title="Hours",
        columns=[Column("hour", "Hour", Format.HOUR), *whole.columns(with_capacity=False)],
        rows=[TableRow({**whole.values(amounts), "hour": hour}) for hour, amounts in hours],
        zone=reading.choice.zone,
        empty="No data in this window.",
        total=TableRow({**whole.values(whole.amounts), "hour": "Total"})
        if len(hours) > 1
        else None,
    )


# ---------------------------------------------------------------- the sum of the pods


class PodReconciliation(Struct, frozen=True):
    """How the pods listed add up to the number: a table, and whether they alone are all of it."""

    table: Table
    pods_are_all: bool


def reconciled(whole: SplitFigure, pods: PodParts) -> PodReconciliation:
    """Return what the pods leave of the number, and why: it all adds up to the last digit."""
    figures = [
        f
        for f in (terms_of(whole.figure) if whole.figure.is_ratio else [whole.figure])
        if not f.of_capacity
    ]
    seen = _seen(whole)
    lines = [
        (f"Pods listed below: {pods.count:,}", pods.total, None),
        ("Pods of teams of which you see sums only", whole.amounts, seen),
        ("Hours whose pods are no longer kept one by one", seen, pods.total),
    ]
    rows = [
        TableRow({"part": text, **{f.key: (f.value(of) or 0) - _less(f, less) for f in figures}})
        for text, of, less in lines
    ]
    # A line of noughts would raise the question that this table answers.
    shown = [rows[0], *(row for row in rows[1:] if any(row.values[f.key] for f in figures))]
    total = {f.key: f.value(whole.amounts) for f in figures}
    table = Table(
        id="sum",
        title="Breakdown",
        columns=[Column("part", "Part"), *(_column(f) for f in figures)],
        rows=shown,
        zone=whole.reading.choice.zone,
        empty="",
        total=TableRow({"part": "The number above, and its inputs", **total}),
        ordered=True,
    )
    return PodReconciliation(table, pods_are_all=len(shown) == 1)


def _less(figure: LedgerFigure, amounts: Amounts | None) -> int | float:
    return (figure.value(amounts) or 0) if amounts else 0


def _seen(whole: SplitFigure) -> Amounts:
    """Return what of the number is of teams that the reader sees in detail."""
    reading = whole.reading
    # Who reads something finer than a team sees its pods, or would not be here.
    if reading.visibility.everything or whole.scope.is_detailed:
        return whole.amounts
    own = {
        team.name
        for team in clusters.team_rows(visibility=reading.visibility)
        if team.namespaces is not None
    }
    rows = usage_of(
        reading,
        by=[Grouping.TEAM],
        interval=TimeStep.TOTAL,
        narrowed=whole.scope.filters(reading),
    )
    return tables.summed([row for row in rows if row.groups[Grouping.TEAM] in own])


_USUAL = "allocated_gpu_hours"
LIST_PODS = "pods"
"""The id of the table of pods, and of the element that loads it later."""

# Pods are read at once over so long a window: of a tier or team, and of less than these.
_PODS_AT_ONCE = 2 * DAY
_FEW_PODS_AT_ONCE = 8 * DAY
_MOST_NAMED = 20
"""Pods that the queries shown name one by one at most."""


@page
def explain(request: PageRequest) -> HttpResponseBase:
    figure, scope = _query_of(request)
    reading = query_session(request, takes=several(request.GET), keeps=False)
    _check(scope, reading)
    pod = _pod(scope, reading) if scope["pod"] else None
    amounts = collected_amounts(pod, reading.window) if pod else _amounts(scope, reading)
    whole = SplitFigure(figure, amounts, scope, reading) if amounts else None
    shown, sum_of, named = _figure_rows(request, whole) if whole else ([], None, [])
    return respond(
        request,
        reading,
        "explain",
        tables=shown,
        explanation=explanation(figure, amounts, scope, reading),
        scope=scope.parts(reading.query, pod_name=pod.pod if pod else ""),
        run_by=_run_by(request, scope, reading),
        sources=sources_of(
            figure,
            reading,
            namespace=pod.namespace if pod else scope["namespace"],
            pods=[pod.pod] if pod else named,
        ),
        instants=instants_of(reading),
        lasting_href=lasting_href(figure, scope, reading),
        sum_of=sum_of,
        pods_href=_pods_href(request, whole, shown),
        quality=quality_of(reading, freshness_of(reading), amounts),
    )


def _query_of(request: PageRequest) -> tuple[LedgerFigure, FigureScope]:
    figure = figure_named(request.GET.get("figure", "") or _USUAL)
    if figure is None:
        raise Http404("There is no such figure; addresses of this page come from the figures.")
    scope = scope_from(request.GET)
    if scope is None:
        raise Http404("No name holds that.")
    return figure, scope


def _check(scope: FigureScope, reading: QuerySession) -> None:
    """Raise Http404 for names that there never were, or that the reader may not see."""
    cluster = scope["cluster"]
    # UIDs are told apart by cluster, so a pod without one cannot be found.
    if (cluster and cluster not in reading.filters.cluster) or (scope["pod"] and not cluster):
        raise Http404("There is no such cluster.")
    try:
        usage.check_names(scope.filters(reading))
    except usage.NamesUnknown as unknown:
        raise Http404("There is no such tier or team.") from unknown


def _pod(scope: FigureScope, reading: QuerySession) -> PodRow:
    row = usage.pod_row(
        scope["cluster"], scope["pod"], window=reading.window, visibility=reading.visibility
    )
    if row is None:
        raise Http404("There is no such pod, or you may not see it.")
    return row


def _amounts(scope: FigureScope, reading: QuerySession) -> Amounts | None:
    """Return the line of the ledger; None where no hour of it has facts that the reader sees.

    What is not there and what may not be seen look alike.
    """
    rows = usage_of(reading, by=[], interval=TimeStep.TOTAL, narrowed=scope.filters(reading))
    return tables.summed(rows) if rows else None


def _figure_rows(
    request: PageRequest, whole: SplitFigure
) -> tuple[list[Table], PodReconciliation | None, list[str]]:
    """Return the tables of what a figure sums, how that adds up, and pods that can be named."""
    if whole.scope["pod"]:
        return [hours_of(whole)], None, []
    groups = group_tables(whole, details=_details(whole))
    # Pods have no capacity; of the ratio they are the upper part.
    if whole.figure.of_capacity and whole.figure.key != "allocation_ratio":
        return groups, None, []
    if not _lists_pods(request, whole):
        return groups, None, []
    pods = pods_in(whole)
    table = pods_of(request, whole, pods)
    sum_of = reconciled(whole, pods)
    # Queries that name some of the pods would not give the number that is explained.
    all_named = whole.scope["workload"] and pods.count == len(table.rows) <= _MOST_NAMED
    names = [str(row.values["pod"]) for row in table.rows] if all_named else []
    return [*groups, sum_of.table, table], sum_of, names


def _lists_pods(request: PageRequest, whole: SplitFigure) -> bool:
    """Say whether the pods are read at once: over a long window only of a workload, or if asked.

    A week of a whole tier is hundreds of thousands of rows, and who opens an explanation first
    wants to know what the number means.
    """
    window = whole.reading.window
    most = _FEW_PODS_AT_ONCE if whole.scope.is_detailed else _PODS_AT_ONCE
    short = window.end - window.start <= most
    asked = request.GET.get("list") == LIST_PODS or request.GET.get("table") in {LIST_PODS, "sum"}
    return short or asked or bool(whole.scope["workload"])


def _pods_href(request: PageRequest, whole: SplitFigure | None, shown: list[Table]) -> str:
    """Return where the pods are listed, where they are not here and there may be some."""
    if whole is None or whole.scope["pod"] or any(table.id == LIST_PODS for table in shown):
        return ""
    if whole.figure.of_capacity and whole.figure.key != "allocation_ratio":
        return ""
    query = (*remaining_query(request, drop=PLACE_KEYS), ("list", LIST_PODS))
    return f"{with_query(path_of(request), query)}#{LIST_PODS}"


def _details(whole: SplitFigure) -> bool:
    """Say whether the reader sees the namespaces of the scope's team."""
    visibility = whole.reading.visibility
    if visibility.everything or whole.scope.is_detailed:
        return True
    return any(
        team.name == whole.scope["team"] and team.namespaces is not None
        for team in clusters.team_rows(visibility=visibility)
    )

"""Explain this number: what a figure means, what it is made of, and where that comes from."""

from django.http import Http404, HttpResponseBase

from apps.clusters import selectors as clusters
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.columns import collected_amounts
from apps.usage.domain.rows import PodRow, TimeStep
from apps.web.components import tables
from apps.web.components.links import path_of, with_query
from apps.web.components.picker import PLACE_KEYS, kept
from apps.web.components.tables import Table
from apps.web.explain.explanation import explanation, instants_of, lasting_href, sources_of
from apps.web.explain.figures import LedgerFigure, figure_named
from apps.web.explain.parts import (
    Reconciled,
    Whole,
    group_tables,
    hours_of,
    pods_of,
    reconciled,
    sum_of_pods,
)
from apps.web.explain.scope import FigureScope, scope_from, several
from apps.web.forms import DAY
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
    usage_of,
)

_USUAL = "allocated_gpu_hours"
LIST_PODS = "pods"
"""The id of the table of pods, and what asks for it where it is not read at once."""

# Pods are read at once over so long a window: of a tier or team, and of less than these.
_PODS_AT_ONCE = 2 * DAY
_FEW_PODS_AT_ONCE = 8 * DAY
_MOST_NAMED = 20
"""Pods that the queries shown name one by one at most."""


@page
def explain(request: PageRequest) -> HttpResponseBase:
    figure, scope = _asked(request)
    reading = query_session(request, takes=several(request.GET), keeps=False)
    _check(scope, reading)
    pod = _pod(scope, reading) if scope["pod"] else None
    amounts = collected_amounts(pod, reading.window) if pod else _amounts(scope, reading)
    whole = Whole(figure, amounts, scope, reading) if amounts else None
    shown, sum_of, named = _parts(request, whole) if whole else ([], None, [])
    return respond(
        request,
        reading,
        "explain",
        tables=shown,
        explanation=explanation(figure, amounts, scope, reading),
        scope=scope.parts(reading.query, pod_name=pod.pod if pod else ""),
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


def _asked(request: PageRequest) -> tuple[LedgerFigure, FigureScope]:
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


def _parts(request: PageRequest, whole: Whole) -> tuple[list[Table], Reconciled | None, list[str]]:
    """Return the tables of what a figure sums, how that adds up, and pods that can be named."""
    if whole.scope["pod"]:
        return [hours_of(whole)], None, []
    groups = group_tables(whole, details=_details(whole))
    if whole.figure.of_capacity and whole.figure.key != "allocation_ratio":
        return groups, None, []
    if not _lists_pods(request, whole):
        return groups, None, []
    pods = sum_of_pods(whole)
    table = pods_of(request, whole, pods)
    sum_of = reconciled(whole, pods)
    all_named = whole.scope["workload"] and pods.count == len(table.rows) <= _MOST_NAMED
    names = [str(row.values["pod"]) for row in table.rows] if all_named else []
    return [*groups, sum_of.table, table], sum_of, names


def _lists_pods(request: PageRequest, whole: Whole) -> bool:
    """Say whether the pods are read at once: over a long window only of a workload, or if asked.

    A week of a whole tier is hundreds of thousands of rows, and who opens an explanation first
    wants to know what the number means.
    """
    window = whole.reading.window
    most = _FEW_PODS_AT_ONCE if whole.scope.is_detailed else _PODS_AT_ONCE
    short = window.end - window.start <= most
    asked = request.GET.get("list") == LIST_PODS or request.GET.get("table") in {LIST_PODS, "sum"}
    return short or asked or bool(whole.scope["workload"])


def _pods_href(request: PageRequest, whole: Whole | None, shown: list[Table]) -> str:
    """Return where the pods are listed, where they are not here and there may be some."""
    if whole is None or whole.scope["pod"] or any(table.id == LIST_PODS for table in shown):
        return ""
    if whole.figure.of_capacity and whole.figure.key != "allocation_ratio":
        return ""
    query = (*kept(request, drop=PLACE_KEYS), ("list", LIST_PODS))
    return f"{with_query(path_of(request), query)}#{LIST_PODS}"


def _details(whole: Whole) -> bool:
    """Say whether the reader sees the namespaces of the scope's team."""
    visibility = whole.reading.visibility
    if visibility.everything or whole.scope.is_detailed:
        return True
    return any(
        team.name == whole.scope["team"] and team.namespaces is not None
        for team in clusters.team_rows(visibility=visibility)
    )

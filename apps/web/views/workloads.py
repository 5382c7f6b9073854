"""One workload: what it held over time, and its pods."""

from dataclasses import replace
from datetime import timedelta

from django.http import Http404, HttpResponseBase

from apps.clusters.domain.window import Window
from apps.costs.selectors import kept_workloads
from apps.pending.selectors import find_waiting
from apps.usage import selectors as usage
from apps.usage.domain.rows import Filters, Grouping, PodRow, RowPage
from apps.web.alerts.kept_workloads import kept_words
from apps.web.components import charts, listings, tables
from apps.web.components.ledger import ALLOCATED_CLASSES
from apps.web.components.links import Query, path_of, with_query
from apps.web.forms import LONGEST_DAYS
from apps.web.pages import page, respond
from apps.web.pending.pending_detail import PendingExplanation, why
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    axis_of,
    every_row,
    freshness_of,
    on_cluster,
    quality_of,
    query_session,
    usage_of,
)
from apps.web.summaries.cards import TierContext, holding, rows_by
from apps.web.summaries.comparison import compared

_TAKES = ("tier", "gpu_model")  # its pods have no capacity type before they are bound
PER_PAGE = 100
PER_FILE_READ = 2000


@page
def workload(
    request: PageRequest, cluster: str, namespace: str, kind: str, name: str
) -> HttpResponseBase:
    reading = on_cluster(query_session(request, takes=_TAKES), cluster)
    whole = Filters(cluster=(cluster,), namespace=(namespace,), workload=(f"{kind}/{name}",))
    own = replace(whole, tier=reading.filters.tier, gpu_model=reading.filters.gpu_model)
    pods = _pods(reading.window, own, reading, request.GET.get("pods") or None)
    newest = pods.rows[0] if pods.rows else _ever(whole, reading)
    freshness = freshness_of(reading)
    rows = usage_of(reading, by=[Grouping.TIER], narrowed=own)
    more = (*reading.query, ("pods", pods.next_cursor)) if pods.next_cursor else None
    axis = axis_of(reading, freshness)
    comparison = compared(reading, narrowed=own)
    scope = {"cluster": cluster, "namespace": namespace, "workload": f"{kind}/{name}"}
    known = TierContext(rows=rows, waiting=(), comparison=comparison, scope=scope)
    return respond(
        request,
        reading,
        "workload",
        tables=[
            listings.pods(
                pods.rows,
                reading,
                next_query=with_query(path_of(request), more) + "#pods" if more else None,
                every=lambda: every_row(
                    lambda at: _pods(reading.window, own, reading, at, PER_FILE_READ)
                ),
            )
        ],
        charts=[
            charts.ledger(
                of_tier,
                chart_id=f"ledger-{n}",
                title=f"{name} on {tier}",
                axis=axis,
                classes=ALLOCATED_CLASSES,
            )
            for n, (tier, of_tier) in enumerate(rows_by(rows, Grouping.TIER).items(), start=1)
        ],
        workload=newest,
        why=_why(whole, reading),
        kept=_kept(cluster, namespace, f"{kind}/{name}", reading),
        comparison=comparison,
        holding=holding(known, _explained(reading)) if rows else None,
        nothing=_nothing(pods, reading),
        classes=ALLOCATED_CLASSES,
        quality=quality_of(reading, freshness, tables.summed(rows) if rows else None),
    )


def _kept(cluster: str, namespace: str, workload: str, reading: QuerySession) -> str:
    """Return until when somebody keeps it though it is idle; empty where nobody does."""
    one = (cluster, namespace, workload)
    return kept_words(kept_workloads([one], now=reading.now).get(one), reading.choice.zone)


def _why(whole: Filters, reading: QuerySession) -> PendingExplanation | None:
    """Return why what of it has waited longest does."""
    (cluster,), (namespace,), (workload,) = whole.cluster, whole.namespace, whole.workload
    found = find_waiting(
        namespace,
        workload.partition("/")[2],
        at=reading.now,
        visibility=reading.visibility,
        cluster=cluster,
    )
    own = [one.row for one in found if one.row.until is None and one.row.workload == workload]
    return why(own, reading)


def _explained(reading: QuerySession) -> Query:
    """Return the query that explains the page's figures: without filters it does not take."""
    return [pair for pair in reading.query if pair not in reading.asides]


def _nothing(pods: RowPage[PodRow], reading: QuerySession) -> str:
    """Return what to say where there is no chart: nothing was held, or nothing of it is known."""
    if any(listings.is_unknown(row, reading) for row in pods.rows):
        return listings.NOT_KEPT
    return "This workload held no GPU in this window. Choose a longer one."


def _pods(
    window: Window, own: Filters, reading: QuerySession, cursor: str | None, size: int = PER_PAGE
) -> RowPage[PodRow]:
    return usage.pod_page(
        window, filters=own, visibility=reading.visibility, cursor=cursor, page_size=size
    )


def _ever(own: Filters, reading: QuerySession) -> PodRow:
    """Return the workload's newest pod of all that is kept.

    Raises Http404 when there is none, or none that the reader may see: the two look alike.
    """
    end = max(reading.now, reading.window.end)
    kept = Window(end - timedelta(days=LONGEST_DAYS), end)
    rows = _pods(kept, own, reading, None, size=1).rows
    if not rows:
        raise Http404("There is no such workload, or you may not see it.")
    return rows[0]

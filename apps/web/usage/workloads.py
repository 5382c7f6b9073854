"""One workload: its usage over time and its pods; and one pod with its lifecycle."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.http import Http404, HttpResponseBase

from apps.clusters.domain.window import Window
from apps.costs.selectors import kept_workloads
from apps.pending.selectors import episodes_of, find_waiting
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters, Grouping, PodRow, RowPage
from apps.usage.selectors import CoTenants, co_tenants
from apps.web.alerts.alert_list import kept_words
from apps.web.components import charts, listings, tables
from apps.web.components.formats import Format
from apps.web.components.page_query import LONGEST_DAYS, href, path_of, with_query
from apps.web.components.tables import ALLOCATED_CLASSES, Column, Table, TableRow, attributes, strip
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
from apps.web.usage.comparison import compared
from apps.web.usage.glance import TierContext, holding, rows_by

MOST_BESIDE = 50


@dataclass(frozen=True, slots=True)
class PodPhase:
    """A part of a pod's life; `end` is None while it lasts."""

    name: str
    start: datetime
    end: datetime | None
    reason: str


@page
def pod(request: PageRequest, cluster: str, uid: str) -> HttpResponseBase:
    reading = on_cluster(query_session(request), cluster)
    row = usage.pod_row(cluster, uid, window=reading.window, visibility=reading.visibility)
    if row is None:
        raise Http404("There is no such pod, or you may not see it.")
    beside = co_tenants(
        cluster, uid, window=reading.window, visibility=reading.visibility, now=reading.now
    )
    return respond(
        request,
        reading,
        "pod",
        tables=[
            _life(row, reading),
            listings.pod_ledger(row, reading),
            *([_beside(beside, reading, cluster)] if beside else []),
        ],
        beside=beside,
        pod=row,
        why=_why_of_pod(row, reading),
        links=_links(row, reading),
        strip=strip(row.amounts, ALLOCATED_CLASSES),
        classes=ALLOCATED_CLASSES,
        quality=quality_of(reading, freshness_of(reading), row.amounts),
    )


def _why_of_pod(row: PodRow, reading: QuerySession) -> PendingExplanation | None:
    """Return why it is pending, or does not start; never called for one that runs or is over."""
    if row.started_at is not None or row.end is not None:
        return None
    episodes = episodes_of(row.cluster, row.uid, at=reading.now, visibility=reading.visibility)
    return why([one.row for one in episodes if one.row.until is None], reading)


def _links(row: PodRow, reading: QuerySession) -> dict[str, str | None]:
    return {
        "team": href("team", reading.query, name=row.team),
        "tier": href("tier", reading.query, name=row.tier) if row.tier else None,
        "workload": href(
            "workload",
            reading.query,
            cluster=row.cluster,
            namespace=row.namespace,
            kind=row.owner_kind,
            name=row.owner,
        ),
    }


def phases(row: PodRow) -> Iterator[PodPhase]:
    """Yield pending, starting and running as far as the pod came, oldest first.

    A pod that was never bound is pending until it ends; one that never started is starting until
    then.
    """
    yield PodPhase("waiting", row.created_at, row.waited_until, "not bound to a node")
    if row.bound_at is None:
        return
    started = row.started_at or row.end
    yield PodPhase("starting", row.bound_at, started, "bound; no GPU container runs yet")
    if row.started_at is not None:
        yield PodPhase("running", row.started_at, row.end, "from its first start")


def _life(row: PodRow, reading: QuerySession) -> Table:
    return Table(
        id="life",
        title="Its life",
        columns=[
            Column("phase", "Phase"),
            Column("from", "From", Format.TIME),
            Column("until", "Until", Format.TIME),
            Column("lasted_seconds", "Lasted", Format.SECONDS),
            Column("meaning", "Meaning"),
        ],
        rows=[_phase_line(phase, reading) for phase in phases(row)],
        zone=reading.choice.zone,
        empty="Nothing is known of this pod's life.",
        note="A phase without an end still lasts; its length is up to now.",
    )


def _phase_line(phase: PodPhase, reading: QuerySession) -> TableRow:
    lasted = ((phase.end or reading.now) - phase.start).total_seconds()
    return TableRow(
        {
            "phase": phase.name,
            "from": phase.start,
            "until": phase.end,
            "lasted_seconds": max(0.0, lasted),
            "meaning": phase.reason,
        }
    )


def _beside(found: CoTenants, reading: QuerySession, cluster: str) -> Table:
    """Return a row per pod that the reader may see beside this one on shared GPUs."""
    return Table(
        id="beside",
        title="Co-located pods",
        columns=[
            Column("pod", "Pod"),
            Column("namespace", "Namespace"),
            Column("team", "Team"),
            Column("units", "Units", Format.NUMBER),
            Column("together_seconds", "Allocated together", Format.SECONDS),
            Column("state", "Now"),
        ],
        rows=[
            TableRow(
                attributes(
                    pod, "pod", "namespace", "team", "units", together_seconds="shared_seconds"
                )
                | {"state": "there" if pod.lasts else "over"},
                {"pod": href("pod", reading.query, cluster=cluster, uid=pod.uid)},
            )
            for pod in found.pods
        ],
        zone=reading.choice.zone,
        empty="No pod that you may see held a share at the same time.",
        page_length=MOST_BESIDE,
    )


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
    # Figures are explained without filters that the page does not take.
    explained = [pair for pair in reading.query if pair not in reading.asides]
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
        why=_why_of_workload(whole, reading),
        kept=_kept(cluster, namespace, f"{kind}/{name}", reading),
        comparison=comparison,
        holding=holding(known, explained) if rows else None,
        nothing=_nothing(pods, reading),
        classes=ALLOCATED_CLASSES,
        quality=quality_of(reading, freshness, tables.summed(rows) if rows else None),
    )


def _kept(cluster: str, namespace: str, workload: str, reading: QuerySession) -> str:
    """Return until when a user keeps it although it is idle; empty without such a decision."""
    one = (cluster, namespace, workload)
    return kept_words(kept_workloads([one], now=reading.now).get(one), reading.choice.zone)


def _why_of_workload(whole: Filters, reading: QuerySession) -> PendingExplanation | None:
    """Return the cause of its longest pending item."""
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

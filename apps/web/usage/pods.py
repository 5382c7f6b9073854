"""One pod: its figures, its lifecycle, why it is pending, and pods on the same GPUs."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

from django.http import Http404, HttpResponseBase
from msgspec import Struct

from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.pending.selectors import episodes_of
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters, PodRow
from apps.usage.selectors import CoTenant, CoTenants, co_tenants
from apps.web.components import listings
from apps.web.components.commands import kubectl
from apps.web.components.page_query import href, workload_href
from apps.web.components.tables import (
    ALLOCATED_CLASSES,
    Table,
    TableRow,
    declared_columns,
    declared_values,
    strip,
)
from apps.web.pages import page, respond
from apps.web.pending.pending_detail import PendingExplanation, why
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    on_cluster,
    quality_of,
    query_session,
)

MOST_CO_TENANTS = 50


class PodPhase(Struct, frozen=True):
    """A part of a pod's life; `end` is None while it lasts."""

    name: Annotated[str, Column("Phase", key="phase")]
    start: Annotated[datetime, Column("From", key="from")]
    end: Annotated[datetime | None, Column("Until", key="until")]
    reason: Annotated[str, Column("Meaning", key="meaning")]


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
            # A pod that shared with no other needs no empty table to say so.
            *([_co_tenants(beside, reading, cluster)] if beside else []),
        ],
        beside=beside,
        pod=row,
        run_by=usage.run_by(
            request.user,
            # It may have ended before the window, of which the page tells the rest all the same.
            Window(row.created_at, max(reading.now, reading.window.end)),
            filters=Filters(cluster=(cluster,)),
            visibility=reading.visibility,
            uid=uid,
        ),
        why=_why_of_pod(row, reading),
        command=kubectl("describe", "pod", row.pod, namespace=row.namespace),
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
        "workload": workload_href(
            row.cluster, row.namespace, f"{row.owner_kind}/{row.owner}", reading.query
        ),
    }


def phases(row: PodRow) -> Iterator[PodPhase]:
    """Yield pending, starting and running as far as the pod came, oldest first.

    A pod that was never bound is pending until it ends; one that never started is starting until
    then.
    """
    yield PodPhase("pending", row.created_at, row.pending_until, "not bound to a node")
    if row.bound_at is None:
        return
    # The end of a pod that never started ends its start too.
    started = row.started_at or row.end
    yield PodPhase("starting", row.bound_at, started, "bound; no GPU container runs yet")
    if row.started_at is not None:
        yield PodPhase("running", row.started_at, row.end, "from its first start")


def _life(row: PodRow, reading: QuerySession) -> Table:
    return Table(
        id="life",
        title="Lifecycle",
        columns=declared_columns(PodPhase, after={"until": [listings.LASTED]}),
        rows=[_phase_line(phase, reading) for phase in phases(row)],
        zone=reading.choice.zone,
        empty="No data on this pod.",
        note="A phase without an end is still running.",
    )


def _phase_line(phase: PodPhase, reading: QuerySession) -> TableRow:
    lasted = listings.lasted(phase.start, phase.end, reading.now)
    return TableRow(declared_values(phase) | lasted)


def _co_tenants(found: CoTenants, reading: QuerySession, cluster: str) -> Table:
    """Return a row per pod that the reader may see beside this one on shared GPUs."""
    return Table(
        id="beside",
        title="Co-located pods",
        columns=declared_columns(CoTenant),
        rows=[
            TableRow(
                declared_values(pod),
                {"pod": href("pod", reading.query, cluster=cluster, uid=pod.uid)},
            )
            for pod in found.pods
        ],
        zone=reading.choice.zone,
        empty="No pod that you may see held a share at the same time.",
        page_length=MOST_CO_TENANTS,
    )

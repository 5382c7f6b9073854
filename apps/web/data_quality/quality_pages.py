"""The data quality page: which hours are there, which are not, and why."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters import selectors as clusters
from apps.clusters.domain.devices.exporter_profile import VENDOR_LIMITS, JobProfile, VirtualGpus
from apps.clusters.domain.window import last_closed_hour
from apps.costs.selectors import capacity_values
from apps.operations.selectors import (
    ClusterProgress,
    DoctorVerdict,
    collection_progress,
    open_findings,
    verdicts,
)
from apps.usage import selectors as usage
from apps.usage.domain.collection import CollectionState
from apps.usage.domain.usage_query import CollectionRow, Grouping, RowPage, TimeStep, every_row
from apps.usage.selectors import ExporterHistory, exporter_histories
from apps.web.clusters.device_tables import unattributed_nodes
from apps.web.components import page_query
from apps.web.components.formats import Format, Value, shown
from apps.web.components.page_query import PER_PAGE, next_href, option_links, path_of, with_query
from apps.web.components.tables import Column, Table, TableRow
from apps.web.components.tabs import TAB_KEY, Tab, tab_bar
from apps.web.data_quality import cluster_health
from apps.web.data_quality.cluster_health import HealthSummary
from apps.web.data_quality.issues import OPEN_ISSUES, quality_issues
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    Quality,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
    usage_of,
)


class ExporterNote(Struct, frozen=True):
    """A change of a cluster's exporters, or what those of a family cannot tell."""

    cluster: str
    at: str
    notes: tuple[str, ...]


def exporters_table(histories: Sequence[ExporterHistory], reading: QuerySession) -> Table:
    """Return one line for each scrape job that exports devices, as it was last seen."""
    return Table(
        id="exporters",
        title="GPU exporters",
        columns=[
            Column("cluster", "Cluster"),
            Column("job", "Scrape job"),
            Column("family", "Family"),
            Column("generation", "Release"),
            Column("workload_labels", "Pods named by", hint="the label that names the pod"),
            Column("node_labels", "Nodes named by"),
            Column("shared_cards", "Shared GPUs", wraps=True),
            Column("activity_metrics", "Activity from", wraps=True),
            Column("also", "Also", wraps=True),
            Column("seen_at", "Last seen", Format.TIME),
        ],
        rows=[
            TableRow(_line(history, job)) for history in histories for job in history.profile.jobs
        ],
        zone=reading.choice.zone,
        empty=(
            "No exporter was seen yet. The first collected hour shows them."
            if reading.visibility.operations
            else "Exporters are shown to administrators."
        ),
        on_phone=("job", "cluster", "family", "generation"),
    )


def _line(history: ExporterHistory, job: JobProfile) -> dict[str, Value]:
    # Kinds of devices often share a metric: it is named once.
    metrics = dict.fromkeys(metric for _, some in job.activity_metrics for metric in some)
    return {
        "cluster": history.cluster,
        "job": job.job,
        "family": job.family.value,
        "generation": job.generation.value,
        "workload_labels": job.workload_labels.value,
        "node_labels": ", ".join(job.node_labels) or "–",
        "shared_cards": "" if job.virtual_gpus is VirtualGpus.NONE else job.virtual_gpus.value,
        "activity_metrics": ", ".join(metrics) or "none",
        "also": ", ".join(_also(job)),
        "seen_at": history.seen,
    }


def _also(job: JobProfile) -> list[str]:
    found = []
    if job.mig:
        found.append("MIG devices")
    if job.dra_labels:
        found.append("claims of DRA")
    if job.pod_uid:
        found.append("pods' uids")
    found += [f"{metric} in another unit" for metric in job.rescaled]
    if not job.memory_metric:
        found.append("no memory")
    if not job.energy_metric:
        found.append("no energy")
    return found


def exporter_changes(
    histories: Sequence[ExporterHistory], reading: QuerySession
) -> list[ExporterNote]:
    """Return what changed within the reading's window, newest first."""
    return [
        ExporterNote(
            history.cluster, str(shown(change.hour, Format.TIME, reading.choice.zone)), change.what
        )
        for history in histories
        for change in history.changes
        if reading.window.start <= change.hour < reading.window.end
    ]


def exporter_limits(histories: Sequence[ExporterHistory]) -> list[ExporterNote]:
    """Return what cannot be told of the exporters there are, by family."""
    families = dict.fromkeys(family for one in histories for family in one.profile.families)
    return [
        ExporterNote("", family.value, VENDOR_LIMITS[family])
        for family in families
        if VENDOR_LIMITS.get(family)
    ]


_TABS = (
    Tab("findings", "Issues"),
    Tab("calendar", "Calendar"),
    Tab("exporters", "Exporters"),
    Tab("tiers", "Tiers"),
)
PER_FILE_READ = 2000
STATES = tuple(state.value for state in CollectionState)
LACKING = tuple(state for state in STATES if state != CollectionState.COMPLETE.value)
DAY = timedelta(days=1)
_EXPORTERS_SEEN = timedelta(days=62)
"""How far back changes of exporters are looked for."""


@page
def data_health(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request)
    progress = collection_progress(visibility=reading.visibility)
    if request.htmx and request.GET.get("part") == "progress":
        return _progress(request, reading, progress)
    states, problem = page_query.names_from(request.GET, "state", STATES)
    healths = cluster_health.cluster_healths(
        progress,
        _whole_window(reading),
        reading,
        closed=_closed(reading),
    )
    judged = verdicts(clusters=reading.filters.cluster)
    troubles = cluster_health.troubles(healths)
    findings = open_findings(visibility=reading.visibility, clusters=reading.filters.cluster)
    values = capacity_values(reading.now, visibility=reading.visibility)
    issues = quality_issues(troubles, findings, values, reading.query)
    of_portal = [row for row in findings if not row.cluster]
    listed = sum(1 for row in findings if row.cluster and row.severity != "note")
    summary = cluster_health.summary(troubles, judged, of_portal)
    (tier_gaps,) = usage.gap_hours([reading.window], visibility=reading.visibility)
    tabs = tab_bar(request, _TABS, name="Data quality")
    rows = clusters.cluster_rows(visibility=reading.visibility)
    # A file can be asked for whatever tab is open.
    wanted = {one.key for one in _TABS} if "format" in request.GET else {tabs.chosen}
    # Links to further hours from before there were tabs name none.
    if "cursor" in request.GET:
        wanted.add("calendar")
    exporters = _exporters(reading) if "exporters" in wanted else {"tables": ()}
    return respond(
        request,
        reading,
        "data_quality",
        tables=[
            *_verdicts(reading, judged, healths, tier_gaps, is_open="tiers" in wanted),
            cluster_health.clusters_table(rows, reading),
            *([_collections(request, reading, states)] if "calendar" in wanted else []),
            *exporters.pop("tables"),
        ],
        tabs=tabs.counted({"findings": len(issues)}),
        issues=issues[:OPEN_ISSUES],
        more_issues=issues[OPEN_ISSUES:],
        withheld=cluster_health.withheld(judged, listed),
        healths=healths,
        verdicts=cluster_health.cluster_verdicts(judged, healths),
        tier_verdict=cluster_health.tier_verdict(judged, tier_gaps),
        under_way=cluster_health.under_way(progress),
        is_moving=any(row.is_moving(reading.now) for row in progress),
        progress_href=_progress_href(request),
        summary=summary,
        lists_hours=_lists_hours(request, reading),
        state_links=_state_links(request, reading, states),
        problem=problem,
        quality=_quality(reading, summary),
        gaps=usage.gap_tiers(reading.window, visibility=reading.visibility) if tier_gaps else [],
        **exporters,
    )


def _exporters(reading: QuerySession) -> dict[str, Any]:
    """Return what the tab of exporters shows beside the clusters."""
    unattributed = unattributed_nodes(reading)
    histories = exporter_histories(
        since=reading.now - _EXPORTERS_SEEN, visibility=reading.visibility
    )
    return {
        "tables": [
            *([unattributed] if unattributed else []),
            exporters_table(histories, reading),
        ],
        "exporter_changes": exporter_changes(histories, reading),
        "exporter_limits": exporter_limits(histories),
        "watch_notes": clusters.watch_issues(visibility=reading.visibility),
    }


def _verdicts(
    reading: QuerySession,
    judged: Sequence[DoctorVerdict],
    healths: Sequence[cluster_health.ClusterHealth],
    gaps: cluster_health.TierGaps,
    *,
    is_open: bool,
) -> list[Table]:
    if not is_open:
        return []
    hours = _tier_hours(reading, gaps, healths)
    return [cluster_health.verdicts_table(judged, healths, hours, reading)]


def _tier_hours(
    reading: QuerySession,
    gaps: cluster_health.TierGaps,
    healths: Sequence[cluster_health.ClusterHealth],
) -> cluster_health.TierHours:
    rows = usage_of(reading, by=(Grouping.CLUSTER, Grouping.TIER), interval=TimeStep.TOTAL)
    places = ((row.groups[Grouping.CLUSTER], row.groups[Grouping.TIER]) for row in rows)
    return cluster_health.tier_hours(places, gaps, healths)


def _state_links(
    request: PageRequest, reading: QuerySession, states: Sequence[str]
) -> list[tuple[str, str, bool]]:
    """Return (label, address, chosen) of the states that the hourly log can be narrowed to."""
    return option_links(
        path_of(request),
        [*reading.query, (TAB_KEY, "calendar")],
        "state",
        {"all": "", **{state: state for state in STATES}},
        states,
        anchor="#collections",
    )


def _quality(reading: QuerySession, summary: HealthSummary) -> Quality:
    """Return the badge of the hours, which is never green above issues."""
    found = quality_of(reading, freshness_of(reading), None)
    return replace(found, level="warning") if summary.troubled and found.level == "ok" else found


def _progress(
    request: PageRequest, reading: QuerySession, progress: Sequence[ClusterProgress]
) -> HttpResponse:
    """Answer with how far long work has come, alone."""
    context = {
        "under_way": cluster_health.under_way(progress),
        "is_moving": any(row.is_moving(reading.now) for row in progress),
        "progress_href": _progress_href(request),
    }
    return render(request, "data_quality/_progress.html", context)


def _progress_href(request: PageRequest) -> str:
    return with_query(path_of(request), (("part", "progress"),))


def _whole_window(reading: QuerySession) -> Iterable[CollectionRow]:
    """Return the hours of the window; only those that lack something where it is long."""
    # A year of complete hours is thousands of rows that no calendar draws.
    states = () if cluster_health.has_calendar(reading) else LACKING
    return every_row(lambda at: _page(reading, states, at, PER_FILE_READ))


def _closed(reading: QuerySession) -> datetime:
    """Return the newest hour that should be collected by now."""
    settling = timedelta(seconds=settings.SETTLING_SECONDS)
    return last_closed_hour(reading.now, reading.choice.zone, settling)


def _lists_hours(request: PageRequest, reading: QuerySession) -> bool:
    """Say whether the hours are listed one by one at once: asked for, or few."""
    asked = any(key in request.GET for key in ("state", "cursor", "sort"))
    return asked or reading.window.end - reading.window.start <= DAY


def _collections(request: PageRequest, reading: QuerySession, states: tuple[str, ...]) -> Table:
    found = _page(reading, states, request.GET.get("cursor") or None)
    query = (
        *reading.query,
        (TAB_KEY, "calendar"),
        *(("state", state) for state in states),
    )
    return cluster_health.collections_table(
        found.rows,
        reading,
        next_href=next_href(path_of(request), query, found.next_cursor, "#collections"),
        every=lambda: every_row(lambda at: _page(reading, states, at, PER_FILE_READ)),
    )


def _page(
    reading: QuerySession, states: tuple[str, ...], cursor: str | None, size: int = PER_PAGE
) -> RowPage[CollectionRow]:
    return usage.collection_page(
        reading.window,
        filters=reading.filters,
        states=states,
        visibility=reading.visibility,
        cursor=cursor,
        page_size=size,
    )

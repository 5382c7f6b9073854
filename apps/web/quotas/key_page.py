"""The page of one quota key: use against the limit, consumers, blocked work, and its settings."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import fsum
from typing import Any

from django.http import Http404, HttpResponseBase

from apps.accounts.permissions import can_administer
from apps.accounts.selectors import TEAMS
from apps.clusters.domain.columns import columns_of
from apps.clusters.selectors import NAMESPACE_TEAMS
from apps.pending.selectors import PendingFilters, PendingRow, QueueRow, queues_unwatched
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors import KeyChange, key_changes
from apps.quotas import selectors as quotas
from apps.quotas.domain.keys import QuotaRef, QuotaSource
from apps.quotas.domain.usage_changes import UsageStep, time_at_limit
from apps.quotas.selectors import Consumer, QuotaPoint, QuotaRow
from apps.usage.domain.usage_query import Filters, Grouping, UsageQuery
from apps.usage.selectors import usage_rows
from apps.web.components.commands import kubectl
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import Format, percent, shown, unit_words
from apps.web.components.page_query import href, workload_href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.components.tabs import Tab, tab_bar
from apps.web.pages import page, respond
from apps.web.pending.history import queues_table
from apps.web.pending.pending_table import pending_href
from apps.web.query_session import PageRequest, QuerySession, on_cluster, query_session
from apps.web.quota_requests.request_detail import actor_in
from apps.web.quota_requests.request_input import Asker
from apps.web.quotas import key_usage, keys
from apps.web.quotas.key_manifest import manifest_of

TABS = (Tab("usage", "Usage"), Tab("limits", "Limit history"), Tab("yaml", "YAML"))
_KUBECTL_KINDS = {
    QuotaSource.RESOURCE_QUOTA.value: "resourcequota",
    QuotaSource.CLUSTER_QUEUE.value: "clusterqueue",
    QuotaSource.VOLCANO_QUEUE.value: "queue.scheduling.volcano.sh",
    QuotaSource.KAI_QUEUE.value: "queue.scheduling.run.ai",
}
_SHORT_LIST = 10
_HOUR = 3600.0


@page
def quota_key(
    request: PageRequest, cluster: str, source: str, namespace: str, name: str, key: str
) -> HttpResponseBase:
    reading = on_cluster(query_session(request, reads=(TEAMS, NAMESPACE_TEAMS)), cluster)
    space = "" if namespace == keys.NO_NAMESPACE else namespace
    ref = QuotaRef(source, space, name, key, cluster)
    row = quotas.quota_row(reading.now, ref, visibility=reading.visibility)
    hours = quotas.quota_history(
        reading.window,
        ref,
        visibility=reading.visibility,
        # Before the watch a queue is of no team that is known: who sees it now sees these hours.
        teamless=row is not None and not row.namespace,
    )
    # A key that is gone still has a page for the windows in which it was there.
    if row is None and not hours:
        raise Http404("There is no such quota, or you may not see it, or not in this window.")
    steps = quotas.key_steps(ref, hours)
    tabs = tab_bar(request, TABS, name="Quota key")
    of_tab: dict[str, Any]
    if tabs.chosen == "usage":
        of_tab = _usage(reading, ref, row, steps)
    elif tabs.chosen == "limits":
        of_tab = _limits(reading, ref, steps, hours, actor_in(request))
    else:
        of_tab = {"manifest": manifest_of(row) if row else ""}
    line = keys.key_line(row, reading, {}) if row else None
    return respond(
        request,
        reading,
        "quota",
        tabs=tabs,
        row=row,
        name=name,
        key=key,
        source=source,
        namespace=space,
        cluster=cluster,
        line=line,
        figures=_figures(row, line, steps, reading) if row and line else None,
        commands=_commands(ref),
        team_href=href("team", reading.query, name=row.team) if row and row.team else None,
        ask_href=Asker.of(request.user).ask_href(row, reading.query) if row else "",
        audit_href=href("audit", (("what", name),)) if can_administer(request.user) else "",
        **of_tab,
    )


def _commands(ref: QuotaRef) -> list[str]:
    kind = _KUBECTL_KINDS.get(ref.source, "")
    if not kind:
        return []
    found = [
        kubectl("describe", kind, ref.name, namespace=ref.namespace),
        kubectl("get", kind, ref.name, "--output", "yaml", namespace=ref.namespace),
    ]
    if ref.namespace:
        found.append(
            kubectl(
                "get", "events", "--field-selector", "reason=FailedCreate", namespace=ref.namespace
            )
        )
    return found


# ---------------------------------------------------------------- figures


def _figures(
    row: QuotaRow, line: keys.KeyLine, steps: Sequence[UsageStep], reading: QuerySession
) -> FigureRow:
    zone = reading.choice.zone

    def amount(value: float | None) -> str:
        return shown(value, Format.NUMBER, zone)

    used = (
        KeyFigure(
            "Used / limit",
            amount(row.used),
            f"/ {amount(row.hard)} {unit_words(amount(row.hard), row.unit)}",
            basis=_basis(row),
            href=line.explains["used"],
            note=_held(row, amount),
            tone=Tone.WARNING if (row.saturation_ratio or 0.0) >= 1 else Tone.NONE,
        )
        if row.used is not None
        else no_data("Used / limit", row.finding or "Nothing is counted.")
    )
    blocked = (
        KeyFigure(
            "Blocked",
            amount(row.suppressed),
            unit_words(amount(row.suppressed), row.unit),
            basis=_basis(row),
            href=line.explains["suppressed"],
            tone=Tone.DANGER if row.suppressed else Tone.NONE,
        )
        if row.suppressed is not None
        else no_data("Blocked", "No watch follows the cluster.")
    )
    return figure_row(used, blocked, _at_limit(steps, reading), _tiers(row, line), name="This key")


def _at_limit(steps: Sequence[UsageStep], reading: QuerySession) -> KeyFigure:
    time = time_at_limit(steps)
    if time.share is None:
        return no_data("At limit", "No hour of this window is known.")
    known = round(time.known / _HOUR)
    return KeyFigure(
        "At limit", percent(time.share), f"of {known:,} h known", basis=reading.choice.short_label
    )


def _basis(row: QuotaRow) -> str:
    return "as last seen" if row.stale else "now"


def _held(row: QuotaRow, amount: Any) -> str:
    if row.pending:
        return f"{amount(row.held)} allocated, {amount(row.pending)} pending"
    return ""


def _tiers(row: QuotaRow, line: keys.KeyLine) -> KeyFigure:
    if not row.tiers:
        return KeyFigure("Tiers", "none")
    first, link = line.tier_links[0]
    more = len(row.tiers) - 1
    return KeyFigure(
        "Tiers",
        first,
        f"and {more} more" if more else "",
        exact=", ".join(row.tiers),
        href=link or "",
    )


# ---------------------------------------------------------------- usage


def _usage(
    reading: QuerySession, ref: QuotaRef, row: QuotaRow | None, steps: Sequence[UsageStep]
) -> dict[str, Any]:
    plot = key_usage.usage_plot(steps, reading, row.unit if row else "units")
    tables = [plot.table]
    if row is not None:
        tables += [_consumers(row, reading), _blocked(row, reading)]
    if ref.source == QuotaSource.CLUSTER_QUEUE and (queues := _unwatched(reading, ref)):
        tables.append(queues_table(queues, reading))
    return {"plot": plot, "tables": tables, "amounts": _amounts(row, reading) if row else ()}


_AMOUNTS = (
    *(
        "held",
        "pending",
        "headroom",
        "observed_hard",
        "reserved",
        "borrowed",
        "borrowing_limit",
        "lending_limit",
    ),
    *("ceiling", "guarantee", "weight"),
)


def _amounts(row: QuotaRow, reading: QuerySession) -> list[tuple[str, Any, str, str]]:
    """Return (label, amount, help, address that explains it) of what the figures leave out."""
    explains: Mapping[str, str] = keys.key_line(row, reading, {}).explains
    columns = {column.name: column for column in columns_of(QuotaRow)}
    return [
        (columns[name].label, getattr(row, name), columns[name].help, explains.get(name, ""))
        for name in _AMOUNTS
        if getattr(row, name) is not None
    ]


def _consumers(row: QuotaRow, reading: QuerySession) -> Table:
    found = quotas.consumers(reading.now, row, visibility=reading.visibility)
    ratios = _utilization(found, row, reading) if found else {}
    return Table(
        id="consumers",
        title="Consumers",
        columns=[
            Column("workload", "Workload"),
            Column("namespace", "Namespace", in_files=bool(row.namespace)),
            Column("units", "Used", Format.NUMBER, hint=row.unit),
            Column(
                *("pending", "Pending", Format.NUMBER, "", "of what is used, not bound"),
                in_files=not any(one.pending for one in found),
            ),
            Column("utilization_ratio", "Utilization", Format.RATIO, "%", reading.choice.label),
            Column("age", "Age", Format.SECONDS),
        ],
        rows=[_consumer(one, ratios, row, reading) for one in found],
        zone=reading.choice.zone,
        empty="No workload uses this limit now.",
        page_length=_SHORT_LIST,
    )


def _utilization(
    found: Sequence[Consumer], row: QuotaRow, reading: QuerySession
) -> dict[tuple[str, str], float | None]:
    """Return utilization over the window by namespace and `Kind/name`."""
    query = UsageQuery(
        reading.window,
        group_by=(Grouping.NAMESPACE, Grouping.WORKLOAD),
        filters=Filters(
            cluster=(row.cluster,), namespace=tuple(sorted({one.namespace for one in found}))
        ),
    )
    rows = usage_rows(query, visibility=reading.visibility)
    return {
        (one.groups["namespace"], one.groups["workload"]): one.amounts.utilization_ratio
        for one in rows
    }


def _consumer(
    one: Consumer,
    ratios: Mapping[tuple[str, str], float | None],
    row: QuotaRow,
    reading: QuerySession,
) -> TableRow:
    workload = f"{one.kind}/{one.name}"
    return TableRow(
        {
            "workload": one.name,
            "namespace": one.namespace,
            "units": one.units,
            "pending": one.pending,
            "utilization_ratio": ratios.get((one.namespace, workload)),
            "age": (reading.now - one.since).total_seconds(),
        },
        {"workload": workload_href(row.cluster, one.namespace, workload, reading.query)}
        # Pods without facts have no page of their workload over this window.
        if (one.namespace, workload) in ratios
        else {},
    )


def _blocked(row: QuotaRow, reading: QuerySession) -> Table:
    by_workload: dict[tuple[str, str], list[PendingRow]] = defaultdict(list)
    for one in quotas.blocked_now(reading.now, row, visibility=reading.visibility):
        by_workload[one.namespace, one.workload].append(one)
    return Table(
        id="blocked",
        title="Blocked now",
        columns=[
            Column("workload", "Workload"),
            Column("items", "Items", Format.COUNT, "", "pods, or the controllers that create them"),
            Column("units", "Requests", Format.NUMBER, hint=row.unit),
            Column("pending_for", "Pending for", Format.SECONDS),
            Column("why", "Reason", wraps=True),
        ],
        rows=[_blocked_workload(own, reading) for own in by_workload.values()],
        zone=reading.choice.zone,
        empty="This limit blocks no work now.",
        page_length=_SHORT_LIST,
    )


def _blocked_workload(items: Sequence[PendingRow], reading: QuerySession) -> TableRow:
    """Return the row of a workload's items; why it is blocked is that of the oldest."""
    # Rows come oldest first: the longest pending is blocked by the limit itself.
    oldest = items[0]
    return TableRow(
        {
            "workload": oldest.workload.partition("/")[2] or oldest.name,
            "items": len(items),
            "units": fsum(one.units for one in items),
            "pending_for": oldest.wait_seconds,
            "why": oldest.explanation,
        },
        {"workload": pending_href(oldest, reading.query)},
    )


def _unwatched(reading: QuerySession, ref: QuotaRef) -> list[QueueRow]:
    """Return what Kueue's series show of a ClusterQueue; none where none do."""
    return queues_unwatched(
        reading.window,
        visibility=reading.visibility,
        filters=PendingFilters(cluster=(ref.cluster,)),
        queue=ref.name,
    )


# ---------------------------------------------------------------- limits


def _limits(
    reading: QuerySession,
    ref: QuotaRef,
    steps: Sequence[UsageStep],
    hours: Sequence[QuotaPoint],
    actor: Actor,
) -> dict[str, Any]:
    changes = key_changes(actor, ref)
    rows = [
        _limit(run, before, changes, reading)
        for before, run in key_usage.limit_runs(steps, hours, reading.choice.zone)
    ]
    table = Table(
        id="owners",
        title="Limit history",
        columns=[
            Column("start", "From", Format.HOUR),
            Column("end", "Until", Format.HOUR),
            Column("team", "Team"),
            Column("before", "Limit before", Format.NUMBER),
            Column("hard", "Limit", Format.NUMBER),
            Column("request", "Request"),
            Column("by", "Changed by"),
        ],
        rows=rows[::-1],
        zone=reading.choice.zone,
        empty=key_usage.NOT_KNOWN,
    )
    return {"tables": [table]}


def _limit(
    run: key_usage.LimitRun,
    before: key_usage.LimitRun | None,
    changes: Sequence[KeyChange],
    reading: QuerySession,
) -> TableRow:
    # By amount and time: Kubernetes does not tell which request an object was changed by.
    change = _change_at(run.start, run.hard, changes)
    changed = before is not None and before.hard != run.hard
    return TableRow(
        {
            "start": run.start,
            "end": run.end,
            "team": run.team,
            "before": before.hard if before and changed else None,
            "hard": run.hard,
            "request": f"Request {change.request}" if change else None,
            "by": change.by if change else ("outside the portal" if changed else None),
        },
        {
            "team": href("team", reading.query, name=run.team) if run.team else None,
            "request": href("request", reading.query, pk=str(change.request)) if change else None,
        },
    )


def _change_at(start: datetime, hard: float, changes: Sequence[KeyChange]) -> KeyChange | None:
    """Return the applied request that set this limit then; None where none did."""
    near = [
        one
        for one in changes
        if abs(one.hard - hard) < key_usage.SAME
        and abs((one.at - start).total_seconds()) < key_usage.NEAR_SECONDS
    ]
    return min(near, key=lambda one: abs((one.at - start).total_seconds()), default=None)

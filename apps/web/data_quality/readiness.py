"""The checklist of the first run."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.http import HttpResponseBase
from msgspec import Struct

from apps.clusters.domain.resources import counted
from apps.operations.selectors import (
    ClusterProgress,
    LoadedCatalog,
    collection_progress,
    loaded_catalog,
)
from apps.usage import selectors as usage
from apps.web.components.formats import duration
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session
from apps.web.usage.comparison import freshness_compared

# `watch` notes at least that often up to when it saw everything.
_WATCH_STALE = timedelta(minutes=5)
_MANAGE = "python manage.py"


class ChecklistItem(Struct, frozen=True):
    """One line of the checklist. `state` is done, working, todo or failed.

    `say` tells how it stands, `command` what to run where something is to be done, `docs` the
    document about it, `page` the name of the page that tells more. `done_hours` of `due_hours`
    draw a bar where there are any.
    """

    id: str
    title: str
    state: str
    say: str
    command: str = ""
    docs: str = ""
    page: str = ""
    done_hours: int = 0
    due_hours: int = 0


def steps(
    loaded: LoadedCatalog, clusters: Sequence[ClusterProgress], now: datetime
) -> list[ChecklistItem]:
    """Return the checklist in the order in which it is gone through."""
    first = [_catalog(loaded)]
    for cluster in clusters:
        first += [_connection(cluster), _watch(cluster, now), _hours(cluster)]
    return first if clusters else [*first, *_LATER]


def is_over(checklist: Sequence[ChecklistItem]) -> bool:
    """Say whether nothing is left to do or under way."""
    return all(step.state == "done" for step in checklist)


_LATER = (
    ChecklistItem(
        "connection", "Connection to Prometheus", "todo", "Starts when a catalog is loaded."
    ),
    ChecklistItem(
        "watch", "Watch of the Kubernetes API", "todo", "Starts when a catalog is loaded."
    ),
    ChecklistItem("hours", "Hours collected", "todo", "Start when a catalog is loaded."),
)


def _catalog(loaded: LoadedCatalog) -> ChecklistItem:
    done = bool(loaded.clusters and loaded.tiers)
    counts = (
        f"{counted(loaded.clusters, 'cluster')}, {counted(loaded.tiers, 'tier')} and "
        f"{counted(loaded.teams, 'team')}"
    )
    return ChecklistItem(
        "catalog",
        "Catalog loaded",
        "done" if done else "todo",
        f"{counts}." if done else f"It names clusters, tiers and teams. Loaded so far: {counts}.",
        command="" if done else f"{_MANAGE} load_catalog catalog.yaml",
        docs="docs/catalog.md",
    )


def _connection(row: ClusterProgress) -> ChecklistItem:
    title = f"Prometheus of {row.cluster}"
    named = f"connection-{row.cluster}"
    # Before failures: one hour with facts proves the connection.
    if row.done_hours:
        return ChecklistItem(named, title, "done", "Prometheus answers.", docs="docs/operations.md")
    if row.failed_hours:
        say = row.error or "The last attempt failed. Administrators see the error."
        command = f"{_MANAGE} backfill --cluster {row.cluster} --days 1"
        return ChecklistItem(
            named, title, "failed", say, command=command, docs="docs/operations.md"
        )
    if row.due_hours:
        say = "The first hour is being collected. A worker must run."
        return ChecklistItem(
            named, title, "working", say, command=_WORKER, docs="docs/operations.md"
        )
    say = "No query yet. Worker and beat must run."
    return ChecklistItem(named, title, "todo", say, command=_WORKER, docs="docs/operations.md")


_WORKER = "celery -A gpuportal worker & celery -A gpuportal beat"


def _watch(row: ClusterProgress, now: datetime) -> ChecklistItem:
    title, named = f"Watch of {row.cluster}", f"watch-{row.cluster}"
    # A cluster without an API is a choice of its catalog, and nothing to be done about it.
    if not row.has_api:
        say = "No API access: the pods of this cluster are known from its metrics."
        return ChecklistItem(named, title, "done", say, docs="docs/catalog.md")
    command = f"{_MANAGE} watch --cluster {row.cluster}"
    if row.watched_until is None:
        say = "The watch has not read the Kubernetes API yet."
        return ChecklistItem(named, title, "todo", say, command=command, docs="docs/operations.md")
    away = now - row.watched_until
    if away > _WATCH_STALE:
        say = f"The watch last read the cluster {duration(away.total_seconds())} ago."
        return ChecklistItem(
            named, title, "failed", say, command=command, docs="docs/operations.md"
        )
    return ChecklistItem(
        named, title, "done", "The watch follows the Kubernetes API.", docs="docs/operations.md"
    )


def _hours(row: ClusterProgress) -> ChecklistItem:
    """Return the step of the hours: the first one, then all that are due."""
    title, named = f"Hours of {row.cluster}", f"hours-{row.cluster}"
    if not row.due_hours:
        say = "No hour requested yet. Collect past hours with:"
        command = f"{_MANAGE} backfill --cluster {row.cluster} --days 14"
        return ChecklistItem(named, title, "todo", say, command=command, docs="docs/operations.md")
    left = row.due_hours - row.done_hours
    say = f"{row.done_hours} of {counted(row.due_hours, 'hour')} collected."
    if not row.done_hours:
        say = f"No hour is collected yet; {counted(row.due_hours, 'hour')} are due."
    if row.failed_hours:
        say += f" {counted(row.failed_hours, 'hour')} failed{': ' if row.error else '.'}{row.error}"
    # As long as some hours are still to come, failed ones may be tried again among them.
    state = "done" if not left else "failed" if left == row.failed_hours else "working"
    return ChecklistItem(
        named,
        title,
        state,
        say,
        docs="docs/operations.md",
        page="data-quality" if row.failed_hours else "",
        done_hours=row.done_hours,
        due_hours=row.due_hours,
    )


@page
def first_run_page(request: PageRequest) -> HttpResponseBase:
    return _checklist(request, query_session(request))


def in_place_of_charts(request: PageRequest, reading: QuerySession) -> HttpResponseBase | None:
    """Return the checklist while no hour has facts, None from then on.

    The freshness is read as the pages read it that compare.
    """
    if freshness_compared(reading).ready or usage.data_ready():
        return None
    return _checklist(request, reading)


def _checklist(request: PageRequest, reading: QuerySession) -> HttpResponseBase:
    """Answer with the checklist; who may not see how the portal runs gets a sentence."""
    ready = usage.data_ready()
    items: list[ChecklistItem] = []
    if reading.visibility.operations:
        progress = collection_progress(visibility=reading.visibility)
        items = steps(loaded_catalog(), progress, reading.now)
    return respond(
        request,
        reading,
        "first_run",
        steps=items,
        ready=ready,
        over=ready and is_over(items),
    )

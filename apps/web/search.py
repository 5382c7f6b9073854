"""Search: a team, tier, namespace, workload or pod by its name."""

from collections.abc import Iterable
from datetime import datetime

from django.http import HttpResponseBase
from msgspec import Struct, field

from apps.usage.selectors import POD_DAYS, ResultKind, SearchResult, search_by_name
from apps.web.components.formats import duration
from apps.web.components.page_query import href, workload_href
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

LEAST_LETTERS = 2
PER_KIND = 25
SUGGESTED_PER_KIND = 5
LONGEST_NAME = 253  # of anything in Kubernetes, and twice that with its namespace
_PLURALS = {
    ResultKind.TEAM: "Teams",
    ResultKind.TIER: "Tiers",
    ResultKind.NAMESPACE: "Namespaces",
    ResultKind.WORKLOAD: "Workloads",
    ResultKind.POD: "Pods",
}


class Hit(Struct, frozen=True):
    """One line of the results; `where` says in which namespace and cluster it is."""

    name: str
    href: str | None
    where: str
    team: str
    seen: str


class ResultGroup(Struct, frozen=True):
    """The results of one kind; `more` says that there are others."""

    title: str
    hits: list[Hit] = field(default_factory=list)
    more: bool = False


@page
def search(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request)
    text = request.GET.get("q", "").replace("\0", "").strip()[: 2 * LONGEST_NAME]
    # htmx asks while somebody types: a few suggestions come sooner.
    limit = SUGGESTED_PER_KIND if request.htmx else PER_KIND
    groups = _groups(text, reading, limit) if len(text) >= LEAST_LETTERS else []
    return respond(
        request,
        reading,
        "search",
        text=text,
        groups=groups,
        total=sum(len(group.hits) for group in groups),
        more=any(group.more for group in groups),
        too_short=len(text) < LEAST_LETTERS,
        pod_days=POD_DAYS,
    )


def _groups(text: str, reading: QuerySession, limit: int) -> list[ResultGroup]:
    # One more than is shown tells that there are others.
    found = search_by_name(text, visibility=reading.visibility, now=reading.now, limit=limit + 1)
    by_kind: dict[ResultKind, list[SearchResult]] = {}
    for row in found:
        by_kind.setdefault(row.kind, []).append(row)
    return [
        ResultGroup(_PLURALS[kind], _hits(rows[:limit], reading), more=len(rows) > limit)
        for kind, rows in by_kind.items()
    ]


def _hits(rows: Iterable[SearchResult], reading: QuerySession) -> list[Hit]:
    return [
        Hit(
            name=f"{row.owner_kind}/{row.name}" if row.owner_kind else row.name,
            href=_address(row, reading),
            where=" · ".join(part for part in (row.namespace, row.cluster) if part),
            team=row.team or "" if row.kind is not ResultKind.TEAM else "",
            seen=_seen(row, reading.now),
        )
        for row in rows
    ]


def _address(row: SearchResult, reading: QuerySession) -> str | None:
    if row.kind is ResultKind.TIER:
        return href("tier", reading.query, name=row.name)
    if row.kind is ResultKind.WORKLOAD:
        named = f"{row.owner_kind}/{row.name}"
        return workload_href(row.cluster, row.namespace, named, reading.query)
    if row.kind is ResultKind.POD:
        return href("pod", reading.query, cluster=row.cluster, uid=row.uid)
    # Namespaces are shown on the page of their team, which this reader may not see.
    if row.team is None:
        return None
    address = href("team", reading.query, name=row.team)
    return f"{address}#namespaces" if address and row.kind is ResultKind.NAMESPACE else address


def _seen(row: SearchResult, now: datetime) -> str:
    """Return when it was last there, in words; empty for what has no pods of its own."""
    if row.alive:
        return "running"
    if row.last_seen_at is None:
        return ""
    return f"seen {duration(max(0.0, (now - row.last_seen_at).total_seconds()))} ago"

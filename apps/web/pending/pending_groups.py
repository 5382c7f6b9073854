"""Groups of pending workloads: a row for each workload, and one fix for the group."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from apps.clusters.domain.resources import gpus, quantity
from apps.pending.domain.diagnosis import Action
from apps.pending.domain.wording import used_of
from apps.pending.domain.workload_groups import (
    CONFIGURATION,
    REASON,
    GroupKey,
    PendingItemSummary,
)
from apps.pending.selectors import (
    PendingGroup,
    PendingRow,
    PendingWorkload,
    PendingWorkloads,
    SuggestionRow,
)
from apps.web.components.commands import kubectl
from apps.web.components.formats import Format, Value, duration
from apps.web.components.page_query import Query, href, workload_href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.pending.pending_table import (
    Badge,
    badge,
    class_of,
    detail_text,
    of_asker,
    pending_href,
)
from apps.web.pending.suggestions import ask_of, owner_of
from apps.web.query_session import QuerySession

_OPEN_ROWS = 6
"""Workloads that are seen at once; later groups are closed."""
_MOST_ITEMS = 5
_RAISES = (Action.RAISE_QUEUE_QUOTA, Action.RAISE_QUOTA)


class ItemLine(Struct, frozen=True):
    """Another pending item of a workload."""

    item: PendingItemSummary
    href: str
    badge: Badge


class WorkloadLine(Struct, frozen=True):
    """A pending workload as its row says it; `place` reads `3 of 4`, `reason` is one line.

    `reason` is empty where the head of the group says all. `items` are some of its other items,
    `more` is how many others there are.
    """

    id: str
    row: PendingRow
    name: str
    kind: str
    href: str
    workload_href: str
    place: str
    size: str
    age: str
    badge: Badge
    reason: str
    items: Sequence[ItemLine]
    count: int
    more: int
    fixes: Sequence[SuggestionRow]
    command: str
    is_owners: bool


class GroupFix(Struct, frozen=True):
    """What helps all of a group; `ask` leads to the request form, filled in."""

    text: str
    who: str = ""
    ask: str = ""


class GroupLine(Struct, frozen=True):
    """A group with its rows; `used` reads `17 of 17 in use`."""

    id: str
    label: str
    kind: str
    cluster: str
    used: str
    count: int
    gpus: str
    age: str
    fix: GroupFix | None
    workloads: Sequence[WorkloadLine]
    is_open: bool


def group_list(groups: Iterable[PendingGroup], reading: QuerySession) -> list[GroupLine]:
    """Return the groups of a page; the first ones are open."""
    lines: list[GroupLine] = []
    seen = 0
    for number, group in enumerate(groups):
        # The first group is open however long it is, or the page would begin with nothing.
        is_open = not lines or seen + len(group.workloads) <= _OPEN_ROWS
        lines.append(_group_line(f"group-{number}", group, reading, is_open=is_open))
        # Once one is closed all later ones are: a short group far below is not what to look at.
        seen += len(group.workloads) if is_open else _OPEN_ROWS
    return lines


def _group_line(
    line_id: str, group: PendingGroup, reading: QuerySession, *, is_open: bool
) -> GroupLine:
    key = group.key
    return GroupLine(
        id=line_id,
        label=label_of(key),
        kind="" if key.kind in ("", REASON, "team") else key.kind,
        cluster=key.cluster if len(reading.clusters) > 1 else "",
        used=_used(group.workloads, key),
        count=group.count,
        gpus=gpus(group.gpus) if group.gpus else "",
        age=duration(max(0.0, (reading.now - group.since).total_seconds())),
        fix=fix_of(group.workloads, key),
        workloads=[_workload_line(one, key, reading) for one in group.workloads],
        is_open=is_open,
    )


def label_of(key: GroupKey) -> str:
    """Return the name of a group; empty where nothing is grouped."""
    if key.kind == REASON:
        return "Configuration issue" if key.name == CONFIGURATION else key.name.capitalize()
    name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    return f"{name} · {key.resource}" if key.resource else name


def _used(workloads: Sequence[PendingWorkload], key: GroupKey) -> str:
    if not key.cluster:
        return ""
    places = [one.row.place for one in workloads if one.row.place and one.row.place.limit]
    if not places:
        return ""
    # All of a group stand before the same limit, so the first tells it.
    return used_of(places[0].used, places[0].limit, places[0].most)


def fix_of(workloads: Sequence[PendingWorkload], key: GroupKey) -> GroupFix | None:
    """Return the one change that helps a group most; None where each needs its own."""
    if not key.cluster:
        return _first_of_reason(workloads, key)
    raised = [
        (one.row, change)
        for one in workloads
        # Suggestions come with the best first; a second one would contradict the row.
        for change in one.row.suggestions[:1]
        if change.action in _RAISES
    ]
    if raised:
        # The raise that admits most: smaller ones are part of it.
        row, change = max(raised, key=lambda pair: pair[1].admits)
        return GroupFix(_raise_text(change, workloads), "platform admin", ask_of(change, row))
    first = workloads[0].row.suggestions[:1] if workloads else ()
    return GroupFix(first[0].text, owner_of(first[0].action)) if first else None


def _first_of_reason(workloads: Sequence[PendingWorkload], key: GroupKey) -> GroupFix | None:
    """Return what the first workload of a reason lacks: each of them needs its own fix."""
    if key.kind != REASON or not workloads:
        return None
    row = workloads[0].row
    name = row.workload.partition("/")[2]
    if row.suggestions:
        first = row.suggestions[0]
        return GroupFix(f"{name}: {first.text}", owner_of(first.action))
    more = " and others" if len(workloads) > 1 else ""
    return GroupFix(f"{name}{more}: {row.cause} {detail_text(row.cause, row.detail)}".rstrip(": "))


def _raise_text(given: SuggestionRow, workloads: Sequence[PendingWorkload]) -> str:
    """Return `+4 admits all 4 pods`, or `Raise to 6` of a quota that is not a plain number.

    The queue counts Kueue's Workloads, which may be of one pod each, or of all pods of a job.
    """
    before, after = given.change.get("from"), given.change.get("to")
    # Quantities with a suffix are text, and no difference can be taken of them here.
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return f"Raise to {after}" if after else "Raise the quota"
    pods = sum(1 for one in workloads for item in one.items if item.kind == "Pod")
    of = f"all {given.admits} pending" if given.admits else "1"
    if given.admits == pods > 1:
        of = f"all {pods} pods"
    elif given.admits == len(workloads) > 1:
        of = f"all {len(workloads)} workloads"
    return f"+{quantity(after - before)} admits {of}"


def _workload_line(one: PendingWorkload, key: GroupKey, reading: QuerySession) -> WorkloadLine:
    row, query = one.row, reading.query
    kind, _, name = row.workload.partition("/")
    place = row.place if row.place and row.place.place else None
    # The row itself shows the first item.
    others = [item for item in one.items if item.id != row.id]
    return WorkloadLine(
        id=f"pending-{row.id}",
        row=row,
        name=name,
        kind=kind,
        href=pending_href(row, query) or "",
        workload_href=workload_href(row.cluster, row.namespace, row.workload, query) or "",
        place=f"{place.place} of {place.of}" if place else "",
        size=gpus(one.gpus or row.gpu_equivalents) if one.gpus or row.gpu_equivalents else "",
        age=duration(max(0.0, (reading.now - one.since).total_seconds())),
        badge=badge(row.cause, row.detail),
        reason="" if place and key.cluster else row.explanation or row.message,
        items=[_item_line(item, query) for item in others[:_MOST_ITEMS]],
        count=len(one.items),
        more=len(others[_MOST_ITEMS:]),
        fixes=row.suggestions,
        command=command_of(row),
        is_owners=of_asker(row.cause),
    )


def _item_line(item: PendingItemSummary, query: Query) -> ItemLine:
    link = href("pending-detail", query, cluster=item.cluster, uid=item.uid) if item.uid else None
    return ItemLine(item, link or "", badge(item.cause, item.detail))


_KINDS = {
    "Workload": "workloads.kueue.x-k8s.io",
    "PodGroup": "podgroups",
    "ResourceClaim": "resourceclaims",
}


def command_of(row: PendingRow) -> str:
    """Return the line that shows an item with its events in a shell."""
    return kubectl(
        "describe", _KINDS.get(row.kind, row.kind.lower()), row.name, namespace=row.namespace
    )


_COLUMNS = (
    Column("group", "Group"),
    Column("workload", "Workload", hint="Kind/name of the top controller."),
    Column("items", "Items", Format.COUNT, "", "pods, Workloads and controllers that pend for it"),
    Column("cluster", "Cluster"),
    Column("namespace", "Namespace"),
    Column("team", "Team"),
    Column("tier", "Tier"),
    Column("position", "Position"),
    Column("gpu_equivalents", "Requests", Format.NUMBER, "GPUs"),
    Column("since", "Since", Format.TIME),
    Column("wait_seconds", "Pending for", Format.SECONDS),
    Column("counts", "Counts as"),
    Column("cause", "Cause"),
    Column("class", "Class", hint="how charts group the causes"),
    Column("detail", "Detail"),
    Column("explanation", "Explanation"),
    Column("message", "Scheduler message"),
    Column("suggestion", "How to fix"),
    Column("stale", "Stale", hint="whether no watch follows the cluster now"),
)


def pending_file(found: PendingWorkloads, reading: QuerySession) -> Table:
    """Return the table that a file carries: a row per workload, in the order of the page.

    The page draws its groups itself.
    """
    return Table(
        id="waiting",
        title="Pending workloads",
        columns=_COLUMNS,
        rows=(),
        zone=reading.choice.zone,
        empty="",
        every=lambda: _file_rows(found.every(), reading),
        ordered=True,
    )


def _file_rows(groups: Iterable[PendingGroup], reading: QuerySession) -> Iterator[TableRow]:
    for group in groups:
        for one in group.workloads:
            yield TableRow(_values(one, group.key, reading))


def _values(one: PendingWorkload, key: GroupKey, reading: QuerySession) -> dict[str, Value]:
    row = one.row
    place = row.place if row.place and row.place.place else None
    return {
        "group": label_of(key),
        "workload": row.workload,
        "items": len(one.items),
        "cluster": row.cluster,
        "namespace": row.namespace,
        "team": row.team,
        "tier": row.tier,
        "position": f"{place.place} of {place.of}" if place else "",
        "gpu_equivalents": one.gpus or row.gpu_equivalents or None,
        "since": one.since,
        "wait_seconds": max(0.0, (reading.now - one.since).total_seconds()),
        "counts": row.counts,
        "cause": row.cause,
        "class": class_of(row.cause).label,
        "detail": row.detail,
        "explanation": row.explanation,
        "message": row.message,
        "suggestion": row.suggestion or "",
        "stale": "yes" if row.stale else "no",
    }

"""One pending item: the answer in sentences, what is ahead of it, and its history."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from apps.clusters.domain.resources import gpus
from apps.pending.domain.diagnosis import Outcome
from apps.pending.domain.placement.messages import parse
from apps.pending.selectors import (
    BlockingPod,
    BlockingTeam,
    CauseIntervalRow,
    EpisodeRow,
    PendingRow,
    TypicalQueueTime,
)
from apps.web.components.formats import Format, duration, shown
from apps.web.components.listings import LASTED, lasted
from apps.web.components.page_query import FEW_ROWS, href, workload_href
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    attributes,
    declared_columns,
    declared_values,
)
from apps.web.pending.pending_table import COUNTS, detail_text
from apps.web.query_session import QuerySession

OUTCOMES = {
    Outcome.STARTED.value: "started",
    Outcome.GAVE_UP.value: "was canceled before start",
    Outcome.REFUSED.value: "was refused",
    Outcome.SETTLED.value: "started",
}
FEWEST = 5
"""Requests alike of which fewer started tell nothing about how long it takes."""


def headline(row: PendingRow, reading: QuerySession) -> str:
    """Return in one sentence what is pending, for how long, and what it requests."""
    # Nothing pends for no GPUs: of this one the ResourceClaims are not known.
    size = gpus(row.gpu_equivalents) if row.gpu_equivalents else "GPUs (no data on their size)"
    request = f"{size} on {row.tier}"
    whole = f"{row.kind} {row.name}"
    age = duration(row.wait_seconds)
    # Before anything else: what is over is told in the past, whatever it counted as.
    if row.until is not None:
        at = shown(row.until, Format.TIME, reading.choice.zone)
        ended = OUTCOMES.get(row.outcome, "ended")
        return f"{whole} was pending for {age}, requested {request}, and {ended} at {at}."
    if row.counts == "starting":
        return f"{whole} has {request} and has not started: created {age} ago."
    if row.counts == "suppressed":
        return f"{whole} has been blocked at admission for {age}: it requests {request}."
    again = "lost its GPUs and has been pending again" if row.again else "has been pending"
    return f"{whole} {again} for {age}: it requests {request}."


class Reason(Struct, frozen=True):
    """What the scheduler counted: `text` turned down so many `nodes` of `of` (0: not told)."""

    text: str
    nodes: int
    of: int
    share: str


def reasons(row: PendingRow) -> list[Reason]:
    """Return the scheduler's reasons, the most nodes first. A node may have several."""
    # The message alone says how many nodes there were; the reasons may count a node twice.
    whole = parse(row.message).nodes or 0
    ordered = sorted(row.node_reasons.items(), key=lambda item: (-item[1], item[0]))
    return [
        Reason(text, nodes, whole, f"{min(1.0, nodes / whole):.3f}" if whole > 0 else "")
        for text, nodes in ordered
    ]


def typical_words(found: TypicalQueueTime | None, row: PendingRow) -> tuple[str, str]:
    """Return how long such requests usually wait, and of what that is known."""
    what = f"pods that requested {row.units:g} × {row.resource} on {row.tier}, last 30 days"
    if found is None:
        return "no data", f"fewer than {FEWEST} {what}"
    low, high = duration(found.p50_seconds), duration(found.p95_seconds)
    return f"p50 {low}, p95 {high}", f"{found.count:,} {what}"


# ---------------------------------------------------------------- timeline


def timeline(found: EpisodeRow, reading: QuerySession) -> Table:
    """Return a line per change of cause, oldest first."""
    return Table(
        id="timeline",
        title="Status history",
        columns=declared_columns(CauseIntervalRow, after={"until": [LASTED]}),
        rows=[_interval(one, reading) for one in found.intervals],
        zone=reading.choice.zone,
        empty="No change of its cause is kept.",
        note="A line without an end is still running.",
        ordered=True,
    )


def _interval(one: CauseIntervalRow, reading: QuerySession) -> TableRow:
    return TableRow(
        {
            **declared_values(one),
            **lasted(one.start, one.end, reading.now),
            "counts": COUNTS.get(one.counts, one.counts),
        }
    )


def earlier(episodes: Sequence[EpisodeRow], reading: QuerySession) -> Table:
    """Return a line per episode before the one shown, newest first."""
    return Table(
        id="earlier",
        title="Pending history",
        columns=[
            Column("since", "Since", Format.TIME),
            Column("until", "Until", Format.TIME),
            Column("wait_seconds", "Queue time", Format.SECONDS),
            Column("outcome", "Then it"),
            Column("cause", "Last cause"),
            Column("detail", "Detail"),
        ],
        rows=[
            TableRow(
                attributes(one.row, "since", "until", "wait_seconds", "cause", "detail")
                | {"outcome": OUTCOMES.get(one.row.outcome, one.row.outcome)}
            )
            for one in episodes
        ],
        zone=reading.choice.zone,
        empty="It did not wait before.",
    )


# ---------------------------------------------------------------- who is in front

_MOST_PODS = 100


def teams_in_front(teams: Sequence[BlockingTeam], reading: QuerySession) -> Table:
    """Return a row per team that holds what it needs, the most idle first."""
    return Table(
        id="front",
        title="Blocking teams",
        columns=declared_columns(BlockingTeam),
        rows=[
            TableRow(declared_values(one), {"team": href("team", reading.query, name=one.team)})
            for one in teams
        ],
        zone=reading.choice.zone,
        empty="No team is known to hold what this workload needs.",
        note="Their pods hold what this workload needs; the most idle come first.",
    )


def pods_in_front(teams: Sequence[BlockingTeam], reading: QuerySession) -> Table:
    """Return a line per holding pod that the reader may see, the idlest first."""
    pods = sorted((pod for team in teams for pod in team.listed), key=_idleness)
    teams_of = {pod.uid: team.team for team in teams for pod in team.listed}
    return Table(
        id="holders",
        title="Blocking pods",
        columns=declared_columns(BlockingPod, after={"pod": [Column("team", "Team")]}),
        rows=[_holder(pod, teams_of[pod.uid], reading) for pod in pods[:_MOST_PODS]],
        zone=reading.choice.zone,
        empty="None of the pods in front is of your teams.",
        page_length=FEW_ROWS,
    )


def _idleness(pod: BlockingPod) -> tuple[bool, float, float, str]:
    # Pods without metrics come last: it is unknown whether they are idle.
    return (pod.utilization is None, pod.utilization or 0.0, -pod.gpu_equivalents, pod.uid)


def _holder(pod: BlockingPod, team: str, reading: QuerySession) -> TableRow:
    return TableRow(
        declared_values(pod) | {"team": team},
        {"pod": href("pod", reading.query, cluster=pod.cluster, uid=pod.uid)},
    )


# ---------------------------------------------------------------- on other pages


class PendingExplanation(Struct, frozen=True):
    """Why a pod or a workload is pending, on its own page: the words and a link to more."""

    cause: str
    detail: str
    text: str
    suggestion: str
    href: str | None
    since: datetime


def why(rows: Sequence[PendingRow], reading: QuerySession) -> PendingExplanation | None:
    """Return the cause of the longest pending item; None where nothing is pending."""
    if not rows:
        return None
    # What counts with its workload has no cause of its own: the others tell more.
    row = min(rows, key=lambda one: (one.counts == "nothing", one.since))
    return PendingExplanation(
        cause=row.cause,
        detail=detail_text(row.cause, row.detail),
        text=row.explanation or row.message,
        suggestion=row.suggestion or "",
        href=href("pending-detail", reading.query, cluster=row.cluster, uid=row.uid),
        since=row.since,
    )


def links_of(row: PendingRow, reading: QuerySession) -> Mapping[str, str | None]:
    """Return the addresses of what the thing belongs to."""
    query = reading.query
    return {
        "team": href("team", query, name=row.team),
        "tier": href("tier", query, name=row.tier),
        "workload": workload_href(row.cluster, row.namespace, row.workload, query),
        "pod": href("pod", query, cluster=row.cluster, uid=row.uid) if row.kind == "Pod" else None,
    }

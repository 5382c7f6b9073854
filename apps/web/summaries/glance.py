"""What the first pages read beside the ledger: the last month, the largest waste, the waits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from apps.clusters.domain.window import Window
from apps.pending.selectors import PendingKnown, PodCause, causes_of, pending_known
from apps.usage import selectors as usage
from apps.usage.domain.rows import Grouping, TimeStep
from apps.usage.selectors import PendingGpus, WaitingPod, WasteRow, waiting_of
from apps.web.components.formats import duration
from apps.web.components.ledger import IDLE, NOT_RUNNING, UNDERUSED, LedgerClass
from apps.web.components.links import href
from apps.web.forms import DAY
from apps.web.pending.causes import Badge, badge
from apps.web.query_session import QuerySession, of_page, usage_of
from apps.web.summaries.cards import rows_by
from apps.web.summaries.sparkline import Sparkline, days_until, sparkline

TOP = 5
_LONGEST_WASTE = 62 * DAY
_RECENT_WASTE = 30 * DAY
_CAUSES = (IDLE, UNDERUSED, NOT_RUNNING)


@dataclass(frozen=True, slots=True)
class WastePart:
    """One cause of a workload's waste; `percent` of the largest waste shown, 0..100."""

    cls: LedgerClass
    gpu_hours: int
    percent: float


@dataclass(frozen=True, slots=True)
class WasteLine:
    """One workload with its link; `share` is of what it held, 0..1."""

    row: WasteRow
    kind: str
    name: str
    href: str | None
    tier_href: str | None
    share: float
    parts: Sequence[WastePart]


@dataclass(frozen=True, slots=True)
class TopWaste:
    """The largest waste; `days`: of so many days at the window's end alone, 0 for all of it."""

    lines: Sequence[WasteLine]
    days: int


@dataclass(frozen=True, slots=True)
class WaitLine:
    """One pod that waits, for how long in words, and its link.

    `cause` says why and `cause_href` more of it; None before the pod was looked at.
    """

    row: WaitingPod
    age: str
    href: str | None
    team_href: str | None
    tier_href: str | None
    cause: Badge | None = None
    cause_href: str | None = None


def sparklines(reading: QuerySession, *, tier: str = "") -> dict[str, Sparkline | None]:
    """Return by tier its days up to the end of the reading's window. Five queries at most."""
    if not reading.has_capacity:
        return {}  # the bars are parts of a capacity
    choice = reading.choice
    days = days_until(choice.last, choice.zone, reading.window.end)
    rows = usage_of(
        reading,
        by=[Grouping.TIER],
        interval=TimeStep.DAY,
        narrowed=of_page(reading, tier=tier),
        window=days,
    )
    return {
        name: sparkline(own, choice.last, choice.zone)
        for name, own in rows_by(rows, Grouping.TIER).items()
    }


def largest_waste(reading: QuerySession, *, team: str = "") -> TopWaste:
    """Return the workloads that held most without using it.

    In the reading's window, or the last days of one so long that workloads gone for months would
    fill the list.
    """
    window = reading.window
    long = window.end - window.start > _LONGEST_WASTE
    recent = Window(window.end - _RECENT_WASTE, window.end) if long else window
    filters, sees = of_page(reading, team=team), reading.visibility
    rows = usage.cached(
        "largest-waste",
        (recent, filters, sees.everything, sorted(sees.team_ids), TOP, reading.choice.zone.key),
        lambda: usage.largest_waste(
            recent, filters=filters, visibility=sees, limit=TOP, zone=reading.choice.zone
        ),
    )
    most = max((row.not_used for row in rows), default=0)
    lines = [_waste_line(row, most, reading) for row in rows]
    return TopWaste(lines, _RECENT_WASTE.days if long else 0)


def waiting(reading: QuerySession, *, tier: str = "") -> list[PendingGpus]:
    """Return what waits now by tier, of the page's clusters, tiers, teams and namespaces.

    Like `wait_lines` it does not mind GPU models and capacity types.
    """
    own = of_page(reading, tier=tier)
    if own.team or own.namespace:
        return waiting_of(reading.now, filters=own, visibility=reading.visibility)
    rows = usage.waiting_now(reading.now, visibility=reading.visibility, filters=own)
    return [row for row in rows if not own.tier or row.tier in own.tier]


def known_until(reading: QuerySession) -> PendingKnown:
    """Return until when it is known what pends on the page's clusters."""
    return pending_known(reading.now, clusters=reading.filters.cluster)


def known_earlier(pending: PendingKnown, now: datetime) -> list[tuple[str, datetime | None]]:
    """Return the clusters of which it is not known what pends now, with until when it was."""
    return [(name, until) for name, until in pending.until.items() if until != now]


def wait_lines(
    reading: QuerySession, *, tier: str = "", team: str = "", limit: int = TOP
) -> list[WaitLine]:
    """Return the pods that wait now and have waited longest, of those the reader sees.

    A pod that waits has no GPU model and no capacity type, so filters on these do not narrow it.
    """
    own = of_page(reading, tier=tier, team=team)
    rows = usage.oldest_waits(
        reading.now,
        filters=replace(own, gpu_model=(), capacity_type=()),
        visibility=reading.visibility,
        limit=limit,
    )
    pods = [(row.cluster, row.uid) for row in rows]
    causes = causes_of(pods, at=reading.now, visibility=reading.visibility)
    return [_wait_line(row, causes.get((row.cluster, row.uid)), reading) for row in rows]


def _waste_line(row: WasteRow, most: int, reading: QuerySession) -> WasteLine:
    kind, _, name = row.workload.partition("/")
    parts = ((cls, getattr(row, cls.key)) for cls in _CAUSES)
    return WasteLine(
        row=row,
        kind=kind,
        name=name,
        href=href(
            "workload",
            reading.query,
            cluster=row.cluster,
            namespace=row.namespace,
            kind=kind,
            name=name,
        ),
        tier_href=href("tier", reading.query, name=row.tier),
        share=row.not_used / row.allocated if row.allocated else 0.0,
        parts=[
            WastePart(cls, hours, round(100 * hours / most, 2)) for cls, hours in parts if hours
        ],
    )


def _wait_line(row: WaitingPod, why: PodCause | None, reading: QuerySession) -> WaitLine:
    return WaitLine(
        row=row,
        age=duration((reading.now - row.since).total_seconds()),
        href=href("pod", reading.query, cluster=row.cluster, uid=row.uid),
        team_href=href("team", reading.query, name=row.team),
        tier_href=href("tier", reading.query, name=row.tier),
        cause=badge(why.cause, why.detail) if why else None,
        cause_href=(
            href("pending-detail", reading.query, cluster=row.cluster, uid=row.uid) if why else None
        ),
    )

"""The home page: headline, tiers, top unused workloads, longest pending, teams near entitlement."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render

from apps.clusters import selectors as clusters
from apps.quotas.selectors import Entitled, entitled_teams
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep
from apps.usage.selectors import AllocatedGpus, CoverageGap, gap_tiers, held_now
from apps.web.components import charts, listings, tables
from apps.web.components.page_query import EVERY, href, path_of, with_query
from apps.web.components.tables import Table
from apps.web.data_quality.readiness import in_place_of_charts
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    Quality,
    QuerySession,
    axis_of,
    freshness_of,
    quality_of,
    query_session,
    usage_of,
)
from apps.web.usage import glance
from apps.web.usage.comparison import (
    Comparison,
    Difference,
    Differences,
    WindowSums,
    compared,
    gpu_hours_text,
    gpus_text,
)
from apps.web.usage.glance import TierCard, TierContext, rows_by, tier_cards, tier_waiting

_COVERED = 0.995


@dataclass(frozen=True, slots=True)
class Extreme:
    """A tier that stands out, and its ratio as a fraction."""

    tier: str
    href: str | None
    ratio: float


@dataclass(frozen=True, slots=True)
class Headline:
    """The words are in the template. The ratios are set for one tier alone.

    Tiers are never blended into one ratio: with several, `fullest` and `least_busy` name those
    that stand out. `not_used` is in nano-GPU-hours. `limits` are sentences on what the figures
    lack.
    """

    sums: WindowSums
    tiers: int
    capacity_gpus: str
    allocated_gpus: str
    not_used_gpus: str
    allocation_ratio: float | None
    utilization_ratio: float | None
    not_used: int
    not_used_gpu_hours: str
    not_used_change: Difference | None
    fullest: Extreme | None
    least_busy: Extreme | None
    limits: Sequence[str]


def headline(
    cards: Sequence[TierCard], comparison: Comparison, quality: Quality
) -> Headline | None:
    """Return the headline over all tiers; None where the window has no capacity."""
    total = comparison.sums()
    if total is None or not total.gpus.capacity:
        return None
    changes = comparison.changes()
    there = [card for card in cards if card.sums is not None and card.sums.gpus.capacity]
    alone = len(there) == 1
    return Headline(
        sums=total,
        tiers=len(there),
        capacity_gpus=gpus_text(total.gpus.capacity),
        allocated_gpus=gpus_text(total.gpus.allocated),
        not_used_gpus=gpus_text(total.gpus.not_used),
        allocation_ratio=total.amounts.allocation_ratio if alone else None,
        utilization_ratio=total.amounts.utilization_ratio if alone else None,
        not_used=total.amounts.not_used,
        not_used_gpu_hours=gpu_hours_text(total.amounts.not_used),
        not_used_change=changes.not_used if changes else None,
        fullest=None if alone else _extreme(there, "allocation_ratio", largest=True),
        least_busy=None if alone else _extreme(there, "utilization_ratio", largest=False),
        limits=[
            text
            for text in (_lost_hours(quality), _per_hour(comparison, changes), _unmeasured(total))
            if text
        ],
    )


def _extreme(cards: Sequence[TierCard], name: str, *, largest: bool) -> Extreme | None:
    ratios = [
        (ratio, card)
        for card in cards
        if card.sums is not None and (ratio := getattr(card.sums.amounts, name)) is not None
    ]
    if not ratios:
        return None
    ratio, card = (max if largest else min)(ratios, key=lambda found: found[0])
    return Extreme(card.name, card.href, ratio)


def _lost_hours(quality: Quality) -> str:
    lost = (quality.missing.count if quality.missing else 0) + (
        quality.failed.count if quality.failed else 0
    )
    begins = f"The facts begin {quality.begins}. " if quality.begins else ""
    if not lost:
        return begins.strip()
    return f"{begins}{lost} hour{'' if lost == 1 else 's'} of the window could not be counted."


def _per_hour(comparison: Comparison, changes: Differences | None) -> str:
    if changes is None or dict(comparison.hours) == dict(comparison.hours_before):
        return ""
    return "The comparison is by the hour, since the two periods do not have equally many."


def _unmeasured(total: WindowSums) -> str:
    coverage = total.amounts.coverage_ratio
    if coverage is None or coverage >= _COVERED:
        return ""
    hours = total.amounts.unmeasured / NANO
    return (
        f"{hours:,.0f} more GPU-hours have no metrics: they count neither as active nor as unused."
    )


NEARLY = 0.8
_NOTHING = AllocatedGpus()


@dataclass(frozen=True, slots=True)
class EntitlementLine:
    """One entitlement of a team on a tier; amounts in GPU-equivalents.

    `ratio` is held ÷ entitled; `percent_held` and `percent_waiting` are of the drawn length,
    0..100: the entitlement, or held plus pending where that is more. `percent_limit` is where the
    entitlement ends in it.
    """

    team: str
    tier: str
    entitled: float
    held: float
    waiting: float
    ratio: float
    href: str | None
    tier_href: str | None
    percent_held: float
    percent_waiting: float
    percent_limit: float

    @property
    def left(self) -> float:
        """GPU-equivalents that are not held yet."""
        return max(0.0, self.entitled - self.held)

    @property
    def over(self) -> float:
        """GPU-equivalents held beyond the entitlement."""
        return max(0.0, self.held - self.entitled)


def entitlement_lines(reading: QuerySession, *, limit: int) -> list[EntitlementLine]:
    """Return the entitlements of which most is held, of all clusters. Four queries.

    Those below NEARLY are left out. An entitlement is for all clusters together, so holdings are
    counted on all of them, whichever the page shows.
    """
    entitled = entitled_teams(reading.now, visibility=reading.visibility)
    held = held_now(reading.now, visibility=reading.visibility) if entitled else {}
    lines = [_line(row, held.get((row.team, row.tier), _NOTHING), reading) for row in entitled]
    nearly = [line for line in lines if line.held + line.waiting >= NEARLY * line.entitled]
    return sorted(nearly, key=lambda line: (-line.ratio, -line.waiting, line.team))[:limit]


def _line(row: Entitled, own: AllocatedGpus, reading: QuerySession) -> EntitlementLine:
    drawn = max(row.gpus, own.held + own.waiting)

    def percent(gpus: float) -> float:
        return round(100 * gpus / drawn, 2)

    return EntitlementLine(
        team=row.team,
        tier=row.tier,
        entitled=row.gpus,
        held=own.held,
        waiting=own.waiting,
        ratio=own.held / row.gpus,
        href=href("team", reading.query, name=row.team),
        tier_href=href("tier", reading.query, name=row.tier),
        percent_held=percent(own.held),
        percent_waiting=percent(own.waiting),
        percent_limit=percent(row.gpus),
    )


_BY_TEAM = (Grouping.TEAM, Grouping.TIER)
_MOST_ENTITLEMENTS = 100_000
_MOST_TEAMS = 25  # lines; the page of the teams has more of them at a time
_MOST_TIERS = 500  # in an address, which somebody else may have written


@page
def overview(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=EVERY)
    if request.htmx and request.GET.get("part") == "now":
        return _now(request, reading)
    first_run = in_place_of_charts(request, reading)
    if first_run is not None:
        return first_run
    freshness = freshness_of(reading)
    comparison = compared(reading)
    pending = glance.known_until(reading)
    known = TierContext(
        rows=usage_of(reading, by=[Grouping.TIER]),
        waiting=glance.waiting(reading),
        comparison=comparison,
        pending=pending,
        sparklines=glance.sparklines(reading),
    )
    cards = tier_cards(_tiers(reading, known), known, reading.query, now=reading.now)
    quality = quality_of(reading, freshness, tables.summed(known.rows))
    axis = axis_of(reading, freshness)
    return respond(
        request,
        reading,
        "overview",
        tables=[listings.tiers(cards, reading), team_table(reading, page_length=_MOST_TEAMS)],
        charts=[
            charts.ledger(
                card.rows,
                chart_id=f"ledger-{n}",
                title=f"Tier {card.name}",
                axis=axis,
                classes=reading.classes,
                one_of_many=len(cards) > charts.FEW,
            )
            for n, card in enumerate(cards, start=1)
            if any(row.amounts.capacity or row.amounts.allocated for row in card.rows)
        ],
        cards=cards,
        narrowed=reading.filters != Filters(),
        comparison=comparison,
        headline=headline(cards, comparison, quality),
        waste=glance.largest_waste(reading),
        waits=glance.wait_lines(reading),
        known_earlier=glance.known_earlier(pending, reading.now),
        gaps=_coverage_gaps(reading) if comparison.gaps else [],
        entitlements=_entitlements(reading),
        now_href=_now_href(request, reading, [card.name for card in cards]),
        classes=reading.classes,
        quality=quality,
    )


def _coverage_gaps(reading: QuerySession) -> list[CoverageGap]:
    tiers = reading.filters.tier
    return gap_tiers(reading.window, visibility=reading.visibility, tiers=tiers)


def _now(request: PageRequest, reading: QuerySession) -> HttpResponse:
    """Answer with the part that changes by the minute: pending work of the tiers of the page."""
    names = list(dict.fromkeys(request.GET.getlist("card")))[:_MOST_TIERS]
    waiting = {row.tier: row for row in glance.waiting(reading)}
    pending = glance.known_until(reading)
    context = {
        "reading": reading,
        "waits": glance.wait_lines(reading),
        "known_earlier": glance.known_earlier(pending, reading.now),
        "entitlements": _entitlements(reading),
        "now_href": _now_href(request, reading, names),
        "tiers_now": [
            tier_waiting(name, waiting.get(name), pending, reading.query, now=reading.now)
            for name in names
        ],
    }
    return render(request, "overview/_now.html", context)


def _now_href(request: PageRequest, reading: QuerySession, tiers: list[str]) -> str:
    named = [("card", name) for name in tiers[:_MOST_TIERS]]
    return with_query(path_of(request), [*reading.query, ("part", "now"), *named])


def _tiers(reading: QuerySession, known: TierContext) -> list[clusters.TierRow]:
    """Return the tiers of the catalog that the page is about.

    Where a filter is on more than clusters and tiers, those of which there is nothing are none.
    """
    wanted = set(reading.filters.tier)
    if not reading.has_capacity or reading.narrows_cards:
        there = set(rows_by(known.rows, Grouping.TIER)) | {row.tier for row in known.waiting}
        wanted = there & wanted if wanted else there
    elif not wanted:
        return clusters.tier_rows(visibility=reading.visibility)
    return [row for row in clusters.tier_rows(visibility=reading.visibility) if row.name in wanted]


def _entitlements(reading: QuerySession) -> list[EntitlementLine]:
    """Return what is nearly used up, of the page's tiers and teams."""
    tiers, teams = reading.filters.tier, reading.filters.team
    lines = entitlement_lines(reading, limit=_MOST_ENTITLEMENTS)
    own = [
        line
        for line in lines
        if (not tiers or line.tier in tiers) and (not teams or line.team in teams)
    ]
    return own[: glance.TOP]


def team_table(reading: QuerySession, *, page_length: int) -> Table:
    """Return what each team held on each tier in the window, so many lines at a time."""
    rows = usage_of(reading, by=_BY_TEAM, interval=TimeStep.TOTAL)
    return replace(
        listings.groups([row for row in rows if row.amounts.allocated], _BY_TEAM, reading),
        empty="No team held a GPU in this window.",
        page_length=page_length,
    )

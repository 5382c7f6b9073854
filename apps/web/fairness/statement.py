"""A team's week: a sentence per tier, and the figures behind it."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.http import Http404, HttpResponseBase, QueryDict
from msgspec import Struct

from apps.accounts.selectors import team_names
from apps.clusters.domain.resources import counted
from apps.fairness import selectors as fairness
from apps.fairness.domain.statement import StatementPart, TeamFigures
from apps.fairness.selectors import Statement, TierStatement
from apps.usage.domain.amounts import nano
from apps.usage.domain.usage_query import Filters
from apps.web.components.formats import Format, Value, clock_text
from apps.web.components.page_query import Query, during, figure_href, figure_hrefs, href
from apps.web.components.tables import Column, Table, TableRow, declared_columns, declared_values
from apps.web.costs.energy_table import energy_text
from apps.web.fairness.caveats import HOURS, caveats_of, hour_values
from apps.web.fairness.objectives import objectives_text
from apps.web.fairness.team_tables import EXPLAINS
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

EARLIEST, LATEST = 2000, 8999
_HOUR = timedelta(hours=1)
_MOST_PARTS = 10
_FORGOTTEN = "Who held GPUs idle meanwhile is not known any more: the hours of this week are gone."
_AMOUNTS = tuple(column for column in declared_columns(TeamFigures) if column.key != "team")


def week_from(params: QueryDict, otherwise: date) -> tuple[date, str]:
    """Return a day of the week that is asked for, and what to say where it is none."""
    text = params.get("week", "").strip()
    if not text:
        return otherwise, ""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return otherwise, f"“{text[:40]}” is not a day such as 2026-10-26. This week is shown."
    # Near the ends of the calendar the weeks around it cannot be computed.
    if not EARLIEST <= day.year <= LATEST:
        return otherwise, f"{day} is too early or too late. This week is shown."
    return day, ""


def week_href(team: str, week: date | None, query: Query) -> str | None:
    """Return the address of the team's statement of a week; None for no week."""
    if week is None:
        return None
    return href("statement", (("week", str(week)), *query), name=team)


class StatementCoverage(Struct, frozen=True):
    """Of when a statement is, and how many of its hours are in every figure.

    `passed` hours are over; `known` are those of the tier of which least is known. In `estimated`
    of them demand is estimated from series.
    """

    made: str
    start: str
    end: str
    passed: int
    known: int
    estimated: int

    @property
    def whole(self) -> bool:
        return 0 < self.passed <= self.known

    @property
    def watched(self) -> int:
        return self.known - self.estimated

    @property
    def missing(self) -> int:
        return max(0, self.passed - self.known)


def coverage_of(found: Statement, now: datetime, zone: ZoneInfo) -> StatementCoverage:
    """Return how much of a week is known at `now`; hours that run are not over."""
    passed = min(now, found.window.end) - found.window.start
    hours = (tier.hours for tier in found.tiers)
    # By the tier of which least is known: a statement is as good as its weakest line.
    least = min(hours, key=lambda own: (own.known, own.watched), default=None)
    return StatementCoverage(
        made=clock_text(now, zone),
        start=clock_text(found.window.start, zone),
        end=clock_text(found.window.end, zone),
        passed=max(0, passed // _HOUR),
        known=found.known_hours,
        estimated=least.estimated if least else 0,
    )


def nothing_of(coverage: StatementCoverage) -> str:
    """Return what to say where the team had to do with no tier: only as much as is known."""
    said = "had no entitlement, no demand and no GPUs in this week"
    if coverage.whole:
        return f"This team {said}."
    if coverage.known:
        hours = counted(coverage.known, "hour")
        return f"This team {said}, as far as it is known: that is {hours} of it."
    return "No hour of this week is known."


def figures_table(found: Statement, coverage: StatementCoverage, reading: QuerySession) -> Table:
    """Return the figures of the week, a line per tier."""
    return Table(
        id="figures",
        title="Figures",
        columns=(Column("tier", "Tier"), *_AMOUNTS, *HOURS),
        rows=[_row(tier, found, reading) for tier in found.tiers],
        zone=reading.choice.zone,
        empty=nothing_of(coverage),
    )


def _row(tier: TierStatement, found: Statement, reading: QuerySession) -> TableRow:
    query = _during_week(found, reading)
    return TableRow(
        {
            "tier": tier.tier,
            **(declared_values(tier.figures) if tier.figures else {}),
            **hour_values(tier.hours),
        },
        {"tier": href("tier-fairness", reading.query, name=tier.tier)},
        explains=figure_hrefs(EXPLAINS, query, tier=tier.tier, team=found.team),
    )


def _during_week(found: Statement, reading: QuerySession) -> Query:
    return during(found.window.start, found.window.end, reading.query)


def others_table(found: Statement, coverage: StatementCoverage, reading: QuerySession) -> Table:
    """Return the teams that lent, borrowed, or left GPUs idle during its unmet fair share."""
    rows = []
    for tier in found.tiers:
        if tier.figures is None:
            continue
        own = tier.figures
        query = _during_week(found, reading)
        rows += _loans(own, "borrowed from", own.borrowed_from, query)
        rows += _loans(own, "lent to", own.lent_to, query)
        rows += _idle(own, query)
    return Table(
        id="others",
        title="Other teams",
        columns=(
            Column("tier", "Tier"),
            Column("what", "Relation"),
            Column("team", "Team"),
            Column("gpu_hours", "Amount", Format.GPU_HOURS, "GPU-h"),
            Column("gpus", "Mean", Format.NUMBER, "GPUs", "over the hours with unmet fair share"),
        ),
        rows=rows,
        zone=reading.choice.zone,
        empty=_nobody(found, coverage),
        note=_others_note(found) if rows else "",
    )


def _nobody(found: Statement, coverage: StatementCoverage) -> str:
    """Return the sentence for a week without other teams involved, of the known hours."""
    if not coverage.known and not any(tier.hours.known for tier in found.tiers):
        return "No hour of this week is known, nor who borrowed, lent or held GPUs idle in it."
    moved = "Nothing was borrowed or lent"
    if not coverage.whole:
        moved = "In the hours that are known nothing was borrowed or lent"
    # Sums of days outlive hours: who lent is known longer than who was idle meanwhile.
    if not found.hours_available:
        return f"{moved}. {_FORGOTTEN}"
    return f"{moved}; meanwhile no team left GPUs idle."


def _others_note(found: Statement) -> str:
    most = f"Of each the {_MOST_PARTS} largest." if _is_cut(found) else ""
    return " ".join(text for text in (most, "" if found.hours_available else _FORGOTTEN) if text)


def _is_cut(found: Statement) -> bool:
    return any(
        len(parts) > _MOST_PARTS
        for tier in found.tiers
        if (own := tier.figures) is not None
        for parts in (own.borrowed_from, own.lent_to, own.idle_meanwhile)
    )


def _loans(
    own: TeamFigures, what: str, parts: Sequence[StatementPart], query: Query
) -> list[TableRow]:
    found = []
    for part in parts[:_MOST_PARTS]:
        # A loan is explained once, from the side of who borrowed.
        lender, borrower = (own.team, part.team) if what == "lent to" else (part.team, own.team)
        link = figure_href("loan", query, tier=own.tier, team=borrower, other=lender)
        amount = nano(part.amount)
        values: dict[str, Value] = {"tier": own.tier, "what": what, "team": part.team}
        found.append(TableRow({**values, "gpu_hours": amount}, explains={"gpu_hours": link}))
    return found


def _idle(own: TeamFigures, query: Query) -> list[TableRow]:
    found = []
    for part in own.idle_meanwhile[:_MOST_PARTS]:
        link = figure_href("mean_idle_beside", query, tier=own.tier, team=own.team, other=part.team)
        what = "unused by other teams during unmet fair share"
        values: dict[str, Value] = {"tier": own.tier, "what": what, "team": part.team}
        found.append(TableRow({**values, "gpus": part.amount}, explains={"gpus": link}))
    return found


def _energy(name: str, found: Statement, reading: QuerySession) -> str:
    """Return what the team's GPUs drew in the week, in words; nothing for readers of other teams.

    What others see of a team are GPU sums alone.
    """
    inside = any(reading.visibility.sees(pk) for pk, one in team_names().items() if one == name)
    if not inside or found.window.start >= reading.now:
        return ""
    return energy_text(reading, Filters(team=(name,)), found.window)


@page
def team_statement(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request)
    this_week = reading.now.astimezone(reading.choice.zone).date()
    day, problem = week_from(request.GET, this_week)
    try:
        found = fairness.statement(name, day, now=reading.now, visibility=reading.visibility)
    except fairness.UnknownTeam:
        raise Http404(f"There is no team “{name}”.") from None
    last = found.week + timedelta(days=6)
    coverage = coverage_of(found, reading.now, reading.choice.zone)
    return respond(
        request,
        reading,
        "statement",
        tables=[
            figures_table(found, coverage, reading),
            others_table(found, coverage, reading),
        ],
        found=found,
        last=last,
        problem=problem,
        runs=found.window.end > reading.now,
        coverage=coverage,
        nothing=nothing_of(coverage),
        energy=_energy(name, found, reading),
        objectives=objectives_text(found.window, [one.tier for one in found.tiers], reading),
        caveats=caveats_of({one.tier: one.hours for one in found.tiers}),
        team_href=href("team", reading.query, name=name),
        previous_href=week_href(name, found.previous, reading.query),
        next_href=week_href(name, found.next, reading.query),
        hidden=reading.query,
    )

"""The pages of fairness: all tiers, one tier, a team's week, and the what-if simulator."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpResponseBase

from apps.clusters import selectors as clusters
from apps.fairness import selectors as fairness
from apps.fairness.domain.replay import ChangeImpossible
from apps.fairness.selectors import FairnessFilters, TierDetail
from apps.web.components.page_query import href, path_of, with_query
from apps.web.fairness import overview, statement, tier, what_if
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
)

_MOST_NAMED = 300  # names to choose from in a form; others can be written


@page
def fairness_list(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=("tier", "team"))
    own = reading.filters
    found = fairness.fairness_overview(
        reading.window,
        visibility=reading.visibility,
        filters=FairnessFilters(tier=own.tier, team=own.team),
    )
    return respond(
        request,
        reading,
        "fairness",
        tables=[
            overview.tier_table(found.tiers, reading),
            overview.dominant_table(found.shares, reading),
        ],
        caveats=overview.caveats_of({row.tier: row.hours for row in found.tiers}),
        quality=quality_of(reading, freshness_of(reading), None),
    )


@page
def tier_fairness(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request)
    _known_tier(name, reading)
    found = fairness.tier_detail(
        reading.window, name, now=reading.now, visibility=reading.visibility
    )
    return respond(
        request,
        reading,
        "tier_fairness",
        name=name,
        tier_href=href("tier", reading.query, name=name),
        what_if_href=href("what-if", reading.query, name=name),
        quality=quality_of(reading, freshness_of(reading), None),
        not_computed=overview.NOT_COMPUTED,
        **(_detail(found, reading) if found else {}),
    )


def _detail(found: TierDetail, reading: QuerySession) -> dict[str, Any]:
    own = found.fairness
    bars = tier.bars_of(own, reading)
    plot = tier.index_plot(own.tier, found.days, reading)
    matrix = tier.matrix_of(found.matrix, reading)
    return {
        "tables": [
            tier.team_table(own, reading),
            tier.loan_table(found.matrix, own.hours, reading),
            plot.table,
            *([matrix.table] if matrix else []),
        ],
        "tier": own,
        "denied": sum(team.denied_gpu_hours for team in own.teams) if own.hours.known else None,
        "caveats": overview.caveats_of({own.tier: own.hours}),
        "bars": bars,
        "more_bars": max(0, len(own.teams) - len(bars)),
        "matrix": matrix,
        "plot": plot,
    }


def _known_tier(name: str, reading: QuerySession) -> list[str]:
    """Return the names of all tiers; there must be one of this name."""
    rows = clusters.tier_rows(visibility=reading.visibility, former=True)
    if name not in {row.name for row in rows}:
        raise Http404(f"There is no tier “{name}”.")
    return [row.name for row in rows if row.active or row.name == name]


# ---------------------------------------------------------------- statement


@page
def team_statement(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request)
    this_week = reading.now.astimezone(reading.choice.zone).date()
    day, problem = statement.week_from(request.GET, this_week)
    try:
        found = fairness.statement(name, day, now=reading.now, visibility=reading.visibility)
    except fairness.UnknownTeam:
        raise Http404(f"There is no team “{name}”.") from None
    last = found.week + timedelta(days=6)
    coverage = statement.coverage_of(found, reading.now, reading.choice.zone)
    return respond(
        request,
        reading,
        "statement",
        tables=[
            statement.figures_table(found, coverage, reading),
            statement.others_table(found, coverage, reading),
        ],
        found=found,
        last=last,
        problem=problem,
        runs=found.window.end > reading.now,
        coverage=coverage,
        nothing=statement.nothing_of(coverage),
        caveats=overview.caveats_of({one.tier: one.hours for one in found.tiers}),
        team_href=href("team", reading.query, name=name),
        previous_href=statement.week_href(name, found.previous, reading.query),
        next_href=statement.week_href(name, found.next, reading.query),
        hidden=reading.query,
    )


# ---------------------------------------------------------------- what-if


@page
def what_if_page(request: PageRequest, name: str) -> HttpResponseBase:
    reading = query_session(request)
    names = _known_tier(name, reading)
    teams = [row.name for row in clusters.team_rows(visibility=reading.visibility)]
    wish = what_if.what_if_input(request.GET, name, teams=teams, tiers=names)
    window = what_if.capped(reading.choice)
    problems, found = list(wish.problems), None
    if wish.changes and not problems:
        try:
            found = fairness.what_if(window, wish.changes, visibility=reading.visibility)
        except ChangeImpossible as impossible:
            problems.append(f"That cannot be: {impossible}.")
        except (fairness.CapacityUnknown, fairness.TooMuchToReplay) as problem:
            problems.append(str(problem))
    shown = replace(reading.choice, window=window)
    return respond(
        request,
        reading,
        "what_if",
        tables=what_if.tables_of(found, wish, name, reading) if found else (),
        name=name,
        tier_href=href("tier-fairness", reading.query, name=name),
        fields=wish.fields,
        problems=problems,
        found=found,
        span=shown.span_label,
        is_capped=window != reading.window,
        longest=what_if.LONGEST,
        teams=teams[:_MOST_NAMED],
        others=[other for other in names if other != name],
        hidden=reading.query,
        reset_href=with_query(path_of(request), reading.query),
    )

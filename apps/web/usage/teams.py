"""The list of teams: what each holds now, of what it is entitled to, and how well it is used."""

from collections.abc import Mapping

from django.http import HttpResponseBase
from msgspec import Struct, field

from apps.clusters import selectors as clusters
from apps.quotas.selectors import entitled_teams
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.usage_query import Grouping, TimeStep
from apps.usage.selectors import AllocatedGpus, allocated_now
from apps.web.components import tables
from apps.web.components.formats import Format
from apps.web.components.listings import LISTED_PENDING_GPUS, UNUSED
from apps.web.components.page_query import EVERY, PER_PAGE, href
from apps.web.components.tables import Column, LaterRows, Table, TableRow
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    quality_of,
    query_session,
    usage_of,
)
from gpuportal.garbage import gc_paused

_COLUMNS = (
    Column("team", "Team"),
    Column("allocated_now_gpus", "Allocated now", Format.NUMBER, "GPUs"),
    Column("entitled_gpus", "Entitlement", Format.NUMBER, "GPUs", "of all tiers together"),
    Column("entitlement_ratio", "Of entitlement", Format.RATIO, "%", "allocated now ÷ entitlement"),
    LISTED_PENDING_GPUS,
    tables.ALLOCATED,
    tables.UTILIZATION,
    UNUSED,
)
_NARROWED = "Allocated now, entitlement and pending are not narrowed by these filters: not shown."


class TeamSums(Struct):
    """One team: GPUs of now, and what the window adds up to, None without any facts of it."""

    name: str
    amounts: Amounts | None = None
    now: AllocatedGpus = field(default_factory=AllocatedGpus)
    entitled: float = 0.0

    @property
    def rank(self) -> tuple[float, float, str]:
        """Where it stands: the largest allocation of the window first."""
        allocated = self.amounts.allocated if self.amounts else 0
        return (-allocated, -self.now.held, self.name)


@page
def teams(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request, takes=EVERY)
    freshness = freshness_of(reading)
    # A thousand teams on twenty tiers: two fifths of the time went into the search.
    with gc_paused():
        table = team_table(reading, page_length=PER_PAGE)
    return respond(
        request,
        reading,
        "teams",
        tables=[table],
        quality=quality_of(reading, freshness, None),
    )


def team_table(reading: QuerySession, *, page_length: int) -> Table:
    """Return a line for each team, so many at a time."""
    own = reading.filters
    # What is held now and entitled has neither a GPU model nor, of entitlements, a cluster.
    narrowed = bool(own.cluster or own.namespace or own.gpu_model or own.capacity_type)
    found = sorted(_sums(reading, narrowed=narrowed).values(), key=lambda one: one.rank)

    def line(team: TeamSums) -> TableRow:
        return _line(team, reading, narrowed=narrowed)

    return Table(
        id="teams",
        title="Teams",
        columns=_COLUMNS,
        rows=LaterRows(found, line),
        zone=reading.choice.zone,
        empty="No team is known yet. An administrator loads the catalog with "
        "`manage.py load_catalog`.",
        note=_NARROWED if narrowed else "",
        page_length=page_length,
    )


def _sums(reading: QuerySession, *, narrowed: bool) -> Mapping[str, TeamSums]:
    """Return by name the teams of the catalog, and others that held a GPU; as filters allow."""
    own = reading.filters
    wanted = set(own.team)
    found = {
        row.name: TeamSums(row.name)
        for row in clusters.team_rows(visibility=reading.visibility)
        # Narrowed to a cluster or a model, a team without GPUs there would be a line of noughts.
        if (not wanted or row.name in wanted) and not narrowed
    }
    rows = usage_of(reading, by=[Grouping.TEAM], interval=TimeStep.TOTAL)
    for team in found.values() if rows else ():
        team.amounts = Amounts()  # there are facts, and none of its own: it held nothing
    for row in rows:
        name = row.groups[Grouping.TEAM]
        if row.amounts.allocated:
            found.setdefault(name, TeamSums(name)).amounts = row.amounts
    if narrowed:
        return found
    for (name, tier), now in allocated_now(reading.now, visibility=reading.visibility).items():
        if name in found and (not own.tier or tier in own.tier):
            found[name].now.held += now.held
            found[name].now.waiting += now.waiting
    for entitled in entitled_teams(reading.now, visibility=reading.visibility):
        if entitled.team in found and (not own.tier or entitled.tier in own.tier):
            found[entitled.team].entitled += entitled.gpus
    return found


def _line(team: TeamSums, reading: QuerySession, *, narrowed: bool) -> TableRow:
    now = {
        "allocated_now_gpus": team.now.held,
        "entitled_gpus": team.entitled,
        "entitlement_ratio": team.now.held / team.entitled if team.entitled else None,
        LISTED_PENDING_GPUS.key: team.now.waiting,
    }
    ledger = tables.ledger_values(team.amounts) if team.amounts else {}
    return TableRow(
        {
            "team": team.name,
            # Left out rather than zero: these figures know no such filter.
            **({} if narrowed else now),
            **ledger,
            UNUSED.key: team.amounts.not_used if team.amounts else None,
        },
        {"team": href("team", reading.query, name=team.name)},
        explained=tables.Explained(reading.query, {"team": team.name}),
    )

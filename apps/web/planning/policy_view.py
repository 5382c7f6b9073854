"""What a policy simulation found, as the page shows it."""

from collections.abc import Iterator, Sequence
from typing import Any

from apps.clusters.domain.resources import counted
from apps.planning.domain.cluster_replay.backtest import ALL_TIERS
from apps.planning.domain.policy_effects import (
    ALL_TEAMS,
    QueueTimeChange,
    TeamEffect,
    of_teams,
)
from apps.planning.selectors import SimulatedTeamRow, SimulationReport, team_row
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row
from apps.web.components.formats import Format, Value, gpus_text, shown
from apps.web.components.page_query import href
from apps.web.components.tables import Table, TableRow, declared_columns, declared_values
from apps.web.query_session import QuerySession

_ALL = "All"
_TEAMS_AT_FIRST = 12


def result_of(found: SimulationReport, reading: QuerySession) -> dict[str, Any]:
    """Return figures, tables and scope of a simulation that is done; nothing of others."""
    if not found.effects:
        return {}
    return {
        "figures": _figures(found),
        "tables": [_table(found.effects, reading)],
        "scope": list(_scope(found, reading)),
    }


def _figures(found: SimulationReport) -> FigureRow:
    rows = found.effects
    sums = next(row for row in rows if (row.team, row.tier) == (ALL_TEAMS, ALL_TIERS))
    teams = {change: _teams(rows, change) for change in QueueTimeChange}
    return figure_row(
        _count("Shorter queue time", teams[QueueTimeChange.SHORTER], Tone.NONE),
        _count("Longer queue time", teams[QueueTimeChange.LONGER], Tone.WARNING),
        KeyFigure(
            "Pending",
            gpus_text(sums.after.unmet_gpu_hours),
            "GPU-h",
            note=f"{gpus_text(sums.before.unmet_gpu_hours)} without the change",
        ),
        KeyFigure(
            "Allocated",
            gpus_text(sums.after.allocated_gpu_hours),
            "GPU-h",
            note=f"{gpus_text(sums.before.allocated_gpu_hours)} without the change",
        ),
        *_freed(found, sums),
    )


def _freed(found: SimulationReport, sums: TeamEffect) -> Iterator[KeyFigure]:
    # Only an idle limit frees GPUs; without one a 0 would raise questions.
    if found.change.idle_minutes is not None:
        yield KeyFigure("Freed", gpus_text(sums.freed_gpu_hours), "GPU-h", note="by the idle limit")


def _teams(rows: Sequence[TeamEffect], change: QueueTimeChange) -> list[str]:
    return sorted(
        row.team
        for row in rows
        if row.tier == ALL_TIERS and row.team != ALL_TEAMS and row.queue_time is change
    )


def _count(label: str, teams: Sequence[str], tone: Tone) -> KeyFigure:
    note = ", ".join(teams[:3]) + (f" and {len(teams) - 3} more" if len(teams) > 3 else "")
    word = "team" if len(teams) == 1 else "teams"
    # Of all work by its GPUs: the p95 of a team may go the other way.
    return KeyFigure(
        *(label, str(len(teams)), word),
        basis="mean",
        note=note,
        tone=tone if teams else Tone.NONE,
    )


def _table(rows: Sequence[TeamEffect], reading: QuerySession) -> Table:
    """Return the effects on teams: largest changes of pending work first, then most freed GPUs."""

    # By the size of the change, whichever way it goes: losses count like gains.
    def place(row: TeamEffect) -> tuple[float, float, str, str]:
        return -abs(row.pending_change), -row.freed_gpu_hours, row.tier, row.team

    ordered = sorted(of_teams(rows), key=place)
    sums = next(row for row in rows if (row.team, row.tier) == (ALL_TEAMS, ALL_TIERS))
    return Table(
        id="effects",
        title="Teams",
        columns=declared_columns(SimulatedTeamRow),
        rows=[
            TableRow(
                _values(row),
                {
                    "team": href("team", reading.query, name=row.team),
                    "tier": href("tier-plan", reading.query, name=row.tier),
                },
            )
            for row in ordered
        ],
        zone=reading.choice.zone,
        empty="No work of these days is known.",
        total=TableRow(_values(sums)),
        page_length=_TEAMS_AT_FIRST,
        on_phone=("team", "tier", "pending_gpu_hours", "pending_after_gpu_hours"),
    )


def _values(row: TeamEffect) -> dict[str, Value]:
    return {
        **declared_values(team_row(row)),
        "team": row.team or _ALL,
        "tier": row.tier or _ALL,
    }


def _scope(found: SimulationReport, reading: QuerySession) -> Iterator[str]:
    if found.start is not None and found.end is not None:
        first, last = (
            shown(at, Format.TIME, reading.choice.zone) for at in (found.start, found.end)
        )
        yield f"{counted(found.works, 'workload')} of {found.cluster} from {first} to {last}."
    for reason, number in sorted(found.left_out.items()):
        yield f"{counted(number, 'pod is', 'pods are')} left out ({reason})."

"""How the figures of a what-if come about: one tier replayed, half hour by half hour."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from apps.clusters.domain.window import Window, from_seconds
from apps.fairness.domain.arrays import Array
from apps.fairness.domain.integrate import Measured, integrate
from apps.fairness.domain.simulation.whatif import TierReplay
from apps.pending.selectors import queue_time
from apps.usage.domain.explained import Explained, Input, RowColumn, Unit

_ORIGIN = "Work of the window, replayed by the rules that the page lists as assumptions."
_JAIN, _QUEUE_TIMES = "what_if_jain_index", ("what_if_queue_time_p50", "what_if_queue_time_p95")


@dataclass(frozen=True, slots=True)
class _Sum:
    """A measure in each half hour, of each team or, of a tier's capacity, alone."""

    label: str
    meaning: str
    of: Callable[[Measured], Array]


_SUMS: Mapping[str, _Sum] = {
    "what_if_capacity": _Sum("Capacity", "GPUs of the tier × time.", lambda m: m.slots.capacity),
    "what_if_allocated": _Sum("Allocated", "GPUs of placed work × time.", lambda m: m.slots.held),
    "what_if_unmet": _Sum(
        "Unmet fair share",
        "In each half hour min(pending, max(0, fair share − allocated)).",
        lambda m: m.denied,
    ),
    "what_if_entitled": _Sum(
        "Entitlement", "Entitlement at the window's end × time.", lambda m: m.slots.entitlement
    ),
    "what_if_fair_share": _Sum(
        "Fair share",
        "What a team gets by entitlement, and its weighted part of what others leave.",
        lambda m: m.fair_share,
    ),
}
WHAT_IF = (*_SUMS, _JAIN, *_QUEUE_TIMES)


def explain_what_if(
    figure: str, window: Window, found: TierReplay | None, *, team: str
) -> Explained | None:
    """Explain one of WHAT_IF of a replayed tier, or of one `team`.

    None for other figures, and for a tier or team that is not replayed.
    """
    if figure not in WHAT_IF or found is None or (team and team not in found.teams):
        return None
    if figure in _SUMS:
        return _sum(figure, window, found, team)
    if figure == _JAIN:
        return _index(found)
    return _queue_time(figure, found, team) if team else None


def _sum(figure: str, window: Window, found: TierReplay, team: str) -> Explained:
    of, hours = _SUMS[figure], found.measured.slots.hours
    values = of.of(found.measured)
    if team and values.ndim > 1:
        values = values[:, found.teams.index(team)]
    gpus = values.sum(axis=1) if values.ndim > 1 else values
    starts = window.start_seconds + 3600 * (np.cumsum(hours) - hours)
    return Explained(
        figure=figure,
        label=of.label,
        meaning=of.meaning,
        anchor="fairness",
        value=float(hours @ gpus),
        unit=Unit.GPU_HOURS,
        formula="dot(gpus, hours)",
        columns=(
            RowColumn("start", "From", Unit.TIME),
            RowColumn("gpus", of.label, Unit.GPUS),
            RowColumn("hours", "Hours", Unit.HOURS),
        ),
        rows=[
            {"start": from_seconds(start), "gpus": amount, "hours": long}
            for start, amount, long in zip(
                starts.tolist(), gpus.tolist(), hours.tolist(), strict=True
            )
        ],
        origin=_ORIGIN,
    )


def _index(found: TierReplay) -> Explained:
    sums = integrate(found.measured)
    rows = [
        {"team": team, "allocated": allocated, "below": share, "x": allocated / share}
        for team, allocated, share, demand in zip(
            found.teams,
            sums.allocated.tolist(),
            sums.fair_share.tolist(),
            sums.demand.tolist(),
            strict=True,
        )
        if demand > 0 and share > 1e-9
    ]
    value = sums.jain_index
    return Explained(
        figure=_JAIN,
        label="Fairness index (Jain)",
        meaning="1 where every team has the same allocation ÷ fair share.",
        anchor="fairness",
        value=value,
        unit=Unit.RATIO,
        formula="sum(x) ** 2 / (teams * squares(x))",
        inputs=(Input("teams", "teams", len(rows), Unit.COUNT),),
        columns=(
            RowColumn("team", "Team"),
            RowColumn("allocated", "Allocated", Unit.GPU_HOURS),
            RowColumn("below", "Fair share", Unit.GPU_HOURS),
            RowColumn("x", "Allocated ÷ fair share", Unit.RATIO),
        ),
        rows=rows,
        origin=_ORIGIN,
        nothing="" if value is not None else "Nobody asked for this tier.",
    )


def _queue_time(figure: str, found: TierReplay, team: str) -> Explained:
    return queue_time(
        figure,
        Counter(found.started[team]),
        meaning="From creation to start, of work that starts in the replay.",
        origin=_ORIGIN,
        counted="Started",
    )

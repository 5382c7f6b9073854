"""A team's week in words and numbers, from the sums of its tier."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.columns import Column

UNKNOWN = "Null where known_hours is 0."


class StatementPart(NamedTuple):
    """Something of another team: GPU-hours where borrowed or lent, mean GPUs where idle."""

    team: str
    amount: float


def summed_column(label: str, text: str) -> Column:
    """Return a column that is summed over the known hours: without one it is not known."""
    return Column(label, "GPU-h", text, api_note=f"GPU-hours. {UNKNOWN}", nullable=True)


BORROWED = summed_column("Borrowed", "Allocated above the entitlement.")
UNMET = summed_column("Unmet fair share", "Pending, at most fair share − allocated.")
FROM_POOL = summed_column(
    "From capacity without entitlement", "Borrowed of GPUs that no team is entitled to."
)
OVERDRAWN = summed_column("Over-borrowed", "Borrowed although its owners requested it.")


class TeamAmounts(Struct, frozen=True, kw_only=True):
    """One team in one tier over a window, in GPU-hours."""

    team: Annotated[str, Column("Team")]
    tier: str
    entitlement_gpu_hours: Annotated[float, Column("Entitlement", "GPU-h", api=False)]
    demand_gpu_hours: Annotated[
        float,
        summed_column(
            "Demand", "Allocated, and pending for causes that count; at most the capacity."
        ),
    ]
    fair_share_gpu_hours: Annotated[
        float, summed_column("Fair share", "By water-filling, slot by slot.")
    ]
    allocated_gpu_hours: Annotated[float, summed_column("Allocated", "As in the ledger.")]
    borrowed_gpu_hours: Annotated[float, BORROWED]
    lent_gpu_hours: Annotated[
        float, summed_column("Lent", "Of the entitlement, allocated to others.")
    ]
    denied_gpu_hours: Annotated[float, UNMET]
    from_pool_gpu_hours: Annotated[float, replace(FROM_POOL, api=False)] = 0.0
    overdrawn_gpu_hours: Annotated[float, replace(OVERDRAWN, api=False)] = 0.0


class TeamFigures(TeamAmounts, frozen=True, kw_only=True):
    """One team in one tier over a window of `hours`; amounts in GPU-hours, largest part first.

    The parts of `borrowed_from`, with `from_pool` and `overdrawn`, sum to what was borrowed; those
    of `lent_to` to what was lent. `idle_meanwhile` has the mean GPUs that other teams left idle
    during this team's unmet fair share.
    """

    hours: float
    borrowed_from: Sequence[StatementPart] = ()
    lent_to: Sequence[StatementPart] = ()
    idle_meanwhile: Sequence[StatementPart] = ()


def sentence(figures: TeamFigures) -> str:
    """Return the week in one sentence, GPUs as means over the window.

    "entitled to 12 GPUs, received 15.2, borrowed 3.2 of which 2.0 from speech; missed 40 GPU-hours
    of its fair share while robotics left 6 GPUs idle". Amounts that round to 0 are left out.
    """
    # All amounts are printed as means over these hours.
    if not figures.hours:
        raise ValueError("a statement needs a window that is not empty")
    entitled = _bare(figures.entitlement_gpu_hours / figures.hours)
    words = [
        f"entitled to {entitled} GPU{'' if entitled == '1' else 's'}",
        f"received {_mean(figures.allocated_gpu_hours, figures)}",
        *_moved("borrowed", "from", figures.borrowed_gpu_hours, _sources(figures), figures),
        *_moved("lent", "to", figures.lent_gpu_hours, figures.lent_to, figures),
    ]
    return f"{', '.join(words)}; {_denial(figures)}"


def _sources(figures: TeamFigures) -> list[StatementPart]:
    """Return where borrowed GPUs came from: lending teams first, then what is no team's to lend."""
    return [
        *figures.borrowed_from,
        StatementPart("capacity without entitlement", figures.from_pool_gpu_hours),
        StatementPart("demand of other teams", figures.overdrawn_gpu_hours),
    ]


def _moved(
    verb: str, way: str, gpu_hours: float, parts: Sequence[StatementPart], figures: TeamFigures
) -> list[str]:
    if not _shows(gpu_hours, figures):
        return []
    shown = [part for part in parts if _shows(part.amount, figures)]
    whole = _mean(gpu_hours, figures)
    named = [f"{_mean(part.amount, figures)} {way} {part.team}" for part in shown]
    # One source of all: "borrowed 3.2 from speech", not "borrowed 3.2 of which 3.2 from speech".
    if len(shown) == 1 and _mean(shown[0].amount, figures) == whole:
        return [f"{verb} {named[0]}"]
    return [f"{verb} {whole}" + (f" of which {_listed(named)}" if named else "")]


def _denial(figures: TeamFigures) -> str:
    # GPU-hours, not a mean: over a week a few of them would round to 0 GPUs.
    if round(figures.denied_gpu_hours, 1) <= 0:
        return "no unmet fair share" if figures.demand_gpu_hours else "no demand"
    words = f"missed {_hours(figures.denied_gpu_hours)} GPU-hours of its fair share"
    if figures.idle_meanwhile and round(figures.idle_meanwhile[0].amount, 1) > 0:
        # The largest: parts are in that order, and one name is enough for a sentence.
        team, gpus = figures.idle_meanwhile[0]
        number = _bare(gpus)
        words += f" while {team} left {number} {'GPU' if number == '1' else 'GPUs'} idle"
    return words


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _shows(gpu_hours: float, figures: TeamFigures) -> bool:
    # By the printed digit: else the sentence would have parts of 0.0.
    return round(gpu_hours / figures.hours, 1) > 0


def _mean(gpu_hours: float, figures: TeamFigures) -> str:
    return f"{gpu_hours / figures.hours:,.1f}"


def _bare(number: float) -> str:
    """Return a number with one decimal, and with none where that would be 0."""
    return f"{number:,.1f}".removesuffix(".0")


def _hours(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else _bare(number)

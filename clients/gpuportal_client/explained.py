"""A figure of the ledger in full: its equation with numbers, its meaning, what is not known."""

from dataclasses import asdict, dataclass

from gpuportal_client.connection import Params, Portal, PortalError, Row
from gpuportal_client.shapes import COLLECTION, checked, is_number, misfit

_TOLERANCE = 1e-6
"""GPU-hours; amounts are written with nine decimals and sums of them may differ by their last."""

EQUATIONS = {
    "capacity_gpu_hours": (
        "planned_outage_gpu_hours",
        "unhealthy_gpu_hours",
        "unallocated_gpu_hours",
        "allocated_gpu_hours",
    ),
    "allocated_gpu_hours": (
        "not_running_gpu_hours",
        "unmeasured_gpu_hours",
        "idle_gpu_hours",
        "underused_gpu_hours",
        "busy_gpu_hours",
    ),
}

_RARE = frozenset({"planned_outage_gpu_hours"})
"""Terms that are left out where they are 0, or the portal is of a version without them."""

_NUMERIC = ("number", "integer")

_WORDS = {
    "unhealthy": "unavailable",
    "unmeasured": "no metrics",
    "underused": "underutilized",
    "busy": "active",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A figure: its value, what it means, the equations that it is in, and what is not in it.

    `equations` are texts with numbers; `holds` is None where no equation has the figure.
    `grades` are GPU-hours by how they are known. `hours_missing` are hours of clusters that have
    no facts, `hours_partial` those that have some.
    """

    figure: str
    value: float | None
    meaning: str
    equations: list[str]
    holds: bool | None
    grades: dict[str, float]
    hours_missing: int
    hours_partial: int

    def row(self) -> Row:
        """Return it as a row of the API would be."""
        return asdict(self)


def explain(portal: Portal, figure: str, filters: Params) -> Explanation:
    """Explain a column of `usage` over its filters, `start` and `end` among them.

    Raises PortalError.
    """
    meanings = usage_meanings(portal)
    if figure not in meanings:
        raise PortalError(f"“{figure}” is no figure of usage: use one of {', '.join(meanings)}")
    rows = portal.rows("usage", {**filters, "interval": "total"})
    if not rows:
        raise PortalError("No facts in this window. `gpuportal usage` shows which days have some.")
    row = rows[0]
    for name in (figure, *(one for whole, terms in EQUATIONS.items() for one in (whole, *terms))):
        if row.get(name) is not None and not is_number(row[name]):
            raise misfit("usage", f"“{name}” is no number")
    known = {
        whole: tuple(name for name in terms if row.get(name) or name not in _RARE)
        for whole, terms in EQUATIONS.items()
    }
    parts = [
        (whole, terms)
        for whole, terms in known.items()
        if figure in (whole, *terms) and all(row.get(name) is not None for name in (whole, *terms))
    ]
    window = {name: filters.get(name) for name in ("cluster", "start", "end")}
    hours = checked(portal.rows("collections", window), COLLECTION, "collections")
    states = [hour["state"] for hour in hours]
    return Explanation(
        figure=figure,
        value=row.get(figure),
        meaning=meanings[figure],
        equations=[_equation(row, whole, terms) for whole, terms in parts],
        holds=all(_holds(row, whole, terms) for whole, terms in parts) if parts else None,
        grades=_grades(row),
        hours_missing=sum(state in {"waiting", "failed"} for state in states),
        hours_partial=states.count("partial"),
    )


def usage_meanings(portal: Portal) -> dict[str, str]:
    """Return what each figure of `usage` means, as the portal's schema says.

    Names of groups, periods and grades are columns of it and no figures.
    """
    schema = portal.schema()
    try:
        columns = schema["components"]["schemas"]["Usage"]["properties"]
        return {
            name: str(column.get("description", ""))
            for name, column in columns.items()
            if column.get("type") in _NUMERIC
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise PortalError(
            f"The schema of {portal.url} has no usage: its version does not fit this client."
        ) from error


def _grades(row: Row) -> dict[str, float]:
    grades = row.get("grades") or {}
    if not isinstance(grades, dict) or not all(map(is_number, grades.values())):
        raise misfit("usage", "“grades” holds no numbers")
    return grades


def ledger_word(name: str) -> str:
    """Return the word of the pages for a part of the ledger as the API names it."""
    return _WORDS.get(name, name).replace("_", " ")


def _equation(row: Row, whole: str, terms: tuple[str, ...]) -> str:
    sums = " + ".join(_term(row, name) for name in terms)
    return f"{_term(row, whole)} = {sums}"


def _term(row: Row, name: str) -> str:
    return f"{ledger_word(name.removesuffix('_gpu_hours'))} {row[name]:,.3f}"


def _holds(row: Row, whole: str, terms: tuple[str, ...]) -> bool:
    return abs(float(row[whole]) - sum(float(row[name]) for name in terms)) < _TOLERANCE

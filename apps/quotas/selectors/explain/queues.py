"""How the figures that only queues have come about: the most they hold, and what they borrow."""

from collections.abc import Mapping, Sequence

from apps.quotas.domain.keys import QuotaSource
from apps.quotas.selectors.rows import QuotaDetail, QuotaRow, QuotaUnits
from apps.usage.domain.explained import Explained, Input, RowColumn, Unit

CEILING, BORROWED = "quota_ceiling", "quota_borrowed"
_LABELS: Mapping[str, tuple[str, str]] = {
    CEILING: (
        "Max with borrowing",
        "Nominal quota and what the cohort lends, at most the borrowing limit above it.",
    ),
    BORROWED: ("Borrowed", "The part of used above the nominal quota."),
}
QUEUES = tuple(_LABELS)
_POOL, _LIMITED = "kept + sum(units)", "min(kept + sum(units), hard + borrowing_limit)"
_ABOVE = "max(0, used - hard)"


def explain_queue(figure: str, found: QuotaDetail) -> Explained:
    """Explain one of QUEUES; not known of what is no queue, or has no limit."""
    row = found.row
    label, meaning = _LABELS[figure]
    value = row.ceiling if figure == CEILING else row.borrowed
    rows: Sequence[QuotaUnits] = found.lent if figure == CEILING else ()
    formula = _ceiling(row) if figure == CEILING else _borrowed(row)
    return Explained(
        figure=figure,
        label=label,
        meaning=meaning,
        anchor="quota-burn",
        value=value,
        unit=Unit.COUNT,
        formula=formula,
        inputs=[one for one in _inputs(row, found.lent) if one.name in formula],
        columns=(
            RowColumn("name", "Queue or cohort"),
            RowColumn("units", f"Lends, units of {row.unit}", Unit.COUNT),
        ),
        rows=[{"name": one.name, "units": one.units} for one in rows],
        origin=f"{row.source} {row.name}, key `{row.key}`, of {row.cluster}.",
        nothing="" if value is not None else "Only queues with a limit have it.",
    )


def _ceiling(row: QuotaRow) -> str:
    if row.source != QuotaSource.CLUSTER_QUEUE:
        return "capability"
    if not row.cohort:
        return "hard"
    return _POOL if row.borrowing_limit is None else _LIMITED


def _borrowed(row: QuotaRow) -> str:
    """Return the formula; the status may be older than the quota, and then says another amount."""
    known = row.used is not None and row.borrowed == max(0.0, row.used - row.hard)
    return _ABOVE if known else "borrowed"


def _inputs(row: QuotaRow, lent: Sequence[QuotaUnits]) -> list[Input]:
    own = sum(one.units for one in lent if one.name == row.name)
    return [
        Input("kept", "nominal quota, not lent", row.hard - own, Unit.COUNT),
        Input("borrowing_limit", "borrowing limit", row.borrowing_limit, Unit.COUNT),
        Input("hard", "nominal quota", row.hard, Unit.COUNT),
        Input("used", "used", row.used, Unit.COUNT, "quota_used"),
        Input("capability", "capability", row.ceiling, Unit.COUNT),
        Input("borrowed", "borrowed, as the status says", row.borrowed, Unit.COUNT),
    ]

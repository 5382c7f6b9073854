"""What the page of a bill shows: figures, differences by day, tables, and the form of mappings."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from math import ceil
from typing import Annotated

from django.http import QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.columns import Column
from apps.clusters.domain.resources import counted
from apps.costs.domain.bills.reconciliation import ComparedCost
from apps.costs.domain.bills.sku_mapping import SkuTarget
from apps.costs.domain.costing import SCALE, SCALE_DIGITS, money
from apps.costs.selectors import (
    BillRow,
    PoolDifference,
    ReconciledDay,
    Reconciliation,
    SkuRow,
    month_window,
)
from apps.web.components import formats
from apps.web.components.drawings import GridHead, GridRow, HeatCell
from apps.web.components.drawings.base import LegendKey
from apps.web.components.drawings.heat_map import DrawnRow, GridCell, HeatMap
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import NOTHING, Value
from apps.web.components.page_query import FEW_ROWS, Query, days_query, href
from apps.web.components.tables import Table, declared_columns
from apps.web.costs.money_format import MoneyRow, MoneyTable, money_row, text
from apps.web.query_session import QuerySession

LARGE_DIFFERENCE = 0.05
"""More than this part of the portal's cost is worth a question to the provider."""
NOT_GPU, NOT_MAPPED = "-", ""
"""What a form says of a SKU that is no GPU, and of one that is not mapped."""
_ALL = "All GPU models"
_NONE = 0.0005  # Less than 0.05 % is written as 0.
_LEVELS, _FULL = 10, 0.2  # A difference of 20 % has the full colour.


def signed_percent(ratio: float) -> str:
    """Write a difference: `+2.1 %`, `−0.4 %`, `0 %`."""
    if abs(ratio) < _NONE:
        return "0 %"
    # From what is printed as 10.0 % on, the decimal says nothing that matters.
    digits = 0 if abs(ratio) >= 0.0995 else 1
    return f"{'+' if ratio > 0 else '−'}{abs(100 * ratio):,.{digits}f} %"


def bill_figures(found: Reconciliation, skus: Sequence[SkuRow], query: Query) -> FigureRow:
    """Return the figures: billed, the portal's cost, their difference, and what is in neither."""
    parts, whole = found.parts, found.whole
    unmapped = sum(row.target is None for row in skus)
    mapping = href("bill", [*query, ("tab", "mapping")]) or ""
    apart = sum(parts.apart.values())
    return figure_row(
        _figure("Billed", parts.gpus, found, note=f"of {_short(parts.total, found)} in all"),
        _figure("Portal", whole.portal, found, link=_costs_href(found), note="all capacity"),
        _difference(whole, found),
        KeyFigure(
            "Not mapped",
            _short(parts.not_mapped, found),
            counted(unmapped, "SKU") if unmapped else "",
            exact=_exact(parts.not_mapped, found),
            href=mapping,
            tone=Tone.WARNING if unmapped else Tone.NONE,
        ),
        _figure("Not GPU", parts.not_gpu, found, link=mapping),
        _figure("Taxes, credits", apart, found, note=_kinds(found)),
    )


def _kinds(found: Reconciliation) -> str:
    kinds = [kind.value for kind, amount in sorted(found.parts.apart.items()) if amount]
    return ", ".join(kinds)


def _figure(
    label: str, amount: int, found: Reconciliation, *, link: str = "", note: str = ""
) -> KeyFigure:
    shown, full = _short(amount, found), _exact(amount, found)
    return KeyFigure(label, shown, exact=full, href=link, note=note)


def _difference(whole: ComparedCost, found: Reconciliation) -> KeyFigure:
    if whole.ratio is None:
        return no_data("Difference", "The portal has no cost of this month.")
    large = abs(whole.ratio) > LARGE_DIFFERENCE
    return KeyFigure(
        "Difference",
        signed_percent(whole.ratio),
        _short(whole.difference, found),
        exact=_exact(whole.difference, found),
        note="billed − portal",
        tone=Tone.WARNING if large else Tone.NONE,
    )


def _short(amount: int, found: Reconciliation) -> str:
    return formats.money(money(amount), found.currency)


def _exact(amount: int, found: Reconciliation) -> str:
    return f"{money(amount):f} {found.currency}"


def difference_map(found: Reconciliation) -> HeatMap:
    """Return the grid of GPU models × days: billed − portal in percent of the portal's cost."""
    days = sorted({row.day for row in found.days})
    by_model: dict[str, dict[date, ComparedCost]] = defaultdict(dict)
    for row in found.days:
        by_model[row.gpu_model][row.day] = ComparedCost(row.billed_cost, row.portal_cost)
    # Summed before it is divided: a mean of ratios would weigh a cheap model like a dear one.
    every = {
        day: ComparedCost(
            sum(own[day].billed for own in by_model.values() if day in own),
            sum(own[day].portal for own in by_model.values() if day in own),
        )
        for day in days
    }
    rows = [(_ALL, every), *sorted(by_model.items())] if len(by_model) > 1 else by_model.items()
    return HeatMap(
        id="differences",
        title="Difference by day, %",
        caption="Billed is usage alone. Portal is the cost of all capacity before it is "
        "apportioned, without corrections of closed months. Days are "
        f"local to {found.zone.key}.",
        corner="GPU model",
        columns=[GridHead(f"{day.day}") for day in days],
        rows=[_grid_row(name, own, days, found) for name, own in rows],
        more=(),
        legend=[
            LegendKey("Billed more", "bill-over heat-10"),
            LegendKey("Billed less", "bill-under heat-10"),
            LegendKey("No portal cost", "heat-no-data"),
        ],
        empty="" if days else "Neither the bill nor the portal has a cost of a GPU.",
    )


def _grid_row(
    name: str, own: Mapping[date, ComparedCost], days: Sequence[date], found: Reconciliation
) -> DrawnRow:
    cells = [_grid_cell(day, own.get(day), found) for day in days]
    return DrawnRow(GridRow(name, [cell.cell for cell in cells]), cells)


def _grid_cell(day: date, one: ComparedCost | None, found: Reconciliation) -> GridCell:
    if one is None:
        return GridCell(None, "heat-blank")
    title = (
        f"{day}: billed {text(one.billed, found.currency)}, "
        f"portal {text(one.portal, found.currency)} {found.currency}"
    )
    if one.ratio is None:
        return GridCell(HeatCell(None, title), "heat-no-data")
    level = min(_LEVELS, ceil(abs(one.ratio) / _FULL * _LEVELS)) if abs(one.ratio) >= _NONE else 0
    hue = "bill-over" if one.ratio > 0 else "bill-under"
    shown = signed_percent(one.ratio).removesuffix(" %")
    return GridCell(HeatCell(one.ratio, title, shown), f"{hue} heat-{level}")


def model_table(found: Reconciliation) -> Table:
    """Return the month by GPU model, and by capacity type where the bill divides by it."""
    return MoneyTable(
        id="models",
        title="GPU models",
        columns=declared_columns(PoolDifference),
        rows=[
            _compared_row(
                row,
                values={"capacity_type": row.capacity_type or "any"},
                links={"portal_cost": _costs_href(found, ("gpu_model", row.gpu_model))},
            )
            for row in found.pools
        ],
        zone=found.zone,
        empty="Neither the bill nor the portal has a cost of a GPU in this month.",
    )


def _compared_row(
    row: PoolDifference | ReconciledDay,
    *,
    values: Mapping[str, Value],
    links: Mapping[str, str | None],
) -> MoneyRow:
    """Return a line with its difference in percent signed, and not drawn as a part of a whole."""
    found, ratio = money_row(row, values=values, links=links, explains={}), row.difference_ratio
    written = NOTHING if ratio is None else signed_percent(ratio).removesuffix(" %")
    # Written as amounts are, to 1e-8: so a file has the ratio, and the page the percentage.
    scaled = None if ratio is None else round(ratio * SCALE)
    return replace(
        found,
        amounts={**found.amounts, "difference_ratio": scaled},
        texts={**found.texts, "difference_ratio": written},
    )


def _costs_href(found: Reconciliation, *filters: tuple[str, str]) -> str:
    """Return the page of costs over the month."""
    days = days_query(month_window(found.month, found.zone), found.zone)
    return href("costs", [*filters, *days]) or ""


def day_table(found: Reconciliation) -> Table:
    """Return GPU models by day, with what the portal's cost lacks on them."""
    return MoneyTable(
        id="days",
        title="Days",
        columns=declared_columns(ReconciledDay),
        rows=[_compared_row(row, values={}, links={}) for row in found.days],
        zone=found.zone,
        empty="Neither the bill nor the portal has a cost of a GPU in this month.",
    )


def bill_table(bills: Sequence[BillRow], reading: QuerySession) -> Table:
    """Return all bills of a month that there were."""
    return MoneyTable(
        id="bills",
        title="Import history",
        columns=declared_columns(BillRow),
        rows=[money_row(row, values={}, links={}, explains={}) for row in bills],
        zone=reading.choice.zone,
        empty="No bill of this month was imported yet.",
    )


class SkuLine(Struct, frozen=True):
    """A SKU of a month's bills in its file; `billed_cost` in units of 1e-8."""

    sku: Annotated[str, Column("SKU", wraps=True)]
    description: Annotated[str, Column("Description", wraps=True)]
    billed_cost: Annotated[int, Column("Billed", digits=SCALE_DIGITS)]
    currency: Annotated[str, Column("Currency", off_page=True)]
    gpu_model: Annotated[str, Column("GPU model")]
    capacity_type: Annotated[str, Column("Capacity type")]


class SkuField(MoneyRow, frozen=True):
    """A SKU in the form of mappings: `chosen` is the value of its field.

    `before` is what the form was filled from: a field that still says so was not changed.
    """

    sku: str = ""
    chosen: str = ""
    capacity_type: str = ""
    before: str = ""
    source: str = ""


def sku_table(skus: Sequence[SkuRow], found: Reconciliation) -> Table:
    """Return the SKUs of a month: each row is a field of the form of mappings."""
    return MoneyTable(
        id="skus",
        title="SKU mapping",
        columns=[
            replace(column, unit=found.currency) if column.key == "billed_cost" else column
            for column in declared_columns(SkuLine)
        ],
        rows=[_sku_field(row, found) for row in skus],
        zone=found.zone,
        empty=f"The bill has no usage in {found.month:%Y-%m}: only taxes, credits or corrections.",
        page_length=FEW_ROWS,
    )


def _sku_field(row: SkuRow, found: Reconciliation) -> SkuField:
    target = row.target
    stored = NOT_MAPPED if target is None else target.gpu_model or NOT_GPU
    capacity_type = target.capacity_type if target else ""
    line = SkuLine(
        sku=row.sku,
        description="" if row.description == row.sku else row.description,
        billed_cost=row.amount,
        currency=found.currency,
        # The file says in words what the form says by its values.
        gpu_model={NOT_MAPPED: "not mapped", NOT_GPU: "not GPU"}.get(stored, stored),
        capacity_type=capacity_type or "any",
    )
    suggested = "suggested" if row.suggestion else ""
    told = money_row(line, values={}, links={}, explains={})
    return SkuField(
        told.values,
        amounts=told.amounts,
        texts=told.texts,
        sku=row.sku,
        chosen=row.suggestion or stored,
        capacity_type=capacity_type,
        before=f"{stored}/{capacity_type}",
        source="by name" if target and target.automatic else suggested,
    )


def targets_in(form: QueryDict) -> dict[str, SkuTarget | None]:
    """Return what a form says of SKUs; those that it left as they were are not among them."""
    skus, chosen = form.getlist("sku"), form.getlist("target")
    kinds, before = form.getlist("capacity_type"), form.getlist("before")
    found: dict[str, SkuTarget | None] = {}
    for sku, model, kind, was in zip(skus, chosen, kinds, before, strict=True):
        # A field left alone changes nothing, though its SKU was mapped by somebody else meanwhile.
        if f"{model}/{kind}" == was:
            continue
        if model == NOT_MAPPED:
            found[sku] = None
        else:
            found[sku] = SkuTarget("", "") if model == NOT_GPU else SkuTarget(model, kind)
    return found

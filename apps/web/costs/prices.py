"""The price book: what a GPU-hour costs, since when, and GPU models without a price."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpResponseBase

from apps.accounts.domain.structs import replace
from apps.costs import selectors as costs
from apps.costs.domain.prices import PriceEntry
from apps.costs.selectors import CostQuery, ExchangeRateRow
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Grouping
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row
from apps.web.components.formats import Format, day_text, percent
from apps.web.components.page_query import href
from apps.web.components.tables import (
    Column,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.components.tabs import Tab, tab_bar
from apps.web.costs.query import TAKES
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, query_session

TABS = (
    Tab("current", "Current"),
    Tab("history", "Price history"),
    Tab("rates", "Exchange rates"),
)
_ANY = "any"
_PRICE = Column("price_per_gpu_hour", "Price", Format.DECIMAL, "per GPU-h", "after the discount")
_COLUMNS = (
    Column("gpu_model", "GPU model"),
    Column("capacity_type", "Capacity type"),
    Column("cluster", "Cluster", hint="any: where no price of the cluster's own is set"),
    Column("tier", "Tier", hint="any: where no price of the tier's own is set"),
    _PRICE,
    Column("currency", "Currency"),
    Column("valid_from", "Valid from", Format.DAY),
    Column("valid_to", "Valid to", Format.DAY),
    Column("status", "Status", hint="an example came with the portal and was never confirmed"),
    Column("confirmed_by", "Confirmed by"),
    Column("confirmed_on", "Confirmed"),
    Column("source", "Source", wraps=True),
    Column("list_price_per_gpu_hour", "Before discount", Format.DECIMAL, "per GPU-h"),
    Column("discount_ratio", "Discount", Format.RATIO, "%"),
    Column("energy_per_kwh", "Energy", Format.DECIMAL, "per kWh", "on top; none: not billed"),
    Column("pue", "PUE", Format.DECIMAL, "", "the site's energy ÷ that of its computers"),
    Column("kind", "Kind"),
)
_OPTIONAL = frozenset(
    {
        *("cluster", "tier", "currency", "list_price_per_gpu_hour", "discount_ratio"),
        *("energy_per_kwh", "pue", "kind"),
    }
)
"""Columns that only files have where all prices say the same in them."""


@page
def prices(request: PageRequest) -> HttpResponseBase:
    """Show the prices that hold now, or all of all times. Prices are for everybody to see."""
    reading = query_session(request, takes=TAKES)
    book = costs.price_book()
    # The whole book is read for the count of its history anyway.
    current = [entry for entry in book.entries if entry.holds(reading.now)]
    tabs = tab_bar(request, TABS, name="Prices")
    counts = {"current": len(current), "history": len(book.entries)}
    shown: dict[str, Any] = {}
    if tabs.chosen == "current":
        unpriced = _unpriced(reading)
        tables = [_unpriced_table(unpriced, reading)] if unpriced else []
        tables.append(_price_table(current, reading))
        shown["row"] = _figures(current, unpriced)
    elif tabs.chosen == "history":
        tables = [_price_table(book.entries, reading, history=True)]
    else:
        tables = [_rate_table(costs.exchange_rate_rows(), reading)]
    return respond(request, reading, "prices", tables=tables, tabs=tabs.counted(counts), **shown)


def _figures(current: Sequence[PriceEntry], unpriced: dict[tuple[str, str], int]) -> FigureRow:
    open_ = sum(not entry.confirmed_by for entry in current)
    models = {model for model, _ in unpriced}
    hours = f"{sum(unpriced.values()) / NANO:,.0f} GPU-h excluded" if unpriced else ""
    tone = Tone.WARNING if unpriced else Tone.NONE
    return figure_row(
        KeyFigure("Without a price", f"{len(models)}", _models(models), note=hours, tone=tone),
        KeyFigure(
            "Unconfirmed prices",
            f"{open_}",
            f"of {len(current)}",
            note="with examples" if any(entry.example for entry in current) else "",
            basis="now",
            tone=Tone.WARNING if open_ else Tone.NONE,
        ),
        KeyFigure("Discounts", _discounts(current), basis="now"),
    )


def _models(models: Iterable[str]) -> str:
    return "GPU model" if len(set(models)) == 1 else "GPU models"


def _discounts(current: Sequence[PriceEntry]) -> str:
    found = sorted({entry.discount for entry in current if entry.discount})
    if not found:
        return "none"
    least, most = percent(float(found[0])), percent(float(found[-1]))
    return least if least == most else f"{least} – {most}"


def _unpriced(reading: QuerySession) -> dict[tuple[str, str], int]:
    """Return the nano-GPU-hours of the window without a price, by model and capacity type."""
    by = (Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
    query = CostQuery(reading.window, group_by=by, filters=reading.filters)
    found: dict[tuple[str, str], int] = defaultdict(int)
    for row in costs.cost_rows(query, visibility=reading.visibility, zone=reading.choice.zone):
        if row.lacks_price:
            found[row.groups[by[0]], row.groups[by[1]]] += row.gpu_hours
    return {key: hours for key, hours in found.items() if hours}


def _unpriced_table(found: dict[tuple[str, str], int], reading: QuerySession) -> Table:
    every = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return Table(
        id="unpriced",
        title="Unpriced GPU models",
        columns=[
            Column("gpu_model", "GPU model"),
            Column("capacity_type", "Capacity type"),
            Column("gpu_hours", "Excluded", Format.GPU_HOURS, "GPU-h", "in no sum of money"),
        ],
        rows=[
            TableRow(
                {"gpu_model": model, "capacity_type": kind, "gpu_hours": hours},
                {"gpu_hours": href("costs", [*reading.query, ("gpu_model", model)])},
            )
            for (model, kind), hours in every
        ],
        zone=reading.choice.zone,
        empty="",
        note="An administrator adds prices with the catalog (manage.py load_catalog).",
    )


def _rate_table(rates: Sequence[ExchangeRateRow], reading: QuerySession) -> Table:
    return Table(
        id="rates",
        title="Exchange rates",
        columns=list(declared_columns(ExchangeRateRow)),
        rows=[TableRow({**declared_values(row), "month": f"{row.month:%Y-%m}"}) for row in rates],
        zone=reading.choice.zone,
        empty="No exchange rate is set: an administrator loads them with the catalog.",
        on_phone=("month", "currency", "rate", "fixed_at"),
    )


def _price_table(
    entries: Sequence[PriceEntry], reading: QuerySession, *, history: bool = False
) -> Table:
    rows = [_price_row(entry, reading.choice.zone) for entry in entries]
    return Table(
        id="prices",
        title="Price history" if history else "Current prices",
        columns=_columns(rows),
        rows=rows,
        zone=reading.choice.zone,
        empty="The price book is empty: an administrator loads prices with the catalog.",
    )


def _columns(rows: Sequence[TableRow]) -> list[Column]:
    """Return the columns; those in which all prices are alike are in files alone.

    The price before the discount tells nothing without discounts, and a common currency stands at
    the price.
    """
    alike = {key for key in _OPTIONAL if len({row.values[key] for row in rows}) < 2}
    # One discount for all still makes both prices worth a column.
    if "discount_ratio" in alike and all(not row.values["discount_ratio"] for row in rows):
        alike.add("list_price_per_gpu_hour")
    unit = _PRICE.unit
    if rows and "currency" in alike:
        unit = f"{rows[0].values['currency']} {unit}"
    return [
        replace(column, unit=unit)
        if column is _PRICE
        else replace(column, in_files=column.key in alike)
        for column in _COLUMNS
    ]


def _status(entry: PriceEntry) -> str:
    if entry.example:
        return "example"
    return "confirmed" if entry.confirmed_by else "unconfirmed"


def _price_row(entry: PriceEntry, zone: ZoneInfo) -> TableRow:
    return TableRow(
        {
            "gpu_model": entry.gpu_model,
            "capacity_type": entry.capacity_type,
            "cluster": entry.cluster or _ANY,
            "tier": entry.tier or _ANY,
            "price_per_gpu_hour": float(entry.contracted),
            "currency": entry.currency,
            "list_price_per_gpu_hour": float(entry.per_gpu_hour),
            "discount_ratio": float(entry.discount),
            "energy_per_kwh": None if entry.per_kwh is None else float(entry.per_kwh),
            "pue": None if entry.per_kwh is None else float(entry.pue),
            "status": _status(entry),
            "confirmed_by": entry.confirmed_by,
            "confirmed_on": day_text(entry.confirmed_on, zone) if entry.confirmed_on else "",
            "kind": entry.kind.value,
            "source": entry.source,
            "valid_from": entry.valid_from,
            "valid_to": entry.valid_to,
        }
    )

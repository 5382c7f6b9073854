"""Explain a figure of any room: its formula, prices, hours by grade, rows and queries."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.http import Http404, HttpResponseBase
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import (
    FUNCTIONS,
    Explained,
    FigureUnit,
    Number,
    PriceLine,
    evaluate,
)
from apps.web.components.formats import NOTHING, Format, Value, percent, plain, shown
from apps.web.components.page_query import FEW_ROWS, TIMES, figure_href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.costs.query import CAUSES
from apps.web.explain.explanation import FormulaTerm, instants_of, queries_of
from apps.web.explain.providers import FigureQuery, explained, filters_of, names_of, subject_of
from apps.web.pages import page, respond
from apps.web.query_session import (
    PageRequest,
    QuerySession,
    freshness_of,
    held_of,
    quality_of,
    query_session,
)

_TOKEN = re.compile(r"[A-Za-z_][A-Za-z_0-9]*|[0-9.]+|\*\*|[-+*/(),]")
_SIGNS = {"*": "×", "/": "÷", "-": "−", "**": "^"}
_WORDS = {
    "sum": "Σ",
    "dot": "Σ of products",
    "squares": "Σ of squares",
    "nearest": "nearest rank",
    "cents": "to the cent",
}
_FORMATS = {
    FigureUnit.RATIO: Format.RATIO,
    FigureUnit.SECONDS: Format.SECONDS,
    FigureUnit.COUNT: Format.COUNT,
    FigureUnit.TEXT: Format.TEXT,
    FigureUnit.TIME: Format.TIME,
}
_TOLERANCE = 1e-6


class GradeShare(Struct, frozen=True):
    name: str
    amount: str
    share: str


class ExplainedPage(Struct, frozen=True):
    """What the page of a figure shows; `holds` says whether its formula gives the figure."""

    one: Explained
    value: str
    in_full: str
    formula: Sequence[FormulaTerm]
    holds: bool | None
    grades: Sequence[GradeShare]


def page_of(one: Explained, reading: QuerySession, names: Mapping[str, str]) -> ExplainedPage:
    """Return an explanation in words and numbers; `names` say what the figure is of."""
    return ExplainedPage(
        one=one,
        value=written(one.value, one, one.unit, reading.choice.zone),
        in_full=in_full(one.value),
        formula=[_term(token, one, reading, names) for token in _TOKEN.findall(one.formula)],
        holds=holds(one),
        grades=_grades(one),
    )


def holds(one: Explained) -> bool | None:
    """Say whether the formula over the numbers shown gives the figure; None: it is not known."""
    found = evaluate(one)
    if found is None or one.value is None:
        return None
    # Sums of floats depend on their order: only the last digits may differ.
    return abs(float(found) - float(one.value)) <= _TOLERANCE * max(1.0, abs(float(one.value)))


def in_full(value: Number | None) -> str:
    """Write a number to its last digit."""
    if value is None:
        return "unknown"
    return plain(value if isinstance(value, Decimal) else Decimal(repr(value)))


def written(value: Any, one: Explained, unit: FigureUnit, zone: ZoneInfo) -> str:
    """Write a number as pages do, with its unit."""
    if value is None:
        return NOTHING
    if unit is FigureUnit.MONEY:
        return f"{value:,.2f} {one.currency}"
    if unit in _FORMATS:
        return shown(value, _FORMATS[unit], zone)
    return f"{shown(float(value), Format.DECIMAL, zone)} {unit.value}".strip()


def _term(
    token: str, one: Explained, reading: QuerySession, names: Mapping[str, str]
) -> FormulaTerm:
    # Inputs before columns and functions: a name that is given has a number of its own.
    given = next((i for i in one.inputs if i.name == token), None)
    if given is not None:
        text = written(given.value, one, given.unit, reading.choice.zone)
        link = figure_href(given.figure, reading.query, **names) if given.figure else ""
        return FormulaTerm(text, given.label, link, in_full(given.value))
    column = next((c for c in one.columns if c.key == token), None)
    if column is not None:
        return FormulaTerm(column.label, "of the rows")
    if token in FUNCTIONS:
        return FormulaTerm(_WORDS.get(token, token))
    return FormulaTerm(_SIGNS.get(token, token))


def _grades(one: Explained) -> list[GradeShare]:
    whole = sum(one.grades.values())
    return [
        GradeShare(
            _GRADES.get(name, name),
            f"{amount:,.1f} {one.grade_unit.value}",
            percent(amount / whole, digits=1),
        )
        for name, amount in one.grades.items()
        if whole
    ]


def tables_of(one: Explained, reading: QuerySession) -> list[Table]:
    """Return the rows below a figure, and the lines of the price book that it rests on."""
    found = [_rows(one, reading)] if one.columns else []
    return [*found, _prices(one.prices, reading)] if one.prices else found


def _rows(one: Explained, reading: QuerySession) -> Table:
    return Table(
        id="rows",
        title="Rows",
        columns=[_column(c.key, c.label, c.unit, one.currency) for c in one.columns],
        rows=[TableRow(_values(one, row)) for row in one.rows],
        zone=reading.choice.zone,
        empty="There are no rows in this window.",
        ordered=True,
        page_length=FEW_ROWS,
        on_phone=_on_phone([column.key for column in one.columns]),
    )


def _on_phone(keys: Sequence[str]) -> tuple[str, ...]:
    """Return what names a row and what it adds to the figure: the sums stand last."""
    return (*keys[:2], *keys[-2:]) if len(keys) > 3 else ()


def _column(key: str, label: str, unit: FigureUnit, currency: str) -> Column:
    if unit is FigureUnit.GPU_HOURS:
        return Column(key, label, Format.GPU_HOURS, unit.value)
    if unit is FigureUnit.MONEY:
        return Column(key, label, Format.DECIMAL, currency)
    return Column(
        key, label, _FORMATS.get(unit, Format.DECIMAL), unit.value if unit in _NAMED else ""
    )


_NAMED = frozenset({FigureUnit.GPUS, FigureUnit.HOURS, FigureUnit.KWH, FigureUnit.KG_CO2E})


def _values(one: Explained, row: Mapping[str, Any]) -> dict[str, Value]:
    found = {column.key: _value(row.get(column.key), column.unit) for column in one.columns}
    return found | {"cause": _CAUSES.get(cause, cause)} if (cause := row.get("cause")) else found


_CAUSES: Mapping[str, str] = {cause.value: cls.label for cause, cls in CAUSES.items()}
_GRADES: Mapping[str, str] = {"inferred": "from series", "unmeasured": "no metrics"}
"""The words of pages for what the API names otherwise."""


def _value(value: Any, unit: FigureUnit) -> Value:
    if unit is FigureUnit.GPU_HOURS and value is not None:
        # Tables write GPU-hours from whole nano-GPU-hours.
        return round(Decimal(repr(float(value))) * NANO)
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, str | int | float | datetime) else None


_PRICE_COLUMNS = (
    Column("gpu_model", "GPU model"),
    Column("capacity_type", "Capacity type"),
    Column("cluster", "Cluster"),
    Column("tier", "Tier"),
    Column("per_gpu_hour", "Price", Format.DECIMAL, "a GPU-hour"),
    Column("currency", "Currency"),
    Column("per_kwh", "Energy price", Format.DECIMAL, "a kWh"),
    Column("pue", "PUE", Format.DECIMAL),
    Column("valid_from", "Valid from", Format.TIME),
    Column("valid_to", "Valid to", Format.TIME),
    Column("source", "Source"),
)


def _prices(lines: Sequence[PriceLine], reading: QuerySession) -> Table:
    return Table(
        id="prices",
        title="Price book",
        columns=_PRICE_COLUMNS,
        rows=[
            TableRow({c.key: _value(getattr(line, c.key), FigureUnit.TEXT) for c in _PRICE_COLUMNS})
            for line in lines
        ],
        zone=reading.choice.zone,
        empty="No price.",
        on_phone=("gpu_model", "per_gpu_hour", "currency", "capacity_type"),
    )


@page
def explain_figure(request: PageRequest, figure: str) -> HttpResponseBase:
    # Of nonsense in the times the page tells.
    names = (name for key, of in request.GET.lists() if key not in TIMES for name in of)
    if any("\0" in name for name in names):
        raise Http404("No name holds that.")  # PostgreSQL refuses to compare with it
    reading = query_session(request, takes=filters_of(figure), keeps=False)
    reading = replace(reading, subject=subject_of(figure))
    one = explained(FigureQuery(figure, reading, request.GET))
    if one is None:
        raise Http404("There is no such figure with these filters, or you may not see it.")
    return respond(
        request,
        reading,
        "explained",
        tables=tables_of(one, reading),
        explanation=page_of(one, reading, names_of(request.GET)),
        sources=queries_of(one.sources, reading),
        instants=instants_of(reading),
        quality=quality_of(reading, freshness_of(reading), held_of(reading)),
    )

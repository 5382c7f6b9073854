"""What any room says of one of its figures: a formula over its own numbers, and the rows below it.

The formula is held to the figure: `evaluate` computes it anew from the numbers that are shown.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

Number = int | float | Decimal

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


class FigureUnit(StrEnum):
    """What a number of an explanation is in; money has its currency instead."""

    GPU_HOURS = "GPU-h"
    GPUS = "GPUs"
    RATIO = "ratio"
    SECONDS = "s"
    HOURS = "h"
    COUNT = ""
    TEXT = "text"
    TIME = "time"
    MONEY = "money"
    KWH = "kWh"
    KG_CO2E = "kg CO2e"


class FigureInput(Struct, frozen=True):
    """A number of a formula by its `name` there; `figure` is the key of what explains it."""

    name: str
    label: str
    value: Number | None
    unit: FigureUnit = FigureUnit.GPU_HOURS
    figure: str = ""


class RowColumn(Struct, frozen=True):
    """A column of the rows below a figure; the formula may sum it by its key."""

    key: str
    label: str
    unit: FigureUnit = FigureUnit.TEXT


class PriceLine(Struct, frozen=True):
    """A line of the price book that a figure rests on, and from when until when it holds.

    Measured energy costs `per_kwh` × `pue` on top, None where it is not billed.
    """

    gpu_model: str
    capacity_type: str
    per_gpu_hour: Decimal
    currency: str
    cluster: str = ""
    tier: str = ""
    source: str = ""
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    per_kwh: Decimal | None = None
    pue: Decimal | None = None


class Explained(Struct, frozen=True):
    """One figure: `formula` over the names of `inputs` and the keys of `columns`.

    `value` is None where it is not known, and `nothing` says why. `grades` are hours, or
    GPU-hours, by how they are known. `origin` says where the rows come from, `sources` which
    queries of the metrics system are behind them (capacity, holding, activity).
    """

    figure: str
    label: str
    meaning: str
    anchor: str
    value: Number | None
    unit: FigureUnit
    formula: str
    inputs: Sequence[FigureInput] = ()
    columns: Sequence[RowColumn] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    currency: str = ""
    grades: Mapping[str, float] = field(default_factory=dict)
    grade_unit: FigureUnit = FigureUnit.GPU_HOURS
    prices: Sequence[PriceLine] = ()
    origin: str = ""
    sources: Sequence[str] = ()
    nothing: str = ""


def evaluate(one: Explained) -> Number | None:
    """Return what the formula gives for the numbers shown.

    None where one of them is not known, or where the formula divides by nothing.
    Raises ValueError for a formula of anything but names, numbers, operators and FUNCTIONS.
    """
    names: dict[str, Any] = {column.key: _column(one, column.key) for column in one.columns}
    # After the columns: an input may have the name of one, and is what the formula means.
    names |= {given.name: given.value for given in one.inputs}
    if one.value is None or any(given.value is None for given in one.inputs):
        return None
    try:
        found: Number = _value(ast.parse(one.formula, mode="eval").body, names)
    except ZeroDivisionError:  # of Decimal too
        return None
    return found


def _column(one: Explained, key: str) -> list[Any]:
    return [row.get(key) for row in one.rows]


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=op, right=right):
            pair = _alike(_value(left, names), _value(right, names))
            return _OPERATORS[type(op)](*pair)
        case ast.Call(func=ast.Name(id=name), args=args):
            return FUNCTIONS[name](*(_value(one, names) for one in args))
    raise ValueError(f"no formula has {ast.dump(node)}")


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two numbers that Python can add: money is exact, GPU-hours are not."""
    # Both become floats: the product with a float cannot be exact anyway.
    if isinstance(left, Decimal) != isinstance(right, Decimal):
        return float(left), float(right)
    return left, right


def _sum(values: Sequence[Any]) -> Number:
    known = [value for value in values if value is not None]
    # Money is summed as it is; other amounts are floats, which fsum adds without crumbs.
    if any(isinstance(value, Decimal) for value in known):
        return sum((Decimal(value) for value in known), Decimal(0))
    return math.fsum(known)


def _dot(amounts: Sequence[Any], each: Sequence[Any]) -> Number:
    return math.fsum(
        float(a) * float(b)
        for a, b in zip(amounts, each, strict=True)
        if a is not None and b is not None
    )


def _nearest(share: float, values: Sequence[float], counts: Sequence[int]) -> float:
    """Return the smallest value that at least this share of all have at most (nearest rank)."""
    # By nearest rank, as the queue times that it explains: no value between two.
    rank, seen = math.ceil(share * sum(counts)), 0
    for value, count in sorted(zip(values, counts, strict=True)):
        seen += count
        if seen >= rank:
            return value
    raise ValueError("there is nothing to rank")


def _squares(values: Sequence[float]) -> float:
    return math.fsum(value * value for value in values if value is not None)


def _cents(value: Number) -> Decimal:
    return Decimal(value).quantize(Decimal("0.01"), ROUND_HALF_EVEN)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sum": _sum,
    "dot": _dot,
    "squares": _squares,
    "nearest": _nearest,
    "max": max,
    "min": min,
    "cents": _cents,
}

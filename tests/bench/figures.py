"""What was measured, against its target: printed as a table and written as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict
from rich.console import Console
from rich.table import Table


class Figure(Struct, frozen=True):
    """One measured value. `target` and `holds` are None where it is stated only.

    `prototype` is what a prototype of the same work reached; shown, not written.
    """

    name: str
    value: float
    unit: str
    target: str | None = None
    holds: bool | None = None
    prototype: str = ""


def at_most(name: str, value: float, limit: float, unit: str, prototype: str = "") -> Figure:
    """Return a figure that holds when it is no more than `limit`."""
    return Figure(name, value, unit, f"≤ {limit:.4g}", value <= limit, prototype)


def at_least(name: str, value: float, limit: float, unit: str, prototype: str = "") -> Figure:
    """Return a figure that holds when it is no less than `limit`."""
    return Figure(name, value, unit, f"≥ {limit:.4g}", value >= limit, prototype)


def stated(name: str, value: float, unit: str, prototype: str = "") -> Figure:
    """Return a figure without a target."""
    return Figure(name, value, unit, prototype=prototype)


def show(figures: Sequence[Figure], title: str, console: Console) -> None:
    """Print the figures, a row each."""
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("measured", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("target", justify="right", no_wrap=True)
    table.add_column("holds", no_wrap=True)
    table.add_column("prototype", justify="right", no_wrap=True)
    for figure in figures:
        holds = {True: "yes", False: "[bold red]NO[/]", None: ""}[figure.holds]
        prototype = f"\\[{figure.prototype}]" if figure.prototype else ""
        value = f"{_number(figure.value)} {figure.unit}".rstrip()
        table.add_row(figure.name, value, figure.target or "", holds, prototype)
    console.print(table)


def write(figures: Sequence[Figure], path: Path) -> None:
    """Write the figures as a list of objects."""
    fields = ("name", "value", "unit", "target", "holds")
    rows = [{field: asdict(figure)[field] for field in fields} for figure in figures]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(rows, ensure_ascii=False, indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _number(value: float) -> str:
    if value == 0:
        return "0"
    if value >= 1000 and value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"

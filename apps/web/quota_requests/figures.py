"""How frozen figures are told: small tables, figures at a glance, sentences, and their words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from apps.clusters.domain.durations import duration
from apps.web.components.formats import NOTHING, Format, shown

UNKNOWN = "not known"
_UTC = ZoneInfo("UTC")
Frozen = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """A small table: its first column names the rows, the others hold figures.

    `worded`: the others hold words. `folded`: it is closed until somebody opens it.
    """

    id: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    worded: bool = False
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Owner:
    """Another tool that owns the limit, and what that means for the change."""

    manager: str
    advice: str


@dataclass(frozen=True, slots=True)
class Told:
    """What one screen shows: figures at a glance, tables, and sentences of what to mind.

    `warnings` speak against going on without a thought; `notes` say what else is so, or not known.
    """

    glance: Sequence[tuple[str, str, str]] = ()
    grids: Sequence[Grid] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    owners: Sequence[Owner] = ()
    detail: str = ""


def amount(text: object) -> str:
    """Write a frozen figure, which is text; what is not known is said."""
    return UNKNOWN if text is None else shown(float(str(text)), Format.NUMBER, _UTC)


def gpu_hours(text: object) -> str:
    """Write GPU-hours with one decimal, as everywhere, so that a column lines up."""
    if text is None:
        return UNKNOWN
    hours = float(str(text))
    return "<0.1" if 0 < hours < 0.05 else f"{hours:,.1f}"


def ratio(text: object) -> str:
    return UNKNOWN if text is None else shown(float(str(text)), Format.RATIO, _UTC)


def whole_ratio(text: object) -> str:
    """Write a fraction of 100 % or more in whole percent: nobody decides by its decimals."""
    if text is None or float(str(text)) < 1:
        return ratio(text)
    return f"{float(str(text)) * 100:,.0f} %"


def money(text: object, currency: str) -> str:
    return UNKNOWN if text is None else f"{Decimal(str(text)):,.2f} {currency}".strip()


def wait(text: object) -> str:
    return UNKNOWN if text is None else duration(float(str(text)))


def at(text: object, zone: ZoneInfo) -> str:
    """Write a frozen instant to the minute."""
    return shown(datetime.fromisoformat(str(text)), Format.HOUR, zone) if text else NOTHING

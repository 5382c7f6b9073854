"""How frozen figures are told: small tables, figures at a glance, sentences, and their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from apps.clusters.domain.durations import duration
from apps.quota_requests.domain.snapshots import Owner
from apps.web.components.formats import NOTHING, Format, shown

UNKNOWN = "not known"
_UTC = ZoneInfo("UTC")


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
class Summary:
    """What one screen shows: figures at a glance, tables, and sentences of what to mind.

    `warnings` speak against going on without a thought; `notes` say what else is so, or not known.
    """

    glance: Sequence[tuple[str, str, str]] = ()
    grids: Sequence[Grid] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    owners: Sequence[Owner] = ()
    detail: str = ""


def amount(units: float | None) -> str:
    """Write an amount; what is not known is said."""
    return UNKNOWN if units is None else shown(float(units), Format.NUMBER, _UTC)


def gpu_hours(hours: float | None) -> str:
    """Write GPU-hours with one decimal, as everywhere, so that a column lines up."""
    if hours is None:
        return UNKNOWN
    return "<0.1" if 0 < hours < 0.05 else f"{hours:,.1f}"


def ratio(fraction: float | None) -> str:
    return UNKNOWN if fraction is None else shown(fraction, Format.RATIO, _UTC)


def whole_ratio(fraction: float | None) -> str:
    """Write a fraction of 100 % or more in whole percent: nobody decides by its decimals."""
    if fraction is None or fraction < 1:
        return ratio(fraction)
    return f"{fraction * 100:,.0f} %"


def money(sum_: Decimal | None, currency: str) -> str:
    return UNKNOWN if sum_ is None else f"{sum_:,.2f} {currency}".strip()


def wait(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration(seconds)


def at(instant: datetime | None, zone: ZoneInfo) -> str:
    """Write an instant to the minute."""
    return shown(instant, Format.HOUR, zone) if instant else NOTHING

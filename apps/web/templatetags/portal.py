"""Words of the templates: numbers, times and addresses, written as everywhere else."""

from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from django import template
from django.middleware.csrf import get_token
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.accounts.permissions import can_administer, visibility_of
from apps.alerts.selectors import MOST_UNREAD, unread_count
from apps.clusters.domain import resources
from apps.costs.permissions import can_see_bills
from apps.operations.domain.month_report import FigureValue, MonthFigure
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import FigureUnit
from apps.web.components import page_query, table_rendering
from apps.web.components.formats import (
    NOTHING,
    Format,
    clock_text,
    exact,
    hour_text,
    mebibytes,
    money,
    percent,
    shown,
    unit_words,
)
from apps.web.components.tables import Table
from apps.web.navigation import NavGroup, groups_for
from apps.web.quota_requests.turns import turns_for

register = template.Library()
register.filter(mebibytes)
register.simple_tag(turns_for)
# Numbers are written alike in every zone; the formatter needs one all the same.
_UTC = ZoneInfo("UTC")
_WHOLE_FROM = 100


@register.filter
def gpu_hours(amount: int | None) -> str:
    """Write nano-GPU-hours, short."""
    return shown(amount, Format.GPU_HOURS, _UTC)


@register.filter
def gpu_hours_exact(amount: int | None) -> str:
    """Write nano-GPU-hours in full, for titles."""
    return exact(amount, Format.GPU_HOURS, _UTC)


@register.filter
def ratio(value: float | None) -> str:
    """Write a fraction in percent; see `formats.percent`."""
    return NOTHING if value is None else percent(value)


@register.filter
def number(value: float | None) -> str:
    """Write a number with two decimals at most."""
    return shown(value, Format.NUMBER, _UTC)


@register.filter
def unit_of(units: str, amount: str) -> str:
    """Write the unit of an amount: `GPUs`, of `1` it is `GPU`."""
    return unit_words(amount, units)


@register.filter
def gpus(value: float | None) -> str:
    """Write a number of GPUs with its noun."""
    return NOTHING if value is None else resources.gpus(value)


@register.filter
def month_value(figure: MonthFigure) -> str:
    """Write a figure of the monthly report; no data is said as such."""
    return _month_text(figure.value, figure)


@register.filter
def month_before(figure: MonthFigure) -> str:
    """Write the same of the month before."""
    return _month_text(figure.before, figure)


@register.filter
def month_unit(figure: MonthFigure) -> str:
    """Return the unit of a figure of the monthly report, for the head of its column."""
    if figure.currency:
        return figure.currency
    return "%" if figure.unit is FigureUnit.RATIO else figure.unit.value


@register.filter
def month_short(figure: MonthFigure) -> str:
    """Write a figure at the head of the report: hours and energy without unit, large ones whole.

    Eleven share a row: with decimals, thousands of kWh would break in two.
    """
    if figure.value is None or figure.unit not in (FigureUnit.GPU_HOURS, *_ENERGY_UNITS):
        return month_value(figure)
    scale = NANO if figure.unit is FigureUnit.GPU_HOURS else 1
    amount = float(figure.value) / scale
    return f"{amount:,.0f}" if amount >= _WHOLE_FROM else month_number(figure)


@register.filter
def month_number(figure: MonthFigure) -> str:
    """Write a figure of the monthly report without its unit; money keeps the sign."""
    text = month_value(figure)
    return text if figure.currency else text.removesuffix(month_unit(figure)).rstrip()


def _month_text(value: FigureValue, figure: MonthFigure) -> str:
    if value is None:
        return "no data"
    if isinstance(value, Decimal):
        return money(value, figure.currency)
    if figure.unit is FigureUnit.RATIO:
        return percent(value)
    format_ = Format.NUMBER if figure.unit in _ENERGY_UNITS else Format.GPU_HOURS
    # A space that does not break keeps the unit with its number.
    return f"{shown(value, format_, _UTC)}\u00a0{figure.unit.value}"


_ENERGY_UNITS = (FigureUnit.KWH, FigureUnit.KG_CO2E)


@register.filter
def seconds(value: float | None) -> str:
    """Write a duration as `8h 13m`; no data is said as such."""
    return "no data" if value is None else shown(value, Format.SECONDS, _UTC)


@register.filter
def moment(value: datetime | None, zone: ZoneInfo) -> SafeString:
    """Write an instant as `22 Nov 07:41` in the report's time zone, in UTC on hover."""
    if value is None:
        return format_html("{}", NOTHING)
    utc = exact(value, Format.TIME, zone)
    text = clock_text(value, zone)
    return format_html('<time datetime="{}" title="{}">{}</time>', utc, utc, text)


@register.filter
def clock(value: datetime | None, zone: ZoneInfo) -> str:
    """Write the same as bare text, for attributes."""
    return NOTHING if value is None else clock_text(value, zone)


@register.filter
def time_of_day(value: datetime, zone: ZoneInfo) -> str:
    """Write the clock of an instant, local to the zone: `07:54`."""
    return hour_text(value.astimezone(zone))


@register.filter
def day(value: datetime | None, zone: ZoneInfo) -> str:
    """Write the day that begins at an instant."""
    return shown(value, Format.DAY, zone)


@register.filter
def with_code(text: str) -> SafeString:
    """Write what stands between `backticks` as code, and everything as text."""
    parts = enumerate(text.split("`"))
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", p) if n % 2 else p,) for n, p in parts)
    )


@register.simple_tag(takes_context=True)
def body_rows(context: template.Context, table: Table) -> SafeString:
    """Write the rows of a table, with the buttons of those that have some."""
    # Asking for a token sets a cookie and a header; most tables have no buttons.
    token = get_token(context["request"]) if table.has_actions else ""
    return table_rendering.body(table, token)


@register.simple_tag
def foot_row(table: Table) -> SafeString:
    """Write the total of a table that has one."""
    return table_rendering.foot(table)


@register.simple_tag
def href(page: str, query: page_query.Query = (), /, **parts: str) -> str:
    """Return the address of a page with window and filters; empty when there is none."""
    return page_query.href(page, query, **parts) or ""


@register.simple_tag(takes_context=True)
def navigation(context: template.Context) -> list[NavGroup]:
    """Return the groups of pages for the reader of this page.

    They keep the page's window and filters: `kept_query` where it is about less than it says.
    """
    reading = context.get("reading")
    return groups_for(
        context.get("kept_query") or (reading.query if reading else ()),
        str(context.get("room", "")),
        is_admin=can_administer(context["request"].user),
        is_finance=can_see_bills(context["request"].user),
    )


@register.simple_tag
def explain_figure(figure: str, query: page_query.Query, **names: str) -> str:
    """Return the address of the page that explains a figure of a room; see `links.figure_href`."""
    return page_query.figure_href(figure, query, **names)


@register.simple_tag
def explain(figure: str, query: page_query.Query, **scope: str) -> str:
    """Return the address of the page that explains one figure; see `links.explain_href`."""
    return page_query.explain_href(figure, query, **scope)


@register.simple_tag(takes_context=True)
def unread_alerts(context: template.Context) -> str:
    """Return how many alerts the reader has not read, `99+` at most; empty for none. One query."""
    reading, user = context.get("reading"), context["request"].user
    count = unread_count(user, visibility=reading.visibility if reading else visibility_of(user))
    return f"{MOST_UNREAD}+" if count > MOST_UNREAD else str(count or "")

"""Words of the templates: numbers, times and addresses, written as everywhere else."""

from datetime import datetime
from zoneinfo import ZoneInfo

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.clusters.domain import resources
from apps.web.components import page_query, table_rendering
from apps.web.components.formats import NOTHING, Format, exact, shown
from apps.web.components.tables import Table

register = template.Library()
_UTC = ZoneInfo("UTC")


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
    """Write a fraction in percent."""
    return shown(value, Format.RATIO, _UTC)


@register.filter
def number(value: float | None) -> str:
    """Write a number with two decimals at most."""
    return shown(value, Format.NUMBER, _UTC)


@register.filter
def gpus(value: float | None) -> str:
    """Write a number of GPUs with its noun."""
    return NOTHING if value is None else resources.gpus(value)


@register.filter
def mebibytes(value: float | None) -> str:
    """Write an amount of memory, given in MiB, as GiB from one GiB up."""
    if value is None:
        return NOTHING
    return f"{value / 1024:,.1f} GiB" if value >= 1024 else f"{value:,.0f} MiB"


@register.filter
def local_time(value: datetime | None, zone: ZoneInfo) -> str:
    """Write an instant in the report's time zone."""
    return shown(value, Format.TIME, zone)


@register.filter
def moment(value: datetime | None, zone: ZoneInfo) -> SafeString:
    """Write an instant to the minute, with its year where that is not this one."""
    if value is None:
        return format_html("{}", NOTHING)
    local = value.astimezone(zone)
    text = shown(value, Format.HOUR, zone)
    if local.year != timezone.now().astimezone(zone).year:
        text = f"{shown(value, Format.DAY, zone)} {local:%H:%M %Z}"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(timespec="seconds"),
        shown(value, Format.TIME, zone),
        text,
    )


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


@register.simple_tag
def body_rows(table: Table) -> SafeString:
    """Write the rows of a table."""
    return table_rendering.body(table.body())


@register.simple_tag
def foot_row(table: Table) -> SafeString:
    """Write the total of a table that has one."""
    return table_rendering.foot(table.foot())


@register.simple_tag
def href(page: str, query: page_query.Query = (), /, **parts: str) -> str:
    """Return the address of a page with window and filters; empty when there is none."""
    return page_query.href(page, query, **parts) or ""


@register.simple_tag
def explain_figure(figure: str, query: page_query.Query, **names: str) -> str:
    """Return the address of the page that explains a figure of a room; see `links.figure_href`."""
    return page_query.figure_href(figure, query, **names)


@register.simple_tag
def explain(figure: str, query: page_query.Query, **scope: str) -> str:
    """Return the address of the page that explains one figure; see `links.explain_href`."""
    return page_query.explain_href(figure, query, **scope)

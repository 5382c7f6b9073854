"""What a page reads with: who asks, over which window, with which filters."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.permissions import Visibility, visibility_of
from apps.clusters import selectors as clusters
from apps.clusters.domain.window import Window
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.rows import Filters, Grouping, Interval, Page, UsageRow
from apps.usage.selectors import Freshness
from apps.web import charts, forms
from apps.web.charts import Axis
from apps.web.forms import WindowChoice
from apps.web.links import Query
from apps.web.quality import Quality, quality

if TYPE_CHECKING:
    from django_htmx.middleware import HtmxDetails

    from apps.accounts.models import User

Row = TypeVar("Row")
COMPARE, NOT_COMPARED = "compare", "no"


class PageRequest(HttpRequest):
    """A request of somebody who is signed in, as the middleware leaves it."""

    user: "User"
    htmx: "HtmxDetails"


@dataclass(frozen=True, slots=True)
class Reading:
    """The plain arguments that a page's selectors are called with, and its links carry.

    `clusters` are the names that can be filtered by; `problems` say what of the address was not
    understood; `query` reproduces window and filters; `compares` says whether figures are to be
    held against the period before.
    """

    choice: WindowChoice
    filters: Filters
    visibility: Visibility
    now: datetime
    clusters: tuple[str, ...]
    problems: tuple[str, ...]
    query: Query
    compares: bool = True

    @property
    def window(self) -> Window:
        return self.choice.window


def reading_of(request: PageRequest) -> Reading:
    """Return how to read for this request. Three queries at most; the clock is read here."""
    visibility = visibility_of(request.user)
    now = timezone.now().replace(microsecond=0)
    choice = forms.window_from(request.GET, zone=clusters.report().zone, now=now)
    known = tuple(row.name for row in clusters.cluster_rows(visibility=visibility))
    chosen, problem = forms.names_from(request.GET, "cluster", known)
    compares = request.GET.get(COMPARE) != NOT_COMPARED
    return Reading(
        choice=choice,
        filters=Filters(cluster=chosen),
        visibility=visibility,
        now=now,
        clusters=known,
        problems=tuple(text for text in (choice.problem, problem) if text),
        query=(
            *choice.query,
            *(("cluster", name) for name in chosen),
            *(() if compares else ((COMPARE, NOT_COMPARED),)),
        ),
        compares=compares,
    )


def on_cluster(reading: Reading, cluster: str) -> Reading:
    """Return the reading of a page about something on one cluster, with no choice of others."""
    return replace(reading, filters=replace(reading.filters, cluster=(cluster,)), clusters=())


def usage_of(
    reading: Reading,
    *,
    by: Sequence[Grouping],
    interval: Interval | None = None,
    tier: str = "",
    team: str = "",
    narrowed: Filters | None = None,
    window: Window | None = None,
) -> list[UsageRow]:
    """Return the ledger over the reading's window, by its own interval unless others are given.

    `tier` and `team` narrow what the reading's filters leave; `narrowed` stands in their place.
    """
    filters = narrowed or replace(
        reading.filters, tier=(tier,) if tier else (), team=(team,) if team else ()
    )
    return usage.usage_rows(
        window or reading.window,
        interval=interval or reading.choice.interval,
        group_by=by,
        filters=filters,
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )


def every_row(page_at: Callable[[str | None], Page[Row]]) -> Iterator[Row]:
    """Yield the rows of all pages, each page read when its rows are asked for."""
    page = page_at(None)
    yield from page.rows
    while page.next_cursor is not None:
        page = page_at(page.next_cursor)
        yield from page.rows


def freshness_of(reading: Reading) -> Freshness:
    """Return how complete the facts of the reading's window and clusters are."""
    return usage.freshness(
        reading.window, filters=reading.filters, visibility=reading.visibility, now=reading.now
    )


def axis_of(reading: Reading, freshness: Freshness) -> Axis:
    """Return the time axis of the reading's charts, with what was not collected."""
    choice = reading.choice
    lost = {*freshness.missing, *freshness.failed}
    return Axis(
        periods=choice.periods,
        interval=choice.interval,
        zone=choice.zone,
        label=choice.label,
        missing=charts.missing_by_period(choice.periods, lost),
        unfinished=choice.interval is Interval.DAY and reading.now < choice.last_day_end,
    )


def quality_of(reading: Reading, freshness: Freshness, amounts: Amounts | None) -> Quality:
    """Return the banner for numbers that add up to `amounts`."""
    return quality(
        freshness,
        amounts,
        start=reading.window.start,
        zone=reading.choice.zone,
        now=reading.now,
    )

"""What a page reads with: who asks, over which window, with which filters."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.permissions import Visibility, visibility_of
from apps.clusters import selectors as clusters
from apps.clusters.domain.window import Window
from apps.pending import selectors as pending
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.rows import Filters, Grouping, RowPage, TimeStep, UsageQuery, UsageRow
from apps.usage.selectors import Freshness
from apps.web import forms
from apps.web.components import charts
from apps.web.components.charts import Axis
from apps.web.components.filtering import filtering_of
from apps.web.components.ledger import ALLOCATED_CLASSES, CAPACITY_CLASSES, LedgerClass
from apps.web.components.links import Query
from apps.web.data_quality.quality import Quality, quality
from apps.web.forms import WindowChoice

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
class QuerySession:
    """The plain arguments that a page's selectors are called with, and its links carry.

    `clusters` are the names that can be filtered by; `problems` say what of the address was not
    understood; `query` reproduces window and filters; `compares` says whether figures are to be
    held against the period before. `choices` are the filters that can be added, and `asides`
    those of the address that the page does not take: see `apps.web.components.filtering`.
    `subject` are the keys of filters without which there is no such page.
    """

    choice: WindowChoice
    filters: Filters
    visibility: Visibility
    now: datetime
    clusters: tuple[str, ...]
    problems: tuple[str, ...]
    query: Query
    compares: bool = True
    choices: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    asides: Query = ()
    subject: Sequence[str] = ()

    @property
    def window(self) -> Window:
        return self.choice.window

    @property
    def has_capacity(self) -> bool:
        """Whether what the filters leave has a capacity: what teams hold has none."""
        return not (self.filters.team or self.filters.namespace)

    @property
    def narrows_cards(self) -> bool:
        """Whether the filters name kinds of GPUs, which nothing that waits has got yet."""
        return bool(self.filters.gpu_model or self.filters.capacity_type)

    @property
    def classes(self) -> Sequence[LedgerClass]:
        """The classes of the ledger that what the filters leave is split into."""
        return CAPACITY_CLASSES if self.has_capacity else ALLOCATED_CLASSES


def query_session(
    request: PageRequest, *, takes: Sequence[str] = (), keeps: bool = True
) -> QuerySession:
    """Return how to read for this request; the clock is read here.

    `takes` names the filters that the page is narrowed by beside the cluster; `keeps` says
    whether the others stay in its links. Three queries at most, one more with `takes`, and three
    more where the address names a namespace.
    """
    visibility = visibility_of(request.user)
    now = timezone.now().replace(microsecond=0)
    choice = forms.window_from(request.GET, zone=clusters.report().zone, now=now)
    known = tuple(row.name for row in clusters.cluster_rows(visibility=visibility))
    filtering = filtering_of(
        request.GET, takes=takes, keeps=keeps, clusters=known, visibility=visibility, now=now
    )
    compares = request.GET.get(COMPARE) != NOT_COMPARED
    return QuerySession(
        choice=choice,
        filters=filtering.filters,
        visibility=visibility,
        now=now,
        clusters=known,
        problems=tuple(text for text in (choice.problem, *filtering.problems) if text),
        query=(
            *choice.query,
            *filtering.query,
            *(() if compares else ((COMPARE, NOT_COMPARED),)),
        ),
        compares=compares,
        choices=filtering.choices,
        asides=filtering.asides,
    )


def on_cluster(reading: QuerySession, cluster: str) -> QuerySession:
    """Return the reading of a page about something on one cluster, with no choice of others."""
    asides = [*(("cluster", name) for name in reading.filters.cluster), *reading.asides]
    return replace(
        reading,
        filters=replace(reading.filters, cluster=(cluster,)),
        clusters=(),
        choices={key: names for key, names in reading.choices.items() if key != "cluster"},
        asides=asides,
    )


def of_page(reading: QuerySession, *, tier: str = "", team: str = "") -> Filters:
    """Return the filters of a page about one tier or one team, where one is named."""
    own = reading.filters
    return replace(own, tier=(tier,) if tier else own.tier, team=(team,) if team else own.team)


def usage_of(
    reading: QuerySession,
    *,
    by: Sequence[Grouping],
    interval: TimeStep | None = None,
    narrowed: Filters | None = None,
    window: Window | None = None,
) -> list[UsageRow]:
    """Return the ledger over the reading's window, interval and filters, or others given here."""
    return usage.usage_rows(
        UsageQuery(
            window or reading.window,
            interval or reading.choice.interval,
            by,
            narrowed or reading.filters,
        ),
        visibility=reading.visibility,
        zone=reading.choice.zone,
    )


def every_row(page_at: Callable[[str | None], RowPage[Row]]) -> Iterator[Row]:
    """Yield the rows of all pages, each page read when its rows are asked for."""
    page = page_at(None)
    yield from page.rows
    while page.next_cursor is not None:
        page = page_at(page.next_cursor)
        yield from page.rows


def freshness_of(reading: QuerySession) -> Freshness:
    """Return how complete the facts of the reading's window and clusters are."""
    return usage.freshness(
        reading.window, filters=reading.filters, visibility=reading.visibility, now=reading.now
    )


def axis_of(reading: QuerySession, freshness: Freshness) -> Axis:
    """Return the time axis of the reading's charts, with what was not collected."""
    choice = reading.choice
    lost = {*freshness.missing, *freshness.failed}
    return Axis(
        periods=choice.periods,
        interval=choice.interval,
        zone=choice.zone,
        label=choice.label,
        missing=charts.missing_by_period(choice.periods, lost),
        unfinished=choice.interval is TimeStep.DAY and reading.now < choice.last_day_end,
    )


def effective_of(reading: QuerySession, amounts: Amounts | None, *, tier: str) -> float | None:
    """Return the effective utilization of a tier whose sum is `amounts`.

    None without facts, or where it is unknown.
    """
    if amounts is None:
        return None
    filters = of_page(reading, tier=tier)
    (ratio,) = pending.effective_ratios(
        [UsageRow(None, {Grouping.TIER: tier}, amounts)],
        UsageQuery(reading.window, group_by=(Grouping.TIER,), filters=filters),
        zone=reading.choice.zone,
        now=reading.now,
    )
    return ratio


def held_of(reading: QuerySession) -> Amounts | None:
    """Return the ledger's sum over what the reading chooses; None where nothing has facts."""
    rows = usage_of(reading, by=(), interval=TimeStep.TOTAL)
    return rows[0].amounts if rows else None


def quality_of(reading: QuerySession, freshness: Freshness, amounts: Amounts | None) -> Quality:
    """Return the banner for numbers that add up to `amounts`."""
    return quality(
        freshness,
        amounts,
        start=reading.window.start,
        zone=reading.choice.zone,
        now=reading.now,
    )

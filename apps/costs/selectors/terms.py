"""What one has to know to read figures of money: on what they rest, and what is missing in them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from django.db.models import Count, Exists, Min, OuterRef, Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import Basis
from apps.costs.domain.unallocated import Policy
from apps.costs.models import PricedHour
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import CostQuery, coverage_ratio, unpriced
from apps.usage.domain.amounts import hours
from apps.usage.domain.rows import Filters
from apps.usage.models import CollectionWindow


@dataclass(frozen=True, slots=True)
class NotPriced:
    """Hours of a cluster that have facts and are not priced as they are."""

    cluster: Annotated[str, Column()]
    hours: Annotated[int, Column(help="Not priced yet: they are in no sum.")]
    outdated: Annotated[int, Column(help="Priced, and their facts were collected anew since.")]
    first: Annotated[datetime, Column(help="The earliest of them.", keep_offset=True)]


def not_priced(window: Window, *, filters: Filters, visibility: Visibility) -> list[NotPriced]:
    """Return the clusters of which hours of the window are not priced as they are, by name.

    Of `filters` only `cluster` counts; it tells nothing of anybody, so `visibility` narrows
    nothing. One query.
    """
    of_hour = PricedHour.objects.filter(cluster=OuterRef("cluster"), hour=OuterRef("hour"))
    rows = CollectionWindow.objects.filter(
        collected_at__isnull=False, hour__gte=window.start, hour__lt=window.end
    )
    if filters.cluster:
        rows = rows.filter(cluster__name__in=filters.cluster)
    rows = rows.exclude(Exists(of_hour.filter(facts_at=OuterRef("collected_at"))))
    found = rows.annotate(priced=Exists(of_hour)).order_by("cluster__name").values("cluster__name")
    counted = found.annotate(
        missing=Count("pk", filter=Q(priced=False)),
        outdated=Count("pk", filter=Q(priced=True)),
        first=Min("hour"),
    )
    return [
        NotPriced(*row)
        for row in counted.values_list("cluster__name", "missing", "outdated", "first")
    ]


_AtLeast = Annotated[
    bool, Column(help="Hours or prices are missing: sums of money are lower bounds.")
]


@dataclass(frozen=True, slots=True)
class Terms:
    """On what the figures rest: of the whole window, on every page."""

    start: Annotated[datetime, Column(keep_offset=True)]
    end: Annotated[datetime, Column(keep_offset=True)]
    time_zone: Annotated[str, Column()]
    currencies: Annotated[tuple[str, ...], Column()]
    basis: Annotated[str, Column(values=Basis)]
    policy: Annotated[str, Column(values=Policy)]
    price_book: Annotated[str, Column(key="price_book_version")]
    coverage_ratio: Annotated[
        float | None, Column(help="Of what ran, what has metrics; null where nothing ran.")
    ]
    unpriced_gpu_hours: Annotated[float, Column()]
    not_priced: Annotated[tuple[NotPriced, ...], Column()]

    @property
    def at_least(self) -> _AtLeast:
        return bool(self.unpriced_gpu_hours or any(one.hours for one in self.not_priced))


def terms(asked: CostQuery, *, visibility: Visibility, zone: ZoneInfo | None = None) -> Terms:
    """Return on what the rows of a question rest. At most ten queries. Raises GroupingRefused."""
    settings = report()
    zone = zone or settings.zone
    rows = CostReader(asked.whole, visibility=visibility, zone=zone).rows(asked.window)
    currencies = {row.currency for row in rows if row.currency} or {settings.currency}
    return Terms(
        start=asked.window.start,
        end=asked.window.end,
        time_zone=zone.key,
        currencies=tuple(sorted(currencies)),
        basis=asked.basis.value,
        policy=asked.policy.value,
        price_book=price_book().version,
        coverage_ratio=coverage_ratio(rows),
        unpriced_gpu_hours=hours(unpriced(rows)),
        not_priced=tuple(not_priced(asked.window, filters=asked.filters, visibility=visibility)),
    )

"""What one has to know to read figures of money: on what they rest, and what is missing in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.db.models import Count, Exists, Min, OuterRef, Q

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.models import PricedHour
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import CostQuery, coverage_ratio, unpriced
from apps.usage.domain.amounts import hours
from apps.usage.domain.rows import Filters
from apps.usage.models import CollectionWindow


@dataclass(frozen=True, slots=True)
class NotPriced:
    """How many hours of a cluster have facts and no price looked up yet; they are in no sum.

    `outdated` hours were priced, and their facts were collected anew since. `first` is the
    earliest of all of them.
    """

    cluster: str
    hours: int
    outdated: int
    first: datetime


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


@dataclass(frozen=True, slots=True)
class Terms:
    """On what the figures of a question rest. `coverage_ratio` is 0..1, None where nothing ran.

    With `at_least` hours or prices are missing, so that sums of money are lower bounds.
    """

    window: Window
    time_zone: str
    currencies: tuple[str, ...]
    basis: str
    policy: str
    price_book: str
    coverage_ratio: float | None
    unpriced_gpu_hours: float
    not_priced: Sequence[NotPriced]

    @property
    def at_least(self) -> bool:
        return bool(self.unpriced_gpu_hours or any(one.hours for one in self.not_priced))


def terms(asked: CostQuery, *, visibility: Visibility, zone: ZoneInfo | None = None) -> Terms:
    """Return on what the rows of a question rest. At most ten queries. Raises GroupingRefused."""
    settings = report()
    zone = zone or settings.zone
    rows = CostReader(asked.whole, visibility=visibility, zone=zone).rows(asked.window)
    currencies = {row.currency for row in rows if row.currency} or {settings.currency}
    return Terms(
        window=asked.window,
        time_zone=zone.key,
        currencies=tuple(sorted(currencies)),
        basis=asked.basis.value,
        policy=asked.policy.value,
        price_book=price_book().version,
        coverage_ratio=coverage_ratio(rows),
        unpriced_gpu_hours=hours(unpriced(rows)),
        not_priced=not_priced(asked.window, filters=asked.filters, visibility=visibility),
    )

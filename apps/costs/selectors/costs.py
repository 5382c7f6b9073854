"""Costs and waste by period, group, cause and workload, with the terms on which they rest."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db.models import Count, Exists, Max, Min, OuterRef, Q, Sum
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.costing import (
    FREE,
    HELD,
    SCALE_DIGITS,
    WASTE,
    Basis,
    Cause,
    CostSums,
    Policy,
    WaterfallStep,
    waterfall_steps,
)
from apps.costs.models import PoolCostDay, PoolCostHour, PricedHour
from apps.costs.selectors.cost_reader import CostReader
from apps.costs.selectors.prices import price_book
from apps.costs.selectors.rows import (
    CostLine,
    CostQuery,
    CostRow,
    LineKey,
    coverage_ratio,
    unpriced,
)
from apps.usage.domain.amounts import hours
from apps.usage.domain.usage_query import (
    Filters,
    Grouping,
    RowPage,
    cursor_time,
    decode_cursor,
    encode_cursor,
)
from apps.usage.models import CollectionWindow
from apps.usage.selectors import condition, source_of, with_days

_FEW_ROWS = 500
_MOST_PERIODS = 2000
WORKLOAD_GROUPS = (
    Grouping.CLUSTER,
    Grouping.NAMESPACE,
    Grouping.WORKLOAD,
    Grouping.TEAM,
    Grouping.TIER,
)
"""What tells workloads apart: one may be of another team, or on another tier, later on."""
_AtLeast = Annotated[
    bool, Column(help="Hours or prices are missing: sums of money are lower bounds.")
]


def cost_rows(
    asked: CostQuery, *, visibility: Visibility, zone: ZoneInfo | None = None
) -> list[CostRow]:
    """Return who pays how much for what, ordered by period, groups and cause.

    Grouped by `team`, the team is the payer. It is empty for the platform, which pays what the
    basis does not charge, unavailable capacity, and the unallocated part that the policy leaves.
    All rows together are the cost of the capacity and of its energy, exactly, by every grouping,
    basis, policy and interval; corrections of closed months come on top, marked. Readers who do not
    see everything get the rows of their teams and, of the platform, unallocated capacity. At most
    eleven queries, and one each for the names of namespaces and workloads. Raises GroupingRefused.
    """
    return CostReader(asked, visibility=visibility, zone=zone).rows(asked.window)


def cost_page(
    asked: CostQuery,
    *,
    visibility: Visibility,
    cursor: str | None,
    page_size: int,
    zone: ZoneInfo | None = None,
) -> RowPage[CostRow]:
    """Return one page of `cost_rows` in the same order.

    Only the periods that the page needs are read, so pages of a long window cost alike. The
    cursor tells how many rows of a period were shown: facts that arrive meanwhile may shift them.
    Raises GroupingRefused and CursorRefused.
    """
    reading, window = CostReader(asked, visibility=visibility, zone=zone), asked.window
    terms = (str(asked.waste), asked.interval, asked.basis, asked.policy)
    # A cursor of another question would name a place in other rows: it is refused by its kind.
    kind = "-".join(("costs", *terms, *asked.group_by))
    start, skipped = window.start, 0
    if cursor is not None:
        at, shown = decode_cursor(kind, cursor, (str, int))
        start, skipped = max(window.start, cursor_time(at)), int(shown)
    if start >= window.end:
        return RowPage((), None)
    found: list[tuple[datetime, int, CostRow]] = []
    for part in _parts(reading, Window(start, window.end), found):
        found += _placed(reading, part)
        # Earlier pages have shown these rows of the period that the cursor names.
        del found[:skipped]
        skipped = 0
        if len(found) > page_size:
            break
    more = found[page_size:]
    return RowPage(
        rows=tuple(row for _, _, row in found[:page_size]),
        next_cursor=encode_cursor(kind, (more[0][0].isoformat(), more[0][1])) if more else None,
    )


def _parts(reading: CostReader, window: Window, found: Sequence[object]) -> Iterator[Window]:
    """Yield parts of the window, of whole periods, larger ones while these give little."""
    start, count = window.start, 1
    while start < window.end:
        had = len(found)
        end = min(reading.periods.after(start, count) or window.end, window.end)
        yield Window(start, end)
        start = end
        if len(found) - had < _FEW_ROWS:
            count = min(count * 4, _MOST_PERIODS)


def _placed(reading: CostReader, part: Window) -> list[tuple[datetime, int, CostRow]]:
    """Return rows with the start of their period within the part, and their place in it."""
    placed: list[tuple[datetime, int, CostRow]] = []
    for row in reading.rows(part):
        # A week may begin before the window; its rows are placed where the window starts.
        period = part.start if row.period is None else max(part.start, row.period)
        same = placed and placed[-1][0] == period
        placed.append((period, placed[-1][1] + 1 if same else 0, row))
    return placed


# ---------------------------------------------------------------- the waterfall


class Waterfall(Struct, frozen=True):
    """The steps of one currency from the cost of all capacity down to its active part.

    `total` and `wasted` are units of 1e-8; the GPU-hours without any price are in the steps of
    the report's currency. `energy` is the price of measured energy: with `total` it is what
    `cost_rows` sum to.
    """

    currency: str
    total: int
    wasted: int
    steps: Sequence[WaterfallStep]
    energy: int = 0


def waterfalls(
    rows: Iterable[CostRow],
    *,
    before: Iterable[CostRow] | None = None,
    currency: str,
    burst: Mapping[str, int] = MappingProxyType({}),
    platform: bool = True,
) -> list[Waterfall]:
    """Return the waterfall of rows, one for each currency, the report's `currency` first.

    `before` are the rows of the window to compare with, `burst` is that of `unallocated_burst`.
    Without `platform` the rows are of teams alone: the steps of capacity without a holder are left
    out.
    Corrections of closed months are left out: they are no hours of this window.
    """
    now = _sums(rows, currency)
    then = None if before is None else _sums(before, currency)
    for own, amount in burst.items():
        # What has no price has no currency, and its hours are in the report's steps, too.
        now.setdefault(own or currency, CostSums()).burst += amount
    order = sorted(now, key=lambda one: (one != currency, one))
    found = [_of_currency(c, now[c], None if then is None else then.get(c)) for c in order]
    if platform:
        return found
    return [
        replace(one, steps=[step for step in one.steps if step.cause not in FREE]) for one in found
    ]


def _of_currency(currency: str, now: CostSums, then: CostSums | None) -> Waterfall:
    return Waterfall(
        currency=currency,
        total=now.total,
        wasted=now.wasted,
        steps=waterfall_steps(now, then),
        energy=now.energy,
    )


def _sums(rows: Iterable[CostRow], currency: str) -> dict[str, CostSums]:
    """Return sums by currency; what has no price is in those of the report's."""
    found: dict[str, CostSums] = {currency: CostSums()}
    for row in rows:
        if row.correction:
            continue
        sums = found.setdefault(row.currency or currency, CostSums())
        if row.cause is Cause.ENERGY:
            # Beside the steps: these divide GPU-hours, and energy has none.
            sums.energy += row.cost or 0
            continue
        sums.gpu_hours[row.cause] = sums.gpu_hours.get(row.cause, 0) + row.gpu_hours
        if row.cost is None:
            sums.unpriced[row.cause] = sums.unpriced.get(row.cause, 0) + row.gpu_hours
        else:
            sums.cost[row.cause] = sums.cost.get(row.cause, 0) + row.cost
    return found


def unallocated_burst(
    window: Window, *, filters: Filters, visibility: Visibility, zone: ZoneInfo | None = None
) -> dict[str, int]:
    """Return what shared GPUs did beyond what their tenants held, in nano-GPU-hours by currency.

    It worked on capacity that counts as unallocated. Empty for who does not see everything, and
    where a filter names tenants. Five queries at most.
    """
    if not visibility.everything or filters.team or filters.namespace or filters.workload:
        return {}
    zone = zone or report().zone
    reading = CostReader(CostQuery(window, filters=filters), visibility=visibility, zone=zone)
    where = condition(source_of((Grouping.CLUSTER,), filters, visibility), filters, visibility)
    plan = with_days(window, clusters=reading.clusters, periods=reading.periods, rolled=False)
    found: dict[str, int] = {}
    parts: list[tuple[Any, Any]] = [(PoolCostDay, part) for part in plan.day_conditions()]
    parts += [(PoolCostHour, part) for part in plan.hour_conditions()]
    for table, part in parts:
        rows = table._default_manager.order_by().filter(where & part).values("currency")
        summed = rows.annotate(burst_sum=Sum("burst"))
        for currency, burst in summed.values_list("currency", "burst_sum"):
            found[currency] = found.get(currency, 0) + int(burst)
    return found


# ---------------------------------------------------------------- the worst workloads


class WorstWorkload(Struct, frozen=True):
    """What one workload wasted by a cause; `cost` None and no currency: unpriced."""

    cause: Annotated[Cause, Column("Cause")]
    workload: Annotated[str, Column("Workload")]
    team: Annotated[str, Column("Team")]
    namespace: Annotated[str, Column("Namespace")]
    cluster: Annotated[str, Column("Cluster")]
    tier: Annotated[str, Column("Tier")]
    gpu_hours: Annotated[int, Column("GPU-hours", "GPU-h", digits=9)]
    cost: Annotated[int | None, Column("Cost", digits=SCALE_DIGITS)]
    currency: Annotated[str | None, Column("Currency")]


# Unallocated and unavailable capacity has no holder to be named.
_HELD_WASTE = tuple(cause for cause in WASTE if cause not in FREE)


def worst_workloads(
    window: Window,
    *,
    filters: Filters,
    visibility: Visibility,
    limit: int,
    zone: ZoneInfo | None = None,
) -> dict[Cause, list[WorstWorkload]]:
    """Return for each cause the workloads that wasted most by it, dearest first.

    Only workloads of teams that the reader sees; unpriced ones come last, by GPU-hours. Six
    queries and those for names. Raises GroupingRefused.
    """
    asked = CostQuery(window, group_by=WORKLOAD_GROUPS, filters=filters, waste=True)
    reading = CostReader(asked, visibility=visibility, zone=zone)
    lines = reading.sums(window)
    found: dict[Cause, list[WorstWorkload]] = {}
    for cause in _HELD_WASTE:
        ranked = [
            (key, line)
            for key, line in lines.items()
            if key.cause is cause and key.ids[WORKLOAD_GROUPS.index(Grouping.WORKLOAD)] is not None
        ]
        ranked.sort(key=lambda item: (-item[1].cost, -item[1].gpu_hours, item[0].ids))
        # Of those that are shown: a window may have tens of thousands of workloads.
        names = reading.names_of({key.ids for key, _ in ranked[:limit]})
        found[cause] = [_worst(names[key.ids], key, line) for key, line in ranked[:limit]]
    return found


def _worst(names: Sequence[str], key: LineKey, line: CostLine) -> WorstWorkload:
    cluster, namespace, workload, team, tier = names
    return WorstWorkload(
        cluster=cluster,
        namespace=namespace,
        workload=workload,
        team=team,
        tier=tier,
        cause=key.cause,
        gpu_hours=line.gpu_hours,
        cost=line.cost if key.currency else None,
        currency=key.currency or None,
    )


# ---------------------------------------------------------------- how far it goes


def priced_until(*, visibility: Visibility) -> datetime | None:
    """Return the end of the newest hour that has a price; None before the first. One query.

    It tells nothing of anybody: `visibility` narrows nothing.
    """
    newest: datetime | None = PoolCostHour.objects.aggregate(newest=Max("hour"))["newest"]
    return None if newest is None else newest + timedelta(hours=1)


class NotPriced(Struct, frozen=True):
    """Hours of a cluster that have facts and are not priced as they are."""

    cluster: Annotated[str, Column()]
    hours: Annotated[int, Column(help="Not priced yet: totals exclude them.")]
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
    # By the time of collection: facts that came anew make the price one of other facts.
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


class Terms(Struct, frozen=True):
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


class WorkloadKey(NamedTuple):
    """A workload of a team on a tier; `workload` reads `Kind/name`."""

    cluster: str
    namespace: str
    workload: str
    team: str
    tier: str


class WorkloadCost(Struct):
    """Units of 1e-8 of a currency: `total` of all that was held, `unused` of its waste.

    `measured` is the part of the total that has metrics.
    """

    currency: str
    total: int = 0
    unused: int = 0
    measured: int = 0

    @property
    def unused_ratio(self) -> float | None:
        """Unused ÷ allocated cost, without what has no metrics; None without any."""
        return self.unused / self.measured if self.measured > 0 else None


def workload_costs(
    window: Window, *, filters: Filters, visibility: Visibility, zone: ZoneInfo | None = None
) -> dict[WorkloadKey, list[WorkloadCost]]:
    """Return what each workload costs in a window, by currency; none of what has no price.

    Only workloads of teams that the reader sees. Queries as of `cost_rows`.
    """
    asked = CostQuery(window, group_by=WORKLOAD_GROUPS, filters=filters, waste=True)
    found: dict[WorkloadKey, dict[str, WorkloadCost]] = defaultdict(dict)
    for row in cost_rows(asked, visibility=visibility, zone=zone):
        workload = row.groups.get(Grouping.WORKLOAD)
        if row.cost is None or not row.currency or not workload or row.cause not in HELD:
            continue
        key = WorkloadKey(*(row.groups[name] for name in WORKLOAD_GROUPS))
        cost = found[key].setdefault(row.currency, WorkloadCost(row.currency))
        cost.total += row.cost
        cost.measured += row.cost if row.cause is not Cause.UNMEASURED else 0
        if row.cause in WASTE:
            cost.unused += row.cost
    return {key: list(costs.values()) for key, costs in found.items()}

"""Carbon of the energy of usage, by the same periods and groups."""

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from statistics import fmean
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from django.db.models import F, Q, QuerySet, Value
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.clusters.selectors import report
from apps.costs.domain.carbon import hour_key
from apps.costs.models import (
    EnergyFactor,
    PoolCostDay,
    PoolCostHour,
    TeamCostDay,
    TeamCostHour,
    WorkloadCostDay,
    WorkloadCostHour,
)
from apps.usage.domain.usage_query import (
    BEGINNING,
    Grouping,
    Periods,
    TimeStep,
    UsageQuery,
    UsageRow,
)
from apps.usage.selectors import (
    DETAILED,
    NameLookup,
    condition,
    filtered,
    hours_only,
    source_of,
    with_days,
)
from gpuportal.database_functions import LargeSum
from gpuportal.queries import BatchQuery

_MWH_PER_KWH = 10**6
_UG_PER_G = 10**6
CarbonKey = tuple[datetime | None, tuple[str, ...]]
"""The start of the period in UTC, and the names of the groups as the row of usage has them.

An hour of autumn has two local times, which equal no others: as a key they would be one.
"""


class CarbonSum(Struct):
    """Milliwatt-hours whose hour has a factor, and their carbon in micrograms of CO2e."""

    carbon_mwh: int = 0
    carbon_ug: int = 0

    @property
    def grams(self) -> float | None:
        """The carbon, PUE included; None where no hour of the energy has a factor."""
        return self.carbon_ug / _UG_PER_G if self.carbon_mwh else None

    def kwh_without(self, energy_mwh: int) -> float | None:
        """Return how many kWh of so much energy have no factor; None where none was measured."""
        if not energy_mwh:
            return None
        return max(0, energy_mwh - self.carbon_mwh) / _MWH_PER_KWH


def carbon_sums(
    query: UsageQuery, *, visibility: Visibility, zone: ZoneInfo | None = None
) -> dict[CarbonKey, CarbonSum]:
    """Return the carbon of each row of `usage_rows` that has any; nothing by node.

    Carbon is computed hour by hour when the hour is priced, and summed here. So hours that are
    not priced yet have none. At most five queries, and one each for names. Raises GroupingRefused.
    """
    named = {*query.group_by, *filtered(query.filters)}
    # Costs, and the carbon beside them, are not kept by node.
    if Grouping.NODE in named:
        return {}
    names = NameLookup({Grouping.CLUSTER, *named})
    periods = Periods(query.interval, zone or report().zone)
    facts = list(_facts(query, visibility, periods, names.clusters(query.filters)))
    tables = [
        names.of(grouping, {ids[place] for _, ids, _, _ in facts})
        for place, grouping in enumerate(query.group_by)
    ]
    found: dict[CarbonKey, CarbonSum] = {}
    for at, ids, known, carbon in facts:
        groups = tuple(table[pk] for table, pk in zip(tables, ids, strict=True))
        period = None if query.interval is TimeStep.TOTAL else at.astimezone(UTC)
        total = found.setdefault((period, groups), CarbonSum())
        total.carbon_mwh += int(known or 0)
        total.carbon_ug += int(carbon or 0)
    return {key: total for key, total in found.items() if total.carbon_mwh}


def carbon_of(
    rows: Sequence[UsageRow], query: UsageQuery, *, visibility: Visibility, zone: ZoneInfo
) -> list[tuple[float | None, float | None]]:
    """Return of each row of usage its grams of CO2e, and its kWh without a factor.

    Both are None where no exporter shows energy, and by node. Only the periods of the rows are
    read. One query without any factor, else one more than `carbon_sums`.
    """
    energy = any(row.amounts.energy_mwh for row in rows)
    if not energy or Grouping.NODE in {*query.group_by, *filtered(query.filters)}:
        return [(None, None)] * len(rows)
    if not _has_factors():
        return [(None, CarbonSum().kwh_without(row.amounts.energy_mwh)) for row in rows]
    starts = [row.period.astimezone(UTC) if row.period else None for row in rows]
    periods = [start for start in starts if start is not None]
    if periods:
        after = Periods(query.interval, zone).after(max(periods), 1) or query.window.end
        first, end = query.window.start, query.window.end
        query = replace(query, window=Window(max(first, min(periods)), min(end, after)))
    sums = carbon_sums(query, visibility=visibility, zone=zone)
    found = []
    for start, row in zip(starts, rows, strict=True):
        one = sums.get((start, tuple(row.groups.values())), CarbonSum())
        drawn = row.amounts.energy_mwh
        found.append((one.grams if drawn else None, one.kwh_without(drawn)))
    return found


class SiteFactorRow(Struct, frozen=True):
    """PUE and carbon factor of a cluster's site, for the part of a window in which they hold."""

    cluster: Annotated[str, Column("Cluster")]
    pue: Annotated[float, Column("PUE", help="The site's energy ÷ that of its computers.")]
    carbon_g_per_kwh: Annotated[
        float | None,
        Column(
            *("Carbon factor", "g CO2e/kWh", "Of a file the mean of its hours in this window."),
            absent="–",
        ),
    ]
    least_g_per_kwh: Annotated[float | None, Column("Lowest", "g CO2e/kWh", "Of these hours.")]
    most_g_per_kwh: Annotated[float | None, Column("Highest", "g CO2e/kWh", "Of these hours.")]
    source: Annotated[str, Column("Source", help="Where the catalog has the factor.", wraps=True)]
    hours_without_factor: Annotated[
        int,
        Column(
            *("Without factor", "h"),
            help="Hours of this window that the file does not have: their energy has no carbon.",
        ),
    ]
    valid_from: Annotated[datetime, Column("Valid from", shown_as="day")]
    valid_to: Annotated[datetime | None, Column("Valid to", shown_as="day")]


def site_factor_rows(window: Window, *, clusters: Collection[str] = ()) -> list[SiteFactorRow]:
    """Return the factors that hold in a window, by cluster and time; of these clusters, or all.

    Like prices they are for every user. One query.
    """
    rows = EnergyFactor.objects.filter(
        Q(valid_to=None) | Q(valid_to__gt=window.start),
        valid_from__lt=window.end,
        cluster__active=True,
    ).select_related("cluster")
    if clusters:
        rows = rows.filter(cluster__name__in=clusters)
    return [_factor_row(row, window) for row in rows.order_by("cluster__name", "valid_from")]


def _factor_row(row: EnergyFactor, window: Window) -> SiteFactorRow:
    # The same hours that carbon is computed by: those of the window in which the factor holds.
    end = min(window.end, row.valid_to or window.end)
    held = Window(max(window.start, row.valid_from), end)
    values, missing = [row.carbon_g_per_kwh], 0
    source = "catalog"
    if row.carbon_g_per_kwh is None:
        every = [row.carbon_hours.get(hour_key(hour.start)) for hour in held.hours()]
        values = [Decimal(value) for value in every if value is not None]
        missing = len(every) - len(values)
        source = f"{row.carbon_file}, by hour"
    known = [float(value) for value in values if value is not None]
    return SiteFactorRow(
        cluster=row.cluster.name,
        pue=float(row.pue),
        carbon_g_per_kwh=fmean(known) if known else None,
        least_g_per_kwh=min(known, default=None),
        most_g_per_kwh=max(known, default=None),
        source=source,
        hours_without_factor=missing,
        valid_from=row.valid_from,
        valid_to=row.valid_to,
    )


def _has_factors() -> bool:
    return bool(ANY_FACTOR.rows())


def _any_factor() -> QuerySet[EnergyFactor, tuple[int]]:
    return EnergyFactor.objects.order_by().values_list("pk")[:1]


ANY_FACTOR = BatchQuery(_any_factor)


def _facts(
    query: UsageQuery, visibility: Visibility, periods: Periods, clusters: tuple[int, ...]
) -> Iterator[tuple[datetime, tuple[Any, ...], Any, Any]]:
    """Yield (period, ids of the groups, milliwatt-hours with a factor, micrograms)."""
    named = {*query.group_by, *filtered(query.filters)}
    hours, days = _tables(named)
    where = condition(
        source_of(query.group_by, query.filters, visibility), query.filters, visibility
    )
    amounts: list[Any] = [F("carbon_mwh"), F("carbon_ug")]
    if hours is PoolCostHour:
        # What GPUs drew that no pod explains is in the energy of a tier, and in no team's.
        amounts = [one + F(f"free_{one.name}") for one in amounts]
    sums = {"known": LargeSum(amounts[0]), "carbon": LargeSum(amounts[1])}
    columns = tuple(grouping.column for grouping in query.group_by)
    if query.interval is TimeStep.HOUR:
        plan = hours_only(query.window, clusters)
    else:
        plan = with_days(query.window, clusters=clusters, periods=periods, rolled=False)
    total = query.interval is TimeStep.TOTAL
    for table, time, conditions in (
        (days, "day", plan.day_conditions()),
        (hours, "hour", plan.hour_conditions()),
    ):
        for part in conditions:
            # A constant beside them: a total without groups is a group of its own.
            rows = table._default_manager.filter(where & part).order_by().annotate(one=Value(1))
            grouped = rows.values_list("one" if total else time, *columns)
            for row in grouped.annotate(**sums):
                if total:
                    at = BEGINNING
                else:
                    at = plan.period_of_day[row[0]] if time == "day" else periods.start_of(row[0])
                yield at, row[1:-2], *row[-2:]


def _tables(named: set[Grouping]) -> tuple[Any, Any]:
    if named & DETAILED:
        return WorkloadCostHour, WorkloadCostDay
    return (TeamCostHour, TeamCostDay) if Grouping.TEAM in named else (PoolCostHour, PoolCostDay)

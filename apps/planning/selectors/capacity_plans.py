"""Reads of the capacity plan: the outlook of each tier, and what it speaks for."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import day_start
from apps.clusters.selectors import report
from apps.costs.selectors import CapacityValue, capacity_values
from apps.planning.domain.capacity_cases import (
    BookedGpus,
    CapacityCase,
    CaseAction,
    NodeGroupLimit,
    PoolLimit,
    TierOutlook,
    booked_by_day,
    capacity_cases,
    room_of,
    room_of_groups,
)
from apps.planning.models import CapacityPlan
from apps.planning.selectors.ceilings import CeilingGap, Ceilings, ceilings

MONTH_HOURS = 730
"""Hours of a month, as prices per month are commonly quoted."""
_DAYS = 28


class CapacityPlanRow(Struct, frozen=True):
    """What the outlook of a tier speaks for: one row for each action."""

    tier: Annotated[str, Column("Tier")]
    action: Annotated[
        CaseAction | None,
        Column(
            "Action",
            help="Buy, return, move, share or keep GPUs.",
            api_note="Null where too little is known.",
            values=CaseAction,
        ),
    ]
    action_gpus: Annotated[
        int | None, Column("Amount", "GPUs", "GPUs to buy, return, move or share.")
    ]
    to_tier: Annotated[
        str, Column("To tier", help="The tier that GPUs move to.", empty_is_null=True)
    ]
    cost_per_month: Annotated[
        Decimal | None,
        Column(
            "Cost per month",
            help="GPUs × price × 730 h; returned GPUs are negative.",
            api_note="Null without a price, and for who does not see the costs of all teams.",
        ),
    ]
    currency: Annotated[str, Column("Currency", empty_is_null=True, off_page=True)]
    capacity_gpus: Annotated[float, Column("Capacity", "GPUs", "Mean of the newest day.")]
    demand_gpus: Annotated[
        float | None,
        Column("Demand", "GPUs", "Allocated and pending for want of capacity: mean of 28 days."),
    ]
    forecast_low_gpus: Annotated[
        float | None, Column("Forecast low", "GPUs", "The low end of the 80 % range.")
    ]
    forecast_gpus: Annotated[
        float | None,
        Column(
            *("Forecast", "GPUs", "Mean demand of the last week that is forecast."),
            api_note="Null where fewer than 21 days are known.",
        ),
    ]
    forecast_high_gpus: Annotated[
        float | None, Column("Forecast high", "GPUs", "The high end of the 80 % range.")
    ]
    booked_peak_gpus: Annotated[
        float | None,
        Column(
            *("With bookings", "GPUs", "Highest daily average: forecast and bookings to come."),
            api_note="Null where nothing is booked, or nothing forecast.",
        ),
    ]
    forecast_until: Annotated[
        date | None, Column("Forecast until", help="The last day that is forecast.", off_page=True)
    ]
    forecast_error_gpus: Annotated[
        float | None,
        Column("Error", "GPUs", "Mean absolute error of forecasts of past days.", off_page=True),
    ]
    naive_error_gpus: Annotated[
        float | None,
        Column(
            "Naive error",
            "GPUs",
            "The same of: as on that weekday of the week before.",
            off_page=True,
        ),
    ]
    forecast_coverage_ratio: Annotated[
        float | None,
        Column(
            *("Within range", "%", "Part of past days that were within the 80 % range."),
            api_note="0..1",
            off_page=True,
        ),
    ]
    unused_gpus: Annotated[
        float | None, Column("Unused", "GPUs", "Allocated and not active: mean of 28 days.")
    ]
    spot_ratio: Annotated[
        float | None,
        Column("Spot", "%", "Part of the capacity on spot nodes.", api_note="0..1", off_page=True),
    ]
    spot_nodes_vanished: Annotated[
        int | None,
        Column(
            *("Spot nodes vanished", "", "Spot nodes that vanished on known days of the last 28."),
            api_note="Null where the watch recorded no spot node in these days.",
            off_page=True,
        ),
    ]
    spot_interruptions_per_month: Annotated[
        float | None,
        Column(
            "Spot interruptions",
            "per month",
            "Spot nodes that vanished while pods held their GPUs, in 30 days.",
            api_note="Null where the watch recorded no spot node in these days.",
            off_page=True,
        ),
    ]
    node_pool_room_gpus: Annotated[
        float | None,
        Column(
            *("Node pool room", "GPUs", "GPUs that Karpenter may still add within its limits."),
            api_note="Null without node pools, and where one has no limit.",
            off_page=True,
        ),
    ]
    node_group_room_gpus: Annotated[
        float | None,
        Column(
            "Node group room",
            "GPUs",
            "GPUs that cluster-autoscaler may still add up to the maxima of its node groups.",
            api_note="Null without node groups, and where one does not tell.",
            off_page=True,
        ),
    ]
    unmet_gpu_hours: Annotated[
        float | None,
        Column("Pending, replayed", "GPU-h", "Pending in the replay with today's capacity."),
    ]
    unmet_after_gpu_hours: Annotated[
        float | None, Column("Pending after", "GPU-h", "The same after the action.")
    ]
    wait_p95_seconds: Annotated[
        float | None, Column("p95 queue time", "s", "In the replay with today's capacity.")
    ]
    wait_p95_after_seconds: Annotated[
        float | None, Column("p95 after", "s", "The same after the action.")
    ]
    replayed_days: Annotated[
        int | None,
        Column(
            *(
                "Days replayed",
                "d",
                "Last days that the replay rests on: 14, or as many as are known.",
            ),
            api_note="Null where nothing was replayed.",
        ),
    ]
    data_through: Annotated[
        date, Column("Data through", help="The newest day of the plan.", off_page=True)
    ]
    computed_at: Annotated[datetime, Column("Computed", off_page=True)]


class TierPrice(Struct, frozen=True):
    """What a GPU-hour of a tier costs, over the clusters that have it."""

    per_gpu_hour: Decimal
    currency: str

    def per_month(self, gpus: float) -> Decimal:
        """Return what GPUs cost in a month, to whole cents."""
        return (Decimal(gpus) * self.per_gpu_hour * MONTH_HOURS).quantize(Decimal("0.01"))


class TierCapacityPlan(Struct, frozen=True):
    """The outlook of a tier with its cases; `price` None where none is known, or may be seen.

    `pools` are the NodePools that have had nodes of it, or would make some, `groups` the node
    groups of cluster-autoscaler with a node of it; `gaps` say where autoscalers are not known.
    """

    outlook: TierOutlook
    cases: Sequence[CapacityCase]
    price: TierPrice | None
    pools: Sequence[PoolLimit]
    groups: Sequence[NodeGroupLimit]
    gaps: Sequence[CeilingGap]
    through: date
    computed_at: datetime

    @property
    def first_day(self) -> date:
        return date.fromisoformat(self.outlook.first_day)

    @property
    def forecast_until(self) -> date | None:
        """The last day that is forecast."""
        found = self.outlook.forecast
        return None if found is None else self.through + timedelta(days=len(found.middle))

    @property
    def demand(self) -> float | None:
        """Mean GPUs of the last four weeks of known days."""
        known = [gpus for gpus in self.outlook.demand[-_DAYS:] if gpus is not None]
        return sum(known) / len(known) if known else None

    def rows(self) -> list[CapacityPlanRow]:
        """Return a row for each case; one without an action where there is none."""
        return [self._row(case) for case in self.cases] or [self._row(None)]

    def cost_of(self, case: CapacityCase | None) -> Decimal | None:
        """Return what an action costs in a month; None where it neither costs nor saves."""
        signs = {CaseAction.BUY: 1, CaseAction.RETURN: -1}
        if self.price is None or case is None or case.action not in signs:
            return None
        # Moving and sharing cost nothing by themselves: the GPUs are paid for already.
        return self.price.per_month(signs[case.action] * case.gpus)

    def _row(self, case: CapacityCase | None) -> CapacityPlanRow:
        one = self.outlook
        ahead = one.ahead or (None, None, None)
        skill = one.forecast.skill if one.forecast else None
        seen = one.spot_interruptions
        # A tier that gives GPUs to another shows the replay of that other one.
        before = (case.before if case else None) or one.as_it_is
        after = case.after if case else None
        cost = self.cost_of(case)
        return CapacityPlanRow(
            tier=one.tier,
            action=case.action if case else None,
            action_gpus=case.gpus if case else None,
            to_tier=case.to_tier if case else "",
            cost_per_month=cost,
            currency=self.price.currency if self.price and cost is not None else "",
            capacity_gpus=one.capacity_now,
            demand_gpus=self.demand,
            forecast_low_gpus=ahead[0],
            forecast_gpus=ahead[1],
            forecast_high_gpus=ahead[2],
            booked_peak_gpus=one.booked_peak or None,
            forecast_until=self.forecast_until,
            forecast_error_gpus=skill.error if skill else None,
            naive_error_gpus=skill.naive_error if skill else None,
            forecast_coverage_ratio=skill.coverage if skill else None,
            unused_gpus=one.unused,
            spot_ratio=one.spot_ratio,
            spot_nodes_vanished=seen.nodes if seen else None,
            spot_interruptions_per_month=seen.per_month if seen else None,
            node_pool_room_gpus=room_of(self.pools),
            node_group_room_gpus=room_of_groups(self.groups),
            unmet_gpu_hours=before.unmet_gpu_hours if before else None,
            unmet_after_gpu_hours=after.unmet_gpu_hours if after else None,
            wait_p95_seconds=before.p95_seconds if before else None,
            wait_p95_after_seconds=after.p95_seconds if after else None,
            replayed_days=one.replayed_days or None,
            data_through=self.through,
            computed_at=self.computed_at,
        )


def capacity_plans(
    now: datetime,
    *,
    booked: Mapping[str, Iterable[BookedGpus]],
    visibility: Visibility,
    limits: Ceilings | None = None,
) -> list[TierCapacityPlan]:
    """Return the plan of each tier that has one, in catalog order.

    `booked` are the bookings to come by tier, `limits` the ceilings where they are read already.
    GPUs of tiers, which everybody may see; prices of the last days are for who sees everything.
    Six queries, one more with bookings, and what `ceilings` reads beside three.
    """
    rows = list(
        CapacityPlan.objects.filter(tier__active=True)
        .order_by("tier__position", "tier__name")
        .values_list("outlook", "through", "computed_at")
    )
    outlooks = [
        _with_bookings(msgspec.convert(outlook, TierOutlook), booked, through)
        for outlook, through, _ in rows
    ]
    # All tiers at once: what one can spare may serve another.
    cases = capacity_cases(outlooks)
    prices = _prices(capacity_values(now, visibility=visibility))
    found = ceilings(now, visibility=visibility) if limits is None else limits
    return [
        TierCapacityPlan(
            outlook,
            [case for case in cases if case.tier == outlook.tier],
            prices.get(outlook.tier),
            found.pools.get(outlook.tier, ()),
            found.groups.get(outlook.tier, ()),
            found.gaps,
            through,
            computed_at,
        )
        for outlook, (_, through, computed_at) in zip(outlooks, rows, strict=True)
    ]


def _with_bookings(
    outlook: TierOutlook,
    booked: Mapping[str, Iterable[BookedGpus]],
    through: date,
) -> TierOutlook:
    own = list(booked.get(outlook.tier, ()))
    if outlook.forecast is None or not own:
        return outlook
    first, zone = through + timedelta(days=1), report().zone
    count = len(outlook.forecast.middle)
    # One edge more than days: the end of the last.
    days = [day_start(first + timedelta(days=n), zone) for n in range(count + 1)]
    return replace(outlook, booked=booked_by_day(own, days))


def _prices(values: Mapping[tuple[str, str], CapacityValue]) -> dict[str, TierPrice]:
    """Return the mean price of each tier over its clusters, by their GPUs."""
    found: dict[str, TierPrice] = {}
    for tier in {tier for _, tier in values if tier}:
        own = [value for (_, of), value in values.items() if of == tier]
        gpus = sum(Decimal(value.gpus) for value in own)
        if gpus:
            cost = sum(Decimal(value.gpus) * value.per_gpu_hour for value in own)
            found[tier] = TierPrice(cost / gpus, own[0].currency)
    return found

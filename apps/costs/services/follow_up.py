"""Whether accepted recommendations saved what they promised."""

from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import add
from typing import Any

from django.db import models, transaction
from django.db.models import F, Sum
from msgspec import Struct

from apps.clusters.domain.names import ANY, family_of
from apps.clusters.domain.window import day_of
from apps.clusters.models import Workload
from apps.clusters.selectors import report
from apps.costs.domain.costing import money, units
from apps.costs.domain.recommendations.recommendation import (
    FollowUpOutcome,
    RecommendationKind,
    RecommendationState,
    follow_up,
)
from apps.costs.models import PoolCostDay, PricedHour, Recommendation, WorkloadCostDay
from apps.costs.services.evidence.offers import Pool, PricesInForce
from apps.costs.services.evidence.span import EVIDENCE_DAYS, EvidenceSpan, newest_day, span_of

_HELD = ("busy", "unmeasured", "underused", "idle", "not_running")
_FREE = ("unallocated", "unhealthy", "planned_outage")
_DAY = timedelta(days=1)
_NANO = 10**9
NOT_FOLLOWED = (
    RecommendationKind.UNUSED_QUOTA,
    RecommendationKind.MIG_LAYOUT,
    RecommendationKind.IDLE_TIMEOUT,
    RecommendationKind.LEND_QUOTA,
)
"""Their saving is capacity that is given up or used by others: no cost of one subject shows it."""
OF_POOLS = (RecommendationKind.EMPTY_NODES, RecommendationKind.EMPTY_HOURS)
MOVED = (RecommendationKind.SMALLER_MODEL, RecommendationKind.SPOT)
"""Those that may change what a GPU-hour of the same tier costs."""


class _Spent(Struct, frozen=True):
    """What was held in some days at the prices of one moment; `days` are those of priced hours.

    `cost` is None where it cannot be told.
    """

    cost: Decimal | None
    days: float


def follow_up_accepted(*, now: datetime) -> int:
    """Compare what accepted recommendations' subjects hold since; return how many were looked at.

    Counted are whole local days after the acceptance. One whose saving came is done.
    """
    accepted = Recommendation.objects.filter(state=RecommendationState.ACCEPTED.value).order_by(
        "pk"
    )
    return sum(_follow(pk, now) for pk in accepted.values_list("pk", flat=True))


def cost_before(row: Recommendation, *, now: datetime) -> tuple[Decimal, float] | None:
    """Return what a subject's GPU-hours of the thirty days until today cost at today's prices.

    With it how many days were priced. None where that cannot be told: no price, no day yet,
    something that was not priced, or nothing that has a cost of its own.
    """
    last = newest_day(row.cluster)
    if last is None or row.kind in NOT_FOLLOWED or row.saving_per_month is None:
        return None
    span = span_of(row.cluster, last, now=now)
    first = _first_day(row, span)
    if first is None:
        return None
    spent = _cost_since(row, span, first, at=now)
    return None if spent.cost is None or not spent.days else (spent.cost, spent.days)


@transaction.atomic
def _follow(pk: int, now: datetime) -> bool:
    row = Recommendation.objects.select_for_update().get(pk=pk)
    last = newest_day(row.cluster)
    if row.state != RecommendationState.ACCEPTED.value or row.decided_at is None or last is None:
        return False
    if row.cost_before is None or row.days_before is None or row.saving_per_month is None:
        return False
    # The day of the decision belongs to neither side: the change was made within it.
    since = day_of(row.decided_at, report().zone) + _DAY
    days = min(EVIDENCE_DAYS, (last - since).days + 1)
    if days < 1:
        return False
    span = span_of(row.cluster, last, now=now, days=days)
    spent = _cost_since(row, span, span.first, at=row.decided_at)
    row.cost_after, row.days_after = spent.cost, spent.days
    _judge(row)
    row.save()
    return True


def _judge(row: Recommendation) -> None:
    """Say whether the saving came; where a cost is not known there is no verdict."""
    # An earlier verdict does not outlive a cost that is no longer known.
    row.verdict, row.saved_per_month = "", None
    if row.saving_per_month is None or row.cost_before is None or row.cost_after is None:
        return
    said = follow_up(
        promised=row.saving_per_month,
        cost_before=row.cost_before,
        days_before=Decimal(repr(row.days_before)),
        cost_after=row.cost_after,
        days_after=Decimal(repr(row.days_after)),
    )
    row.verdict, row.saved_per_month = said.verdict.value, said.saved_per_month
    if said.verdict is FollowUpOutcome.CAME:
        row.state = RecommendationState.DONE.value


def _cost_since(row: Recommendation, span: EvidenceSpan, first: date, *, at: datetime) -> _Spent:
    """Return what a subject's GPU-hours from `first` on cost, whatever tier they were of.

    All are priced as at `at`: a price that changed is no saving. Days at the end that are not
    priced yet are left out; one before them, a GPU-hour without a price or one in another
    currency make the cost unknown.
    """
    priced, is_whole = _priced(span, first)
    if not priced:
        return _Spent(None, 0.0)
    days = sum(priced.values()) / 24
    if not is_whole:
        return _Spent(None, days)
    return _Spent(_valued(row, first, max(priced), at), days)


def _priced(span: EvidenceSpan, first: date) -> tuple[dict[date, int], bool]:
    """Return how many hours of each day were priced, and whether all collected ones were.

    Days at the end of which an hour is not priced yet are left out.
    """
    hours = PricedHour.objects.filter(
        cluster=span.cluster, hour__gte=span.window.start, hour__lt=span.window.end
    )
    counts = Counter(day_of(hour, span.zone) for hour in hours.values_list("hour", flat=True))
    collected = {day: count for day, count in span.hours.items() if day >= first}
    # The last day is often half priced when this runs: it would look like a saving.
    whole = [day for day, count in collected.items() if counts[day] >= count]
    if not whole:
        return {}, False
    wanted = [day for day in collected if day <= max(whole)]
    return {day: counts[day] for day in wanted}, len(wanted) == len(whole)


def _valued(row: Recommendation, first: date, last: date, at: datetime) -> Decimal | None:
    """Return what was held in some days at the prices of `at`; None where that is not known."""
    table, names = _cost_table(row)
    held = reduce(add, (F(name) for name in names))
    pools = ("tier__name", "gpu_model__name", "capacity_type")
    rows = _own_rows(row, table).filter(day__gte=first, day__lte=last).order_by()
    sums = list(rows.values_list("currency", *pools).annotate(held=Sum(held)).filter(held__gt=0))
    # Costs of two currencies cannot be added, nor compared with what was promised.
    if any(currency != row.currency for currency, *_ in sums):
        return None
    prices, whole = PricesInForce(at), Decimal(0)
    own = set()
    for _, tier, model, kind, amount in sums:
        price, currency = prices.of(row.cluster.name, Pool(tier, model, kind))
        if price is None or currency != row.currency:
            return None
        whole += Decimal(int(amount)) / _NANO * price
        if row.tier is not None and tier == row.tier.name:
            own.add(price)
    return money(units(whole)) if _are_as_then(row, own) else None


def _are_as_then(row: Recommendation, own: Iterable[Decimal]) -> bool:
    """Say whether its tier's prices include the one that its saving was promised at.

    If not, the price book was corrected since, and what it says of then is not what was compared.
    """
    promised: Any = row.evidence.get("price_per_gpu_hour")
    found = set(own)
    return promised is None or not found or row.kind in MOVED or Decimal(promised) in found


def _first_day(row: Recommendation, span: EvidenceSpan) -> date | None:
    table, _ = _cost_table(row)
    days = _own_rows(row, table).filter(day__gte=span.first, day__lte=span.last).order_by("day")
    first: date | None = days.values_list("day", flat=True).first()
    return first


def _cost_table(row: Recommendation) -> tuple[type[models.Model], tuple[str, ...]]:
    # What is about a pool or a node shows in the capacity, allocated or not.
    if row.workload and row.kind not in OF_POOLS:
        return WorkloadCostDay, _HELD
    return PoolCostDay, (*_HELD, *_FREE)


def _own_rows(
    row: Recommendation, table: type[models.Model]
) -> models.QuerySet[models.Model, models.Model]:
    rows = table._default_manager.filter(cluster=row.cluster_id)
    kind, _, name = row.workload.partition("/")
    if row.kind in OF_POOLS and name:
        capacity_type, _, model = name.partition("/")
        return rows.filter(tier=row.tier_id, capacity_type=capacity_type, gpu_model__name=model)
    if not row.workload:
        return rows.filter(tier=row.tier_id)
    if name.endswith(ANY):
        return rows.filter(workload__in=_family_rows(row, kind, name))
    return rows.filter(
        workload__namespace__name=row.namespace, workload__kind=kind, workload__name=name
    )


def _family_rows(row: Recommendation, kind: str, family: str) -> list[int]:
    """Return the ids of a family's workloads: `eval-big-x7k2p` begins like `eval-*`, but is not."""
    named = Workload.objects.filter(
        namespace__cluster=row.cluster_id,
        namespace__name=row.namespace,
        kind=kind,
        name__startswith=family.removesuffix(f"-{ANY}"),
    )
    found = named.order_by("pk").values_list("pk", "name")
    # SQL narrows by prefix; the stem itself is a rule in Python.
    return [pk for pk, name in found if family_of(kind, name) == family]

"""Did the saving come? What accepted recommendations' subjects cost since, held against before."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import add

from django.db import models, transaction
from django.db.models import F, Sum

from apps.clusters.domain.calendar import day_of
from apps.clusters.selectors import report
from apps.costs.domain.money import money
from apps.costs.domain.recommendations.follow_up import Verdict, follow_up
from apps.costs.domain.recommendations.recommendation import Kind
from apps.costs.domain.recommendations.states import State
from apps.costs.models import PoolCostDay, Recommendation, WorkloadCostDay
from apps.costs.services.evidence_span import EVIDENCE_DAYS, EvidenceSpan, newest_day, span_of

_HELD = ("busy", "unmeasured", "underused", "idle", "not_running")
_FREE = ("unallocated", "unhealthy")
_DAY = timedelta(days=1)
NOT_FOLLOWED = (Kind.UNUSED_QUOTA, Kind.MIG_LAYOUT)
"""Their saving is capacity that is given up or used by others: no cost of one subject shows it."""


def follow_up_accepted(*, now: datetime) -> int:
    """Compare what accepted recommendations' subjects cost since; return how many were looked at.

    Counted are whole local days after the acceptance. One whose saving came is done.
    """
    accepted = Recommendation.objects.filter(state=State.ACCEPTED.value).order_by("pk")
    return sum(_follow(pk, now) for pk in accepted.values_list("pk", flat=True))


def cost_before(row: Recommendation, *, now: datetime) -> tuple[Decimal, float] | None:
    """Return what a subject cost in the thirty days until today, and how many were collected.

    None where that cannot be told: no price, no day yet, or nothing that has a cost of its own.
    """
    last = newest_day(row.cluster)
    if last is None or row.kind in NOT_FOLLOWED or row.saving_per_month is None:
        return None
    span = span_of(row.cluster, last, now=now)
    first = _first_day(row, span)
    return None if first is None else (_cost(row, first, last), span.days(first))


@transaction.atomic
def _follow(pk: int, now: datetime) -> bool:
    row = Recommendation.objects.select_for_update().get(pk=pk)
    last = newest_day(row.cluster)
    if row.state != State.ACCEPTED.value or row.decided_at is None or last is None:
        return False
    if row.cost_before is None or row.days_before is None or row.saving_per_month is None:
        return False
    since = day_of(row.decided_at, report().zone) + _DAY
    days = min(EVIDENCE_DAYS, (last - since).days + 1)
    if days < 1:
        return False
    span = span_of(row.cluster, last, now=now, days=days)
    row.cost_after, row.days_after = _cost(row, span.first, last), span.days(span.first)
    said = follow_up(
        promised=row.saving_per_month,
        cost_before=row.cost_before,
        days_before=Decimal(repr(row.days_before)),
        cost_after=row.cost_after,
        days_after=Decimal(repr(row.days_after)),
    )
    row.verdict, row.saved_per_month = said.verdict.value, said.saved_per_month
    if said.verdict is Verdict.CAME:
        row.state = State.DONE.value
    row.save()
    return True


def _cost(row: Recommendation, first: date, last: date) -> Decimal:
    """Return what a subject cost in some days, on whatever tier it was."""
    table, names = _table(row)
    costs = reduce(add, (F(f"cost_{name}") for name in names))
    rows = _own(row, table).filter(day__gte=first, day__lte=last, currency=row.currency)
    return money(int(rows.aggregate(whole=Sum(costs))["whole"] or 0))


def _first_day(row: Recommendation, span: EvidenceSpan) -> date | None:
    table, _ = _table(row)
    days = _own(row, table).filter(day__gte=span.first, day__lte=span.last).order_by("day")
    first: date | None = days.values_list("day", flat=True).first()
    return first


def _table(row: Recommendation) -> tuple[type[models.Model], tuple[str, ...]]:
    if row.workload:
        return WorkloadCostDay, _HELD
    return PoolCostDay, (*_HELD, *_FREE)


def _own(
    row: Recommendation, table: type[models.Model]
) -> models.QuerySet[models.Model, models.Model]:
    rows = table._default_manager.filter(cluster=row.cluster_id)
    if not row.workload:
        return rows.filter(tier=row.tier_id)
    kind, _, name = row.workload.partition("/")
    return rows.filter(
        workload__namespace__name=row.namespace, workload__kind=kind, workload__name=name
    )

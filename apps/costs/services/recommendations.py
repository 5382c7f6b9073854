"""Store recommendations, decide on them, and follow up what they saved."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeVar

from django.db import models, transaction
from django.db.models import F, QuerySet, Sum

from apps.accounts.models import User
from apps.accounts.permissions import NotAllowed, can_administer, teams_led_by, visibility_of
from apps.clusters.domain.names import ANY, family_of
from apps.clusters.domain.window import day_of
from apps.clusters.models import Cluster, Tier, Workload
from apps.clusters.selectors import report
from apps.costs.domain.costing import money, units
from apps.costs.domain.recommendations import Recommendation as Found
from apps.costs.domain.recommendations.recommendation import (
    DECIDABLE,
    FROZEN,
    Cell,
    Figure,
    FollowUpOutcome,
    RecommendationKind,
    RecommendationState,
    follow_up,
    found_again,
    not_found,
)
from apps.costs.models import PoolCostDay, PricedHour, Recommendation, WorkloadCostDay
from apps.costs.services.evidence.offers import (
    EVIDENCE_DAYS,
    EvidenceSpan,
    Pool,
    PricesInForce,
    newest_day,
    span_of,
)

_FIGURES = (
    *("team_id", "change", "patch", "saving_per_month", "currency", "confidence", "reason"),
    *("evidence", "covers"),
)
_WRITTEN = (*(name.removesuffix("_id") for name in _FIGURES), "state")
_AT_A_TIME = 500
GONE_FOR = timedelta(days=90)
"""Recommendations not found for longer are deleted: their return is not expected."""
_STANDING = (RecommendationState.OPEN.value, RecommendationState.ACCEPTED.value)

_Key = tuple[str, ...]
_T = TypeVar("_T")


class TeamFinding(NamedTuple):
    """What a rule found, its team (None: of no team in particular), and what it covers."""

    found: Found
    team_id: int | None
    covers: Mapping[Cell, int] = {}


def store(cluster: Cluster, found: Iterable[TeamFinding], *, now: datetime) -> None:
    """Write what was found of a cluster; must run in a transaction.

    What is open and was not found again is gone, and after GONE_FOR deleted. What was accepted
    keeps the figures that it was accepted with. Of one change found twice the larger saving
    counts. Only rows that say something else than before are written.
    """
    tiers = dict(Tier.objects.order_by("pk").values_list("name", "pk"))
    best: dict[_Key, TeamFinding] = {}
    for one in sorted(found, key=lambda each: each.found.order):
        best.setdefault(one.found.key, one)
    known = {_key_of(row): row for row in _standing_rows(cluster)}
    known |= _returned_rows(cluster, best.keys() - known.keys())
    before = {key: _content(row) for key, row in known.items()}
    fresh = [_new_row(cluster, tiers, one, now) for key, one in best.items() if key not in known]
    for key, row in known.items():
        if key in best:
            _update_row(row, best[key])
        else:
            row.state = not_found(RecommendationState(row.state)).value
    changed = [row for key, row in known.items() if _content(row) != before[key]]
    again = [row.pk for key, row in known.items() if key in best]
    Recommendation.objects.bulk_create(fresh, batch_size=_AT_A_TIME)
    Recommendation.objects.bulk_update(changed, _WRITTEN, batch_size=_AT_A_TIME)
    for some in _portions(again):
        Recommendation.objects.filter(pk__in=some).update(last_seen=now)
    mark_alternatives([*known.values(), *fresh])
    _gone_rows(cluster).filter(last_seen__lt=now - GONE_FOR).delete()


def _standing_rows(cluster: Cluster) -> QuerySet[Recommendation, Recommendation]:
    """Return all rows but those that are gone, of which there are ever more."""
    return _lock_rows(
        Recommendation.objects.filter(cluster=cluster).exclude(state=RecommendationState.GONE.value)
    )


def _returned_rows(cluster: Cluster, keys: Iterable[_Key]) -> dict[_Key, Recommendation]:
    """Return the rows of keys that are gone. One query for every _AT_A_TIME keys."""
    found: dict[_Key, Recommendation] = {}
    for some in _portions(sorted(keys)):
        kinds, _, namespaces, workloads, _, nodes = map(set, zip(*some, strict=True))
        rows = _gone_rows(cluster).filter(
            kind__in=kinds, namespace__in=namespaces, workload__in=workloads, node__in=nodes
        )
        named = {_key_of(row): row for row in _lock_rows(rows)}
        found |= {key: named[key] for key in some if key in named}
    return found


def _gone_rows(cluster: Cluster) -> QuerySet[Recommendation, Recommendation]:
    return Recommendation.objects.filter(cluster=cluster, state=RecommendationState.GONE.value)


def _lock_rows(
    rows: QuerySet[Recommendation, Recommendation],
) -> QuerySet[Recommendation, Recommendation]:
    rows = rows.select_related("cluster", "tier")
    return rows.select_for_update(of=("self",)).order_by("pk")


def _portions(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for at in range(0, len(values), _AT_A_TIME):
        yield values[at : at + _AT_A_TIME]


def _content(row: Recommendation) -> tuple[object, ...]:
    return (row.state, *(getattr(row, name) for name in _FIGURES))


def _key_of(row: Recommendation) -> _Key:
    tier = row.tier.name if row.tier else ""
    return row.kind, row.cluster.name, row.namespace, row.workload, tier, row.node


def _new_row(
    cluster: Cluster, tiers: Mapping[str, int], one: TeamFinding, now: datetime
) -> Recommendation:
    about = one.found.subject
    return Recommendation(
        kind=one.found.kind.value,
        cluster=cluster,
        tier_id=tiers.get(about.tier),
        namespace=about.namespace,
        workload=about.workload,
        node=about.node,
        first_seen=now,
        last_seen=now,
        **_figures(one),
    )


def _update_row(row: Recommendation, one: TeamFinding) -> None:
    if row.state not in FROZEN:
        row.state = found_again(RecommendationState(row.state)).value
        for name, value in _figures(one).items():
            setattr(row, name, value)


def _figures(one: TeamFinding) -> dict[str, object]:
    found = one.found
    evidence = {**found.evidence, **found.saved.figures()}
    values = (
        *(one.team_id, found.change, found.patch, found.saving_per_month, found.currency),
        *(found.rating.confidence.value, found.rating.reason, _plain_evidence(evidence)),
        [[*cell, units] for cell, units in sorted(one.covers.items())],
    )
    return dict(zip(_FIGURES, values, strict=True))


def _plain_evidence(evidence: Mapping[str, Figure]) -> dict[str, float | int | str]:
    """Return evidence as JSON can carry it: prices as texts, with all their digits."""
    return {
        name: f"{value:f}" if isinstance(value, Decimal) else value
        for name, value in evidence.items()
    }


def mark_alternatives(rows: Sequence[Recommendation]) -> None:
    """Mark those whose savings must not be added to the others', of whole tiers.

    What is accepted comes first, then what saves most. One is an alternative where another one of
    its subject, or one that avoids the same waste, came before it.
    """
    standing = sorted((row for row in rows if row.state in _STANDING), key=_rank)
    alternatives: set[int] = set()
    subjects: set[tuple[object, ...]] = set()
    cells: set[tuple[object, ...]] = set()
    for row in standing:
        place = (row.cluster_id, row.tier_id)
        subject = (*place, row.namespace, row.workload, row.node)
        own = {(*place, row.team_id, name, cause) for name, cause, _ in row.covers}
        if subject in subjects or own & cells:
            alternatives.add(row.pk)
        else:
            subjects.add(subject)
            cells |= own
    changed = [row for row in rows if row.alternative != (row.pk in alternatives)]
    for row in changed:
        row.alternative = not row.alternative
    Recommendation.objects.bulk_update(changed, ["alternative"], batch_size=_AT_A_TIME)


def _rank(row: Recommendation) -> tuple[bool, bool, Decimal, int]:
    saving = row.saving_per_month
    accepted = row.state == RecommendationState.ACCEPTED.value
    return not accepted, saving is None, -(saving or Decimal(0)), row.pk


_HELD = ("busy", "unmeasured", "underused", "idle", "not_running")
_FREE = ("unallocated", "unhealthy")
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


@dataclass(frozen=True, slots=True)
class _Spent:
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
    spent = _spent_from(row, span, first, at=now)
    return None if spent.cost is None or not spent.days else (spent.cost, spent.days)


@transaction.atomic
def _follow(pk: int, now: datetime) -> bool:
    row = Recommendation.objects.select_for_update().get(pk=pk)
    last = newest_day(row.cluster)
    if row.state != RecommendationState.ACCEPTED.value or row.decided_at is None or last is None:
        return False
    if row.cost_before is None or row.days_before is None or row.saving_per_month is None:
        return False
    since = day_of(row.decided_at, report().zone) + _DAY
    days = min(EVIDENCE_DAYS, (last - since).days + 1)
    if days < 1:
        return False
    span = span_of(row.cluster, last, now=now, days=days)
    spent = _spent_from(row, span, span.first, at=row.decided_at)
    row.cost_after, row.days_after = spent.cost, spent.days
    _judge(row)
    row.save()
    return True


def _judge(row: Recommendation) -> None:
    """Say whether the saving came; where a cost is not known there is no verdict."""
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


# ---------------------------------------------------------------- what was held, and its price


def _spent_from(row: Recommendation, span: EvidenceSpan, first: date, *, at: datetime) -> _Spent:
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
    return [pk for pk, name in found if family_of(kind, name) == family]


LONGEST_REASON = 1000


class UnknownRecommendation(Exception):
    """There is none of that number, or it is not for this reader."""


class DecisionRefused(Exception):
    """It cannot be decided so; the text says why, for a person."""


def check_decide(user: User, team_id: int | None) -> None:
    """Who decides on a recommendation: the leads of its team, and administrators.

    Raises NotAllowed. One query at most.
    """
    if can_administer(user):
        return
    if team_id is None:
        raise NotAllowed("What is about shared capacity is decided by administrators.")
    if not (user.is_active and team_id in teams_led_by(user)):
        raise NotAllowed("The leads of this team and administrators decide on this.")


def accept_recommendation(user: User, pk: int, *, now: datetime) -> None:
    """Accept a recommendation: from now on it is looked whether its saving comes.

    What its subject cost until now is noted, to be compared with. Raises UnknownRecommendation,
    NotAllowed and DecisionRefused.
    """
    with transaction.atomic():
        row = _decidable(user, pk)
        if row.state == RecommendationState.ACCEPTED.value:
            return
        before = cost_before(row, now=now)
        row.cost_before, row.days_before = (None, None) if before is None else before
        _decide(row, RecommendationState.ACCEPTED, user, now)


def dismiss_recommendation(user: User, pk: int, reason: str, *, now: datetime) -> None:
    """Dismiss a recommendation for a reason; it is not shown as open again. Raises as `accept`."""
    given = reason.replace("\0", "").strip()
    if not given:
        raise DecisionRefused("Say why it is dismissed: others will wonder.")
    if len(given) > LONGEST_REASON:
        raise DecisionRefused(f"The reason may have {LONGEST_REASON} characters.")
    with transaction.atomic():
        row = _decidable(user, pk)
        row.dismiss_reason = given
        _decide(row, RecommendationState.DISMISSED, user, now)


def reopen_recommendation(user: User, pk: int, *, now: datetime) -> None:
    """Take a decision back. Raises as `accept`."""
    with transaction.atomic():
        _decide(_decidable(user, pk), RecommendationState.OPEN, user, now)


def _decidable(user: User, pk: int) -> Recommendation:
    row = Recommendation.objects.select_for_update().filter(pk=pk).first()
    seen = visibility_of(user)
    if row is None or not (seen.everything or row.team_id in seen.team_ids):
        raise UnknownRecommendation(f"There is no recommendation {pk}, or it is not yours.")
    check_decide(user, row.team_id)
    if row.state not in DECIDABLE:
        raise DecisionRefused(f"It is {row.state}: there is nothing to decide.")
    return row


def _decide(row: Recommendation, state: RecommendationState, user: User, now: datetime) -> None:
    row.state = state.value
    row.decided_by, row.decided_at = user.username, now
    if state is not RecommendationState.DISMISSED:
        row.dismiss_reason = ""
    row.verdict, row.saved_per_month = "", None
    row.cost_after = row.days_after = None
    row.save()
    alike = Recommendation.objects.filter(cluster=row.cluster_id, tier=row.tier_id).exclude(
        state=RecommendationState.GONE.value
    )
    mark_alternatives(list(alike.order_by("pk")))

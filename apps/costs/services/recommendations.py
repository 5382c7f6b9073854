"""Store recommendations and decide on them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple, TypeVar

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.accounts.permissions import NotAllowed, can_administer, teams_led_by, visibility_of
from apps.clusters.models import Cluster, Tier
from apps.clusters.services import chunks
from apps.costs.domain.recommendations import Finding
from apps.costs.domain.recommendations.recommendation import (
    DECIDABLE,
    FROZEN,
    Figure,
    RecommendationState,
    WasteCell,
    found_again,
    not_found,
)
from apps.costs.models import Recommendation
from apps.costs.services.follow_up import cost_before

_FIGURES = (
    *("team_id", "change", "patch", "saving_per_month", "currency", "confidence", "reason"),
    *("evidence", "covers", "change_values"),
)
_WRITTEN = (*(name.removesuffix("_id") for name in _FIGURES), "state")
_AT_A_TIME = 500
GONE_FOR = timedelta(days=90)
"""Recommendations not found for longer are deleted: their return is not expected."""
_CURRENT = (RecommendationState.OPEN.value, RecommendationState.ACCEPTED.value)
_Key = tuple[str, ...]
_T = TypeVar("_T")
LONGEST_REASON = 1000


class TeamFinding(NamedTuple):
    """What a rule found, its team (None: of no team in particular), and what it covers."""

    found: Finding
    team_id: int | None
    covers: Mapping[WasteCell, int] = {}


def store(cluster: Cluster, found: Iterable[TeamFinding], *, now: datetime) -> None:
    """Write what was found of a cluster; must run in a transaction.

    What is open and was not found again is gone, and after GONE_FOR deleted. What was accepted
    keeps the figures that it was accepted with. Of one change found twice the larger saving
    counts. Only rows that say something else than before are written.
    """
    tiers = dict(Tier.objects.order_by("pk").values_list("name", "pk"))
    best: dict[_Key, TeamFinding] = {}
    for one in sorted(found, key=lambda each: each.found.order):
        # Sorted by saving: the first of a key is the largest.
        best.setdefault(one.found.key, one)
    known = {_key_of(row): row for row in _current_rows(cluster)}
    known |= _returned_rows(cluster, best.keys() - known.keys())
    before = {key: _content(row) for key, row in known.items()}
    fresh = [_new_row(cluster, tiers, one, now) for key, one in best.items() if key not in known]
    for key, row in known.items():
        if key in best:
            _update_row(row, best[key])
        else:
            row.state = not_found(RecommendationState(row.state)).value
    # Most rows say the same every day; only `last_seen` moves on in one UPDATE.
    changed = [row for key, row in known.items() if _content(row) != before[key]]
    again = [row.pk for key, row in known.items() if key in best]
    Recommendation.objects.bulk_create(fresh, batch_size=_AT_A_TIME)
    Recommendation.objects.bulk_update(changed, _WRITTEN, batch_size=_AT_A_TIME)
    for some in chunks(again, _AT_A_TIME):
        Recommendation.objects.filter(pk__in=some).update(last_seen=now)
    mark_alternatives([*known.values(), *fresh])
    _gone_rows(cluster).filter(last_seen__lt=now - GONE_FOR).delete()


def _current_rows(cluster: Cluster) -> QuerySet[Recommendation, Recommendation]:
    """Return all rows but those that are gone, of which there are ever more."""
    return _lock_rows(
        Recommendation.objects.filter(cluster=cluster).exclude(state=RecommendationState.GONE.value)
    )


def _returned_rows(cluster: Cluster, keys: Iterable[_Key]) -> dict[_Key, Recommendation]:
    """Return the rows of keys that are gone. One query for every _AT_A_TIME keys."""
    found: dict[_Key, Recommendation] = {}
    for some in chunks(sorted(keys), _AT_A_TIME):
        # A superset of the keys: SQL has no portable IN over tuples, so Python picks.
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
    # In one order: two that lock several rows never deadlock.
    return rows.select_for_update(of=("self",)).order_by("pk")


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
        None if found.change_values is None else found.change_values._asdict(),
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
    standing = sorted((row for row in rows if row.state in _CURRENT), key=_rank)
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
        # A second click would measure the cost before anew, with the change half made.
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
    # What was measured since an earlier decision says nothing of this one.
    row.cost_after = row.days_after = None
    row.save()
    alike = Recommendation.objects.filter(cluster=row.cluster_id, tier=row.tier_id).exclude(
        state=RecommendationState.GONE.value
    )
    mark_alternatives(list(alike.order_by("pk")))

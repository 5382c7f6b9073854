"""Bookings of keys and tiers: what they plan, and how they fit what a tier has."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from msgspec import Struct

from apps.accounts.domain.formats import utc_words
from apps.clusters.domain.resources import counted
from apps.clusters.domain.resources import quantity as amount_text
from apps.clusters.domain.window import Window
from apps.planning.domain.capacity_cases import BookedGpus
from apps.quota_requests.domain.bookings import (
    BookedSpan,
    PlannedChange,
    TierLimits,
    booked_spans,
    planned_amount,
)
from apps.quota_requests.domain.quantities import Quantity, quantity
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.domain.targets import target_of
from apps.quota_requests.models import ChangeRequest, same_key
from apps.quota_requests.permissions import Actor, seen_by
from apps.quotas.domain.keys import QuotaRef
from apps.quotas.selectors import tier_commitments, tier_quotas, unit_weights
from gpuportal.queries import BatchQuery

_PLANNED = (RequestState.SCHEDULED.value, RequestState.APPLIED.value, RequestState.REVERTING.value)


def planned_for(ref: QuotaRef, current: Quantity, at: datetime) -> Quantity:
    """Return what a key is planned to be at a time; `current` is what it is now. One query.

    By what is applied with an end and what is scheduled, of all teams.
    """
    rows = ChangeRequest.objects.filter(same_key(ref), state__in=_PLANNED, until__isnull=False)
    found = rows.order_by("applied_at", "starts_at", "pk")
    scheduled = RequestState.SCHEDULED.value
    changes = [
        PlannedChange(
            quantity(one.before),
            quantity(one.after),
            start=one.starts_at if one.state == scheduled else None,
            # `reverts_at` is the end that counts once applied: a revert may be put off or called
            # off.
            end=one.until if one.state == scheduled else one.reverts_at,
        )
        for one in found
    ]
    return planned_amount(current, changes, at)


_APPLIED = frozenset({RequestState.APPLIED.value, RequestState.REVERTING.value})
_APPROVED = _APPLIED | {
    *(RequestState.APPROVED.value, RequestState.SCHEDULED.value, RequestState.APPLYING.value),
    RequestState.FAILED.value,
}
_UNDECIDED = frozenset(
    {RequestState.SUBMITTED.value, RequestState.IN_REVIEW.value, RequestState.CHANGES_ASKED.value}
)
_MOST_WARNINGS = 3


class BookingRow(Struct, frozen=True):
    """A raise with an end in a tier, in GPUs; one that is only asked for is not `approved`.

    Of a team that the reader does not see in detail `id` is None and the texts are empty.
    """

    id: int | None
    team: str
    tiers: tuple[str, ...]
    key: str
    gpus: float
    start: datetime
    end: datetime
    state: str

    @property
    def approved(self) -> bool:
        return self.state in _APPROVED


class TierBookings(Struct, frozen=True):
    """The raises with an end of a tier, by their start, and what is promised meanwhile."""

    rows: Sequence[BookingRow]
    spans: Sequence[BookedSpan]


def tier_bookings(tier: str, window: Window, *, actor: Actor, now: datetime) -> TierBookings:
    """Return what is booked of a tier within a window, next to its capacity of now.

    A key that reaches several tiers is counted whole in each. The sums are of all teams, which
    everybody may see; names are those of requests that the reader may know of. Fifteen
    queries.
    """
    found = _requests_of([tier], window)
    seen = set(
        ChangeRequest.objects.filter(seen_by(actor), pk__in=[one.pk for one in found]).values_list(
            "pk", flat=True
        )
    )
    weights = unit_weights(now).get(tier, {})
    rows = [_row(one, weights, seen=one.pk in seen) for one in found]
    booked = [BookedGpus(row.gpus, row.start, row.end) for row in rows if row.approved]
    limits = _tier_limits(tier, rows, now)
    spans = booked_spans(booked, limits, start=window.start, end=window.end)
    return TierBookings(rows, spans)


def team_bookings(teams: Collection[str], window: Window, *, actor: Actor) -> list[BookingRow]:
    """Return the raises with an end of teams that touch a window, by their start.

    Of those that the reader sees in detail; without `teams` of all of them.

    Their GPUs weigh as in the first tier that the key reaches, of the start of the window. At most
    four queries.
    """
    own = ChangeRequest.objects.filter(seen_by(actor))
    if teams:
        own = own.filter(team__name__in=teams)
    found = list(_with_end(own, window))
    weights = unit_weights(window.start) if found else {}
    return [_row(one, weights.get(next(iter(one.tiers), ""), {}), seen=True) for one in found]


_SOON = timedelta(days=7)


def _booked_soon(now: datetime, teams: tuple[str, ...]) -> QuerySet[Any, Any]:
    window = Window(now, now + _SOON)
    rows = ChangeRequest.objects.filter(state__in=_APPROVED)
    own = rows.filter(team__name__in=teams) if teams else rows
    return _with_end(own, window).select_related(None).order_by("pk").values_list("pk")


BOOKED_SOON = BatchQuery(_booked_soon)
"""The approved bookings that run or begin within a week."""


def upcoming_bookings(now: datetime, teams: tuple[str, ...], *, actor: Actor) -> list[BookingRow]:
    """Return the approved bookings of teams that begin or end within a week, as `team_bookings`.

    One query, which `read_batch` may read with others; four more where there are some.
    """
    if not list(BOOKED_SOON.rows(now, teams)):
        return []
    found = team_bookings(teams, Window(now, now + _SOON), actor=actor)
    # One that runs on beyond the week asks nothing of anybody yet.
    return [row for row in found if row.approved and (row.start > now or row.end <= now + _SOON)]


def bookings_ahead(*, now: datetime) -> dict[str, list[BookedGpus]]:
    """Return the approved raises that have not begun, by tier. Everybody may see these sums.

    A key that reaches several tiers is counted whole in each. At most three queries.
    """
    rows = list(
        ChangeRequest.objects.filter(state__in=_APPROVED, starts_at__gt=now, until__isnull=False)
        .select_related("cluster")
        .order_by("starts_at", "pk")
    )
    weights = unit_weights(now) if rows else {}
    found: dict[str, list[BookedGpus]] = defaultdict(list)
    for one in rows:
        for tier in one.tiers:
            row = _row(one, weights.get(tier, {}), seen=False)
            found[tier].append(BookedGpus(row.gpus, row.start, row.end))
    return found


def booking_conflicts(
    request: ChangeRequest, gpus: Mapping[str, float], *, now: datetime
) -> tuple[str, ...]:
    """Return a sentence for each span in which a booking and what is promised do not fit a tier.

    `gpus` is what the booking adds, by tier. Three at most.
    """
    if request.starts_at is None or request.until is None:
        return ()
    window, weights = Window(request.starts_at, request.until), unit_weights(now)
    found: list[str] = []
    for tier, own in gpus.items():
        rows = [
            _row(one, weights.get(tier, {}), seen=False)
            for one in _requests_of([tier], window)
            # Else an edited booking would clash with itself as it was.
            if one.pk != request.pk
        ]
        booked = [BookedGpus(row.gpus, row.start, row.end) for row in rows if row.approved]
        booked.append(BookedGpus(own, window.start, window.end))
        limits = _tier_limits(tier, rows, now)
        spans = booked_spans(booked, limits, start=window.start, end=window.end)
        found += [_conflict(tier, span, now) for span in spans if span.clashes]
    return tuple(found[:_MOST_WARNINGS])


def _conflict(tier: str, span: BookedSpan, now: datetime) -> str:
    start, end = utc_words(span.start, now=now), utc_words(span.end, now=now)
    entitled, booked = amount_text(span.entitled), counted(span.booked, "GPU is", "GPUs are")
    return (
        f"{tier} from {start} to {end}: {booked} booked and {entitled} entitled, of "
        f"{amount_text(span.capacity or 0.0)}."
    )


def _requests_of(tiers: Collection[str], window: Window) -> list[ChangeRequest]:
    """Return raises with an end that touch a window and reach any of the tiers. One query."""
    rows = _with_end(ChangeRequest.objects.all(), window)
    return [one for one in rows if not set(tiers).isdisjoint(one.tiers)]


def _with_end(requests: QuerySet[ChangeRequest], window: Window) -> QuerySet[ChangeRequest]:
    """Narrow requests to raises with an end that touch a window and are not over, in order."""
    begins = Q(starts_at__lt=window.end) | Q(applied_at__lt=window.end)
    rows = requests.filter(begins, until__gt=window.start, state__in=[*_APPROVED, *_UNDECIDED])
    return rows.select_related("cluster", "team").order_by("starts_at", "applied_at", "pk")


def _row(one: ChangeRequest, weights: Mapping[str, float], *, seen: bool) -> BookingRow:
    units = float((quantity(one.after) - quantity(one.before)).units)
    # One that began late counts from when it really began.
    start, end = one.applied_at or one.starts_at, one.until
    if start is None or end is None:
        raise ValueError(f"request {one.pk} has no start or no end")
    return BookingRow(
        id=one.pk if seen else None,
        team=one.team.name if seen else "",
        tiers=tuple(one.tiers),
        key=f"{one.namespace or one.name} · {one.key}" if seen else "",
        # A decrease with an end gives nothing away that others could book.
        gpus=max(0.0, units) * weights.get(target_of(one.ref).resource, 1.0),
        start=start,
        end=end,
        state=one.state,
    )


def _tier_limits(tier: str, rows: Sequence[BookingRow], now: datetime) -> TierLimits:
    """Return what a tier has and promises beside the bookings `rows`."""
    own, quotas = tier_commitments(now).get(tier), tier_quotas(now, tier)
    # Limits of now have what is applied in them already.
    raised = sum(row.gpus for row in rows if row.state in _APPLIED)
    return TierLimits(
        capacity=own.capacity if own else None,
        entitled=own.entitled if own else 0.0,
        limits=max(0.0, max(quotas.values()) - raised) if quotas else None,
    )

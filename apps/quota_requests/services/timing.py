"""Time-based changes: reverts of raises are announced and made, and undecided requests expire."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from apps.accounts.domain.formats import utc_words
from apps.quota_requests.domain.snapshots import time_box
from apps.quota_requests.domain.states import RequestAction, RequestState, TransitionDenied
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import Actor, portal
from apps.quota_requests.selectors.requests import Superseded, check_on_top, goes_back_to
from apps.quota_requests.services.execution.endings import TRY_AGAIN
from apps.quota_requests.services.execution.orders import applied_by_commit, revert, start
from apps.quota_requests.services.transitions import Conflict, KeyTaken, moving

_LOG = logging.getLogger(__name__)
_AT_ONCE = 100
_UNDECIDED = [
    RequestState.SUBMITTED.value,
    RequestState.IN_REVIEW.value,
    RequestState.CHANGES_ASKED.value,
]
_NOT_APPLIED = [
    *_UNDECIDED,
    *(RequestState.APPROVED.value, RequestState.SCHEDULED.value, RequestState.FAILED.value),
]


def revert_due(*, now: datetime) -> int:
    """Announce raises whose end comes near, and begin to take back those whose date has come.

    Returns how many were begun. Each is a transaction of its own: one that fails does not stop the
    others.
    """
    boxed = ChangeRequest.objects.filter(state=RequestState.APPLIED.value, reverts_at__isnull=False)
    # One short query for all of them: beat asks every minute, and most raises end in months.
    ahead = boxed.filter(reverts_at__gt=now).only("until", "applied_at", "announced")
    for request in ahead.order_by("reverts_at", "pk"):
        if _announced_by(request, now) > request.announced:
            _each(request, lambda pk: _announce(pk, now))
    due = boxed.filter(reverts_at__lte=now).order_by("reverts_at", "pk")[:_AT_ONCE]
    return sum(_each(request, lambda pk: _revert(pk, now)) for request in due)


def start_due(*, now: datetime) -> int:
    """Begin to apply bookings whose start has come; return how many were begun.

    After the portal was away they begin late, as long as their end lies ahead. One that meets
    another change of its key that is being carried out begins after it. One that the portal may not
    write is handed over to people.
    """
    due = ChangeRequest.objects.filter(
        state=RequestState.SCHEDULED.value, starts_at__lte=now, until__gt=now
    )
    rows = due.order_by("starts_at", "pk")[:_AT_ONCE]
    return sum(_each(request, lambda pk: _begin(pk, now)) for request in rows)


def _begin(pk: int, now: datetime) -> bool:
    try:
        confirmed = ChangeRequest.objects.values_list("confirmed", flat=True).get(pk=pk)
        start(pk, by=_by(), version=None, now=now, confirmed=confirmed or ())
    except KeyTaken:
        raise
    except TransitionDenied as denied:
        request = ChangeRequest.objects.get(pk=pk)
        with moving(pk, _by(), "hand_over", now=now, version=request.version) as step:
            step.act(RequestAction.HAND_OVER)
            step.note = step.request.outcome = (
                f"Its start has come, and the portal could not apply it: {denied}"
            )
        return False
    return True


def _each(request: ChangeRequest, act: Callable[[int], bool]) -> bool:
    try:
        return act(request.pk)
    # A person acted between the query and the lock; the next run sees the result.
    except (Conflict, TransitionDenied) as error:
        _LOG.info("quota request %d: %s", request.pk, error)
        return False


def _announce(pk: int, now: datetime) -> bool:
    """Announce the end of a raise, once for each time that `time_box` gives."""
    request = ChangeRequest.objects.get(pk=pk)
    due = _announced_by(request, now)
    if due <= request.announced or request.reverts_at is None or _is_superseded(request):
        return False
    back, end = goes_back_to(request), utc_words(request.reverts_at, now=now)
    with moving(pk, _by(), "announce_revert", now=now, version=request.version) as step:
        step.request.announced = due
        step.note = f"The quota goes back to {back} on {end}."
        if applied_by_commit(request):
            step.note = (
                f"The quota is to go back to {back} on {end}, by a commit that somebody has to "
                "make: the file for it is there then."
            )
    return True


def _announced_by(request: ChangeRequest, now: datetime) -> int:
    """Return how many announcements of a raise are to have been made by now.

    Counted and not compared by date: beat may have been away for several of them.
    """
    if request.until is None or request.applied_at is None or request.until <= request.applied_at:
        return 0
    box = time_box(request.until, applied_at=request.applied_at)
    return sum(at <= now for at in box.announcements) if box else 0


def _revert(pk: int, now: datetime) -> bool:
    try:
        revert(pk, by=_by(), now=now)
    except Superseded as superseded:
        _end_under(pk, superseded.later, now)
        return False
    except TransitionDenied as denied:
        # Another change of the key is being made, or writing is not allowed: looked at again later.
        _put_off(pk, str(denied), now)
        return False
    return True


def _is_superseded(request: ChangeRequest) -> bool:
    try:
        check_on_top(request)
    except Superseded:
        return True
    except TransitionDenied:
        return False
    return False


def _end_under(pk: int, later: ChangeRequest, now: datetime) -> None:
    """End a raise whose date has come while a later change stands: that one is left as it is."""
    request = ChangeRequest.objects.get(pk=pk)
    with moving(pk, _by(), "expire", now=now, version=request.version) as step:
        step.act(RequestAction.EXPIRE)
        step.request.reverts_at = None
        step.note = step.request.outcome = (
            f"Its end has come; request {later.pk} changed the quota since, to {later.after}, so "
            "that nothing was taken back."
        )


def _put_off(pk: int, why: str, now: datetime) -> None:
    request = ChangeRequest.objects.get(pk=pk)
    sentence = f"It could not be taken back on its date: {why}"
    if request.outcome == sentence:
        # Said once; only the time of the next try moves on.
        # By version and without a new one: a person's change of the same moment wins.
        ChangeRequest.objects.filter(pk=pk, version=request.version).update(
            reverts_at=now + TRY_AGAIN
        )
        return
    with moving(pk, _by(), "put_off_revert", now=now, version=request.version) as step:
        step.note = step.request.outcome = sentence
        step.request.reverts_at = now + TRY_AGAIN


def expire(*, now: datetime) -> int:
    """End requests whose time has passed; return how many.

    Their own end (`until`) is past, or they were not submitted, decided or carried out within the
    days that the site sets.
    """
    over = Q(until__lte=now, state__in=_NOT_APPLIED)
    for days, states in (
        (settings.REQUESTS_DAYS_DRAFT, [RequestState.DRAFT.value]),
        (settings.REQUESTS_DAYS_UNDECIDED, _UNDECIDED),
        (settings.REQUESTS_DAYS_APPROVED, [RequestState.APPROVED.value, RequestState.FAILED.value]),
    ):
        over |= Q(changed_at__lte=now - timedelta(days=days), state__in=states)
    rows = ChangeRequest.objects.filter(over).order_by("pk")[:_AT_ONCE]
    return sum(_each(request, lambda pk: _expire(pk, now)) for request in rows)


def _expire(pk: int, now: datetime) -> bool:
    request = ChangeRequest.objects.get(pk=pk)
    with moving(pk, _by(), "expire", now=now, version=request.version) as step:
        step.act(RequestAction.EXPIRE)
        passed = request.until is not None and request.until <= now
        why = "its end has passed" if passed else "no progress"
        step.note = step.request.outcome = f"Expired: {why}; nothing was changed."
    return True


def _by() -> Actor:
    return portal("beat")

"""What the deciding side does: take, give back, ask for changes, offer, approve, reject."""

from datetime import datetime

from apps.quota_requests.domain.states import RequestAction, RequestState
from apps.quota_requests.domain.targets import check_change, wanted_amount
from apps.quota_requests.models import Comment
from apps.quota_requests.permissions import Actor
from apps.quota_requests.services.evidence.known_quotas import reviewed, target_of_request
from apps.quota_requests.services.requests import LONGEST_TEXT, RequestRefused
from apps.quota_requests.services.transitions import Transition, moving


def take(pk: int, *, by: Actor, version: int, now: datetime) -> int:
    """Take a request for review: it cannot be edited from now on. Return its version.

    As all of these, raises UnknownRequest, Conflict and TransitionDenied.
    """
    with moving(pk, by, "take", now=now, version=version) as step:
        step.act(RequestAction.TAKE)
        step.request.reviewer = by.name
    return step.request.version


def release(pk: int, *, by: Actor, now: datetime, version: int | None = None) -> int:
    """Give a request back to the queue."""
    with moving(pk, by, "release", now=now, version=version) as step:
        step.act(RequestAction.RELEASE)
        step.request.reviewer = ""
    return step.request.version


def ask_changes(
    pk: int, text: str, *, by: Actor, now: datetime, offer: str = "", version: int | None = None
) -> int:
    """Send a request back to its author with a question, or an amount that would be approved.

    `offer` is a counter-offer, in the units of the key. Raises TargetRefused for an amount that
    the quota cannot have too.
    """
    kept = _said(text)
    with moving(pk, by, "counter_offer" if offer else "ask_changes", now=now, version=version) as s:
        s.act(RequestAction.ASK_CHANGES)
        _comment(s, kept, _offered(s, offer))
    return s.request.version


def approve(pk: int, *, by: Actor, version: int, now: datetime, note: str = "") -> int:
    """Approve a request as it was read; above the threshold the first of two approvals."""
    with moving(pk, by, "approve", now=now, version=version) as step:
        step.act(RequestAction.APPROVE)
        step.note = note.replace("\0", "").strip()[:LONGEST_TEXT]
        if step.request.state == RequestState.APPROVED.value:
            step.request.decided_at = now
    return step.request.version


def reject(pk: int, text: str, *, by: Actor, now: datetime, version: int | None = None) -> int:
    """Turn a request down, with the reason."""
    kept = _said(text)
    with moving(pk, by, "reject", now=now, version=version) as step:
        step.act(RequestAction.REJECT)
        step.request.decided_at, step.request.outcome = now, kept
        _comment(step, kept)
    return step.request.version


def reopen(pk: int, *, by: Actor, now: datetime, version: int | None = None) -> int:
    """Decide anew on a request that could not be carried out."""
    with moving(pk, by, "reopen", now=now, version=version) as step:
        step.act(RequestAction.REOPEN)
        step.request.reviewer, step.request.decided_at = by.name, None
    return step.request.version


def _said(text: str) -> str:
    kept = text.replace("\0", "").strip()
    if not kept or len(kept) > LONGEST_TEXT:
        raise RequestRefused(f"Say why, in 1 to {LONGEST_TEXT} characters.")
    return kept


def _offered(step: Transition, offer: str) -> str:
    if not offer:
        return ""
    amount = wanted_amount(target_of_request(step.request), offer)
    check_change(reviewed(step.request), amount)
    step.beside["offer"] = amount.text
    return amount.text


def _comment(step: Transition, text: str, offer: str = "") -> None:
    step.note = text
    Comment.objects.create(
        request=step.request, at=step.now, author=step.actor.name, text=text, offer=offer
    )

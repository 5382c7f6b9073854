"""Requests as authors and reviewers change them: created, submitted, approved, rejected."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from msgspec import Struct

from apps.accounts.domain.formats import utc_words
from apps.accounts.services import record
from apps.clusters.gateways import ClusterClients
from apps.quota_requests.domain.approval_policy import PolicyDecision
from apps.quota_requests.domain.quantities import Quantity, counted, quantity, stored
from apps.quota_requests.domain.snapshots import Evidence, ImpactPreview
from apps.quota_requests.domain.states import RequestAction, RequestState, TransitionDenied, moved
from apps.quota_requests.domain.targets import (
    TargetRefused,
    amount_for,
    check_change,
    wanted_amount,
)
from apps.quota_requests.models import TARGET, ChangeRequest, Comment
from apps.quota_requests.permissions import (
    Actor,
    check_comment,
    check_create,
    portal,
    transition_facts,
)
from apps.quota_requests.selectors.bookings import planned_for
from apps.quota_requests.selectors.requests import offer_of
from apps.quota_requests.services.approval_policy import check_still_small, decide_by_policy
from apps.quota_requests.services.evidence.impact import impact_of
from apps.quota_requests.services.evidence.known_quotas import (
    KnownQuota,
    known_quota,
    reviewed,
    target_of_request,
    team_asking,
)
from apps.quota_requests.services.evidence.snapshot import known_of_team
from apps.quota_requests.services.execution.orders import start
from apps.quota_requests.services.transitions import (
    Conflict,
    RequestTransition,
    audit_record,
    check_key_free,
    found,
    moving,
    note_authors,
)
from apps.quotas.domain.keys import QuotaRef

LONGEST_TEXT = 10_000
_TWICE_WITHIN = timedelta(minutes=30)
_LAST_YEAR = 2100


class RequestRefused(ValueError):
    """What is asked for cannot be taken; the message is for the person, `fix` what to do."""

    def __init__(self, reason: str, *, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


class RequestInput(Struct, frozen=True):
    """A request as a person writes it; `before` and `after` are amounts such as 8.

    `team` is needed where several teams use a queue. With `starts_at` it is a booking: the raise is
    applied then, and `until` is its end; `before` is the amount now, or that planned for its start.
    """

    ref: QuotaRef
    before: str
    after: str
    reason: str
    needed_by: datetime | None = None
    until: datetime | None = None
    starts_at: datetime | None = None
    team: str | None = None


class Edited(Struct, frozen=True):
    """What may be changed until it is taken for review; None leaves a thing as it is.

    `clear` names what is to be emptied: needed_by, until, starts_at.
    """

    before: str | None = None
    after: str | None = None
    reason: str | None = None
    needed_by: datetime | None = None
    until: datetime | None = None
    starts_at: datetime | None = None
    clear: frozenset[str] = frozenset()


def create(asked: RequestInput, *, by: Actor, now: datetime, once: bool = False) -> int:
    """Write a draft and return its number. Raises TargetRefused, RequestRefused, NotAllowed.

    `once`: the very same request, written by the same person a moment ago and not taken yet, is not
    written a second time; its number is returned.
    """
    request = written(asked, by=by, now=now)
    there = _written_already(request, now) if once else None
    if there is not None:
        return there
    _insert(request, by, now)
    return request.pk


def _written_already(request: ChangeRequest, now: datetime) -> int | None:
    """Return the request that a button pressed twice, or the way back, would double. One query."""
    names = (
        *TARGET,
        "team",
        "before",
        "after",
        "reason",
        "needed_by",
        "until",
        "starts_at",
        "changed_by",
    )
    same = {name: getattr(request, name) for name in names}
    states = [RequestState.DRAFT.value, RequestState.SUBMITTED.value]
    rows = ChangeRequest.objects.filter(
        **same, state__in=states, created_at__gt=now - _TWICE_WITHIN, created_at__lte=now
    )
    return rows.order_by("pk").values_list("pk", flat=True).first()


def written(asked: RequestInput, *, by: Actor, now: datetime) -> ChangeRequest:
    """Return a draft that is not kept yet. Raises as `create`."""
    known = known_quota(asked.ref, at=now, visibility=by.visibility)
    team = team_asking(known, asked.team, at=now)
    check_create(by, team.pk)
    starts_at = _start(asked.starts_at, now)
    before, after = _amounts(known, asked.before, asked.after)
    if starts_at is not None:
        before = _planned(asked.ref, before, after, starts_at).text
    needed_by, until = _day(asked.needed_by, now), _end(asked.until, starts_at or now)
    _check_order(needed_by, until)
    _check_booking(starts_at, until)
    return ChangeRequest(
        **known.columns,
        team=team,
        before=before,
        after=after,
        tiers=list(known.row.tiers) if known.row else [],
        reason=_reason(asked.reason),
        needed_by=needed_by,
        until=until,
        starts_at=starts_at,
        authors=[by.name],
        created_at=now,
        changed_at=now,
        changed_by=by.name,
        state_since=now,
        state_by=by.name,
    )


@transaction.atomic
def _insert(request: ChangeRequest, by: Actor, now: datetime) -> None:
    request.save()
    note_authors(request)
    record(by, "create", request.audit_subject, at=now, after=audit_record(request))


def edit(
    pk: int,
    edited: Edited,
    *,
    by: Actor,
    version: int,
    now: datetime,
    clients: ClusterClients | None = None,
) -> int:
    """Change a request that no reviewer has taken; return its new version.

    Of a submitted request evidence, preview and ruling are taken anew, for they were of another
    text. Raises UnknownRequest, Conflict where another writer was faster, TransitionDenied,
    TargetRefused, RequestRefused.
    """
    request = found(pk, by)
    # Refused before the cluster is asked; what counts is `act`, with the row locked.
    moved(transition_facts(request), RequestAction.EDIT, by.person)
    _take_over(request, edited, now)
    frozen = None
    if request.state == RequestState.SUBMITTED.value:
        frozen = _Frozen.of(request, now, clients)
    with moving(pk, by, "edit", now=now, version=version) as step:
        step.act(RequestAction.EDIT)
        _take_over(step.request, edited, now)
        if frozen is not None:
            frozen.write(step)
    if frozen is not None and frozen.ruling.by_rule:
        return _approve_by_rule(step, now)
    return step.request.version


def _take_over(request: ChangeRequest, edited: Edited, now: datetime) -> None:
    before = request.before if edited.before is None else edited.before
    after = request.after if edited.after is None else edited.after
    request.before, request.after = _checked(request, before, after)
    if edited.reason is not None:
        request.reason = _reason(edited.reason)
    if edited.needed_by is not None or "needed_by" in edited.clear:
        # A day that has passed since it was written may stay: the rest can still be put right.
        same = edited.needed_by == request.needed_by
        request.needed_by = request.needed_by if same else _day(edited.needed_by, now)
    if edited.until is not None or "until" in edited.clear:
        # The same moment, written in another zone, is no change.
        same = edited.until == request.until
        request.until = request.until if same else _end(edited.until, edited.starts_at or now)
    _take_over_start(request, edited, now)
    _check_order(request.needed_by, request.until)
    _check_booking(request.starts_at, request.until)


def _take_over_start(request: ChangeRequest, edited: Edited, now: datetime) -> None:
    if edited.starts_at is not None or "starts_at" in edited.clear:
        same = edited.starts_at == request.starts_at
        request.starts_at = request.starts_at if same else _start(edited.starts_at, now)
    if request.starts_at is not None:
        planned = _planned(request.ref, request.before, request.after, request.starts_at)
        request.before = planned.text


def _planned(ref: QuotaRef, before: str, after: str, start: datetime) -> Quantity:
    """Return the amount that a booking begins from; `before` may be the amount of now too."""
    now, wanted = quantity(before), quantity(after)
    planned = planned_for(ref, now, start)
    if wanted.nanos <= planned.nanos:
        raise RequestRefused(
            f"A booking raises a limit: {planned} is planned for its start.",
            fix=f"Choose more than {planned}, or leave the start empty.",
        )
    return planned


def _start(starts_at: datetime | None, now: datetime) -> datetime | None:
    if starts_at is None:
        return None
    _check_year(starts_at)
    if starts_at <= now:
        raise RequestRefused(
            "The start of a booking must lie ahead.", fix="Leave it empty to start when approved."
        )
    return starts_at.astimezone(UTC)


def _check_booking(starts_at: datetime | None, until: datetime | None) -> None:
    if starts_at is not None and until is None:
        raise RequestRefused("A booking needs its end.", fix="Say when it expires.")
    if starts_at is not None and until is not None and until <= starts_at:
        raise RequestRefused("It would end before it starts.", fix="Choose a later end.")


def _checked(request: ChangeRequest, before: str, after: str) -> tuple[str, str]:
    target = target_of_request(request)
    old, new = amount_for(target, before), wanted_amount(target, after)
    check_change(old, new)
    return old.text, new.text


def _amounts(known: KnownQuota, before: str, after: str) -> tuple[str, str]:
    old, new = amount_for(known.target, before), wanted_amount(known.target, after)
    check_change(old, new)
    # A key that is not watched now may have changed: the cluster itself is asked when it is
    # submitted.
    is_current = known.row is not None and not known.row.stale
    # As floats: the watch knows what is above 2^53 only roughly, and 2^63 − 1 is "no limit".
    if is_current and known.amount is not None and float(known.amount.units) != float(old.units):
        raise TargetRefused(
            f"{known.target} is {known.amount} now, not {old}.",
            fix=f"Request a change from {known.amount}.",
        )
    return old.text, new.text


def _reason(text: str) -> str:
    kept = text.replace("\0", "").strip()
    if not kept:
        raise RequestRefused("A request needs its reason.", fix="Say what the GPUs are for.")
    if len(kept) > LONGEST_TEXT:
        raise RequestRefused(f"A reason has {LONGEST_TEXT} characters at most.")
    return kept


def _day(needed_by: datetime | None, now: datetime) -> datetime | None:
    """Return the day something is needed by, in UTC as the audit has it; today is not too late."""
    if needed_by is None:
        return None
    _check_year(needed_by)
    if needed_by <= now - timedelta(days=1):
        raise RequestRefused(
            "The day it is needed by has passed.", fix="Leave it empty, or choose today or later."
        )
    return needed_by.astimezone(UTC)


def _check_order(needed_by: datetime | None, until: datetime | None) -> None:
    if needed_by is not None and until is not None and until <= needed_by:
        raise RequestRefused("It would end before it is needed.", fix="Choose a later end.")


def _end(until: datetime | None, now: datetime) -> datetime | None:
    if until is not None:
        _check_year(until)
    if until is not None and until <= now:
        raise RequestRefused("The end of a change must lie ahead.")
    most = settings.REQUESTS_MOST_DAYS
    if until is not None and most and until > now + timedelta(days=most):
        latest = utc_words(now + timedelta(days=most), now=now)
        raise RequestRefused(
            f"A change with an end holds {counted(most, 'day')} at most.",
            fix=f"Choose an end up to {latest}.",
        )
    return None if until is None else until.astimezone(UTC)


def _check_year(at: datetime) -> None:
    """Refuse a day that is a slip of the pen, and might not be there in another zone."""
    if at.year >= _LAST_YEAR:
        raise RequestRefused(
            f"The year {at.year} is too far off.", fix=f"Choose a day before {_LAST_YEAR}."
        )


# ---------------------------------------------------------------- submit


def submit(
    pk: int, *, by: Actor, version: int, now: datetime, clients: ClusterClients | None = None
) -> int:
    """Submit a request: evidence and preview are taken and frozen with it; return its version.

    Where a rule of the site approves it, it is approved and carried out at once. Raises
    UnknownRequest, Conflict, TransitionDenied, KeyTaken where another request for the key is open,
    and TargetRefused where the cluster shows another value by now.
    """
    request = found(pk, by)
    # Only to refuse early; what counts is `act`, with the row locked.
    moved(transition_facts(request), RequestAction.SUBMIT, by.person)
    _end(request.until, request.starts_at or now)
    check_key_free(request, by)
    frozen = _Frozen.of(request, now, clients)
    with moving(pk, by, "submit", now=now, version=version) as step:
        step.act(RequestAction.SUBMIT)
        frozen.write(step)
        step.request.submitted_at, step.request.decided_at = now, None
        step.request.reviewer, step.request.by_rule = "", False
        # What came of it before is in the record; of this submission nothing came yet.
        step.request.outcome = ""
    if frozen.ruling.by_rule:
        return _approve_by_rule(step, now)
    return step.request.version


class _Frozen(Struct, frozen=True):
    """The data stored with the text of a request from the moment of its submission."""

    preview: ImpactPreview
    evidence: Evidence
    ruling: PolicyDecision

    @classmethod
    def of(cls, request: ChangeRequest, now: datetime, clients: ClusterClients | None) -> "_Frozen":
        """Ask cluster and facts, before any lock: answers take seconds. Raises TargetRefused."""
        impact = impact_of(request, now=now, clients=clients)
        _check_as_reviewed(request, impact.preview)
        request.tiers = list(impact.preview.tiers)
        known = known_of_team(request, now=now)
        ruling = decide_by_policy(request, impact, known, now=now)
        return cls(impact.preview, known.evidence, ruling)

    def write(self, step: RequestTransition) -> None:
        request = step.request
        request.preview, request.evidence = stored(self.preview), stored(self.evidence)
        request.ruling, request.tiers = stored(self.ruling), list(self.preview.tiers)
        request.approvals_needed = self.ruling.approvals_needed
        step.extras.update(
            preview=request.preview, evidence=request.evidence, ruling=request.ruling
        )


def _check_as_reviewed(request: ChangeRequest, preview: ImpactPreview) -> None:
    if request.starts_at is not None:
        # What the cluster shows now is not what the booking begins from: at its start it is asked.
        return
    if preview.live is not None and quantity(preview.live) != quantity(request.before):
        raise TargetRefused(
            f"{target_of_request(request)} is {preview.live} now, not {request.before}.",
            fix=f"Edit the request: from {preview.live}.",
        )


def _approve_by_rule(submitted: RequestTransition, now: datetime) -> int:
    """Approve and start as the portal. A request that somebody took meanwhile is left to them."""
    request = submitted.request
    rule = portal("rule")
    try:
        # A transaction of its own: where the rule fails, the submission stands.
        with moving(request.pk, rule, "approve_by_rule", now=now, version=request.version) as step:
            # Under the lock: two small raises at once would together be a large one.
            check_still_small(step.request, now=now)
            step.act(RequestAction.APPROVE_BY_RULE)
            step.request.by_rule, step.request.decided_at = True, now
            if step.request.starts_at is not None:
                step.act(RequestAction.SCHEDULE, portal())
    except (Conflict, TransitionDenied):
        return request.version
    if step.request.starts_at is not None:
        return step.request.version
    try:
        return start(request.pk, by=rule, version=step.request.version, now=now)
    except TransitionDenied:
        # Nothing to write with, say: it stays approved, and people carry on.
        return step.request.version


def accept_offer(
    pk: int, *, by: Actor, version: int, now: datetime, clients: ClusterClients | None = None
) -> int:
    """Request what the reviewer offered instead, and submit it again; return its version.

    Raises as `edit` and `submit` do, and RequestRefused without an open offer.
    """
    request = found(pk, by)
    offer = offer_of(request, request.comments.order_by("at", "pk"))
    if not offer:
        raise RequestRefused("This request has no open counter-offer.")
    if offer != request.after:
        version = edit(pk, Edited(after=offer), by=by, version=version, now=now)
    return submit(pk, by=by, version=version, now=now, clients=clients)


def withdraw(pk: int, *, by: Actor, now: datetime, version: int | None = None) -> int:
    """Take a request back. Raises UnknownRequest, Conflict, TransitionDenied."""
    with moving(pk, by, "withdraw", now=now, version=version) as step:
        step.act(RequestAction.WITHDRAW)
        step.request.outcome = "Withdrawn; nothing was changed."
    return step.request.version


def comment(pk: int, text: str, *, by: Actor, now: datetime) -> int:
    """Say something of a request; the version stays. Raises UnknownRequest, NotAllowed."""
    kept = _required_text(text, "A comment has")
    with transaction.atomic():
        request = found(pk, by)
        check_comment(by, request)
        # Without a new version, so that a comment spoils no open form.
        row = Comment.objects.create(request=request, at=now, author=by.name, text=kept)
        record(by, "comment", request.audit_subject, at=now, after={"comment": row.pk}, note=kept)
    return row.pk


def take(pk: int, *, by: Actor, version: int, now: datetime) -> int:
    """Take a request for review: it cannot be edited from now on. Return its version.

    As all of these, raises UnknownRequest, Conflict and TransitionDenied.
    """
    with moving(pk, by, "take", now=now, version=version) as step:
        step.act(RequestAction.TAKE)
        step.request.reviewer = by.name
    return step.request.version


def release(pk: int, *, by: Actor, now: datetime, version: int | None = None) -> int:
    """Unassign a request."""
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
    kept = _required_text(text)
    with moving(pk, by, "counter_offer" if offer else "ask_changes", now=now, version=version) as s:
        s.act(RequestAction.ASK_CHANGES)
        _comment(s, kept, _offered(s, offer))
    return s.request.version


def approve(
    pk: int,
    *,
    by: Actor,
    version: int,
    now: datetime,
    note: str = "",
    confirmed: Collection[str] = (),
) -> int:
    """Approve a request as it was read; above the threshold the first of two approvals.

    A booking is applied at its start: `confirmed` are the owners of the limit whom the approver
    agrees to take it over from then, as in `start`.
    """
    with moving(pk, by, "approve", now=now, version=version) as step:
        step.act(RequestAction.APPROVE)
        step.note = note.replace("\0", "").strip()[:LONGEST_TEXT]
        if step.request.state == RequestState.APPROVED.value:
            step.request.decided_at = now
            if step.request.starts_at is not None:
                step.act(RequestAction.SCHEDULE, portal())
                step.request.confirmed = sorted(set(confirmed))
                step.extras["confirmed"] = step.request.confirmed
    return step.request.version


def reject(pk: int, text: str, *, by: Actor, now: datetime, version: int | None = None) -> int:
    """Reject a request, with the reason."""
    kept = _required_text(text)
    with moving(pk, by, "reject", now=now, version=version) as step:
        step.act(RequestAction.REJECT)
        step.request.decided_at, step.request.outcome = now, kept
        _comment(step, kept)
    return step.request.version


def reopen(pk: int, *, by: Actor, now: datetime, version: int | None = None) -> int:
    """Reopen a request that could not be applied."""
    with moving(pk, by, "reopen", now=now, version=version) as step:
        step.act(RequestAction.REOPEN)
        step.request.reviewer, step.request.decided_at = by.name, None
    return step.request.version


def _required_text(text: str, asked: str = "Say why, in") -> str:
    kept = text.replace("\0", "").strip()
    if not kept or len(kept) > LONGEST_TEXT:
        raise RequestRefused(f"{asked} 1 to {LONGEST_TEXT} characters.")
    return kept


def _offered(step: RequestTransition, offer: str) -> str:
    if not offer:
        return ""
    amount = wanted_amount(target_of_request(step.request), offer)
    check_change(reviewed(step.request), amount)
    step.extras["offer"] = amount.text
    return amount.text


def _comment(step: RequestTransition, text: str, offer: str = "") -> None:
    step.note = text
    Comment.objects.create(
        request=step.request, at=step.now, author=step.actor.name, text=text, offer=offer
    )

"""Moving a request from state to state: one lock, one check of the version, one audit entry."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from msgspec import Struct, field

from apps.accounts.domain.formats import utc_words
from apps.accounts.services import record
from apps.quota_requests.domain.quantities import moment
from apps.quota_requests.domain.states import RequestAction, TransitionDenied, moved
from apps.quota_requests.models import OPEN_STATES, WRITING_STATES, Author, ChangeRequest, same_key
from apps.quota_requests.permissions import Actor, seen_by, transition_facts
from apps.quotas.domain.keys import QuotaRef

_ALWAYS = frozenset({"cluster", "source", "namespace", "name", "key", "tiers", "state"})
"""Said in every entry, so that each can be read alone."""


class UnknownRequest(LookupError):
    """There is no such request, or the actor may not know of it."""


class Conflict(Exception):
    """Somebody changed the request since it was read; the message says who and when."""


class KeyTaken(TransitionDenied):
    """Another request for the same quota key is open; `number` is it.

    None for one that the actor may not know of: of a shared queue, say, by another team.
    """

    def __init__(self, number: int | None) -> None:
        which = f"Request {number}" if number else "Another request"
        super().__init__(f"{which} for the same quota key is open: one at a time.")
        self.number = number


class RequestTransition(Struct):
    """A locked request that is being changed; what `note` and `extras` say goes to the audit."""

    request: ChangeRequest
    actor: Actor
    now: datetime
    note: str = ""
    extras: dict[str, Any] = field(default_factory=dict)

    def act(self, action: RequestAction, actor: Actor | None = None) -> None:
        """Take the step in the table of states. Raises TransitionDenied."""
        who = self.actor if actor is None else actor
        after = moved(transition_facts(self.request), action, who.person)
        self.request.state = after.state.value
        self.request.authors = sorted(after.authors)
        self.request.approvals = list(after.approvals)


def found(pk: int, actor: Actor) -> ChangeRequest:
    """Return a request that the actor may know of. Raises UnknownRequest."""
    rows = ChangeRequest.objects.filter(seen_by(actor), pk=pk).select_related("cluster", "team")
    request = rows.first()
    if request is None:
        raise UnknownRequest(f"There is no quota request {pk}.")
    return request


@contextmanager
def moving(
    pk: int, actor: Actor, action: str, *, now: datetime, version: int | None = None
) -> Iterator[RequestTransition]:
    """Lock a request, let it be changed, and save it with its audit entry: one transaction.

    With `version` only if it was not changed since. Raises UnknownRequest, Conflict, KeyTaken and
    whatever is raised inside; then nothing is changed.
    """
    # Read inside and needed in `except`, when the failed transaction answers no query any more.
    ref = None
    try:
        with transaction.atomic():
            request = _locked(pk, actor)
            ref = request.ref
            if version is not None and version != request.version:
                raise Conflict(
                    f"{request.changed_by} changed this request on "
                    f"{utc_words(request.changed_at, now=now)}, after you opened it. Read it again."
                )
            before = audit_record(request)
            step = RequestTransition(request, actor, now)
            yield step
            _save(step, action, before)
    # The partial unique index decides who was first; a check beforehand could not.
    except IntegrityError as error:
        taken = ref and open_request(ref, [*OPEN_STATES, *WRITING_STATES], but=pk)
        if taken is None:
            raise
        raise KeyTaken(_if_known(taken, actor)) from error


def _locked(pk: int, actor: Actor) -> ChangeRequest:
    # Only the request: locking its cluster and team too would block all others of these.
    rows = ChangeRequest.objects.select_for_update(of=("self",)).select_related("cluster", "team")
    request = rows.filter(seen_by(actor), pk=pk).first()
    if request is None:
        raise UnknownRequest(f"There is no quota request {pk}.")
    return request


def _save(step: RequestTransition, action: str, before: Mapping[str, Any]) -> None:
    request = step.request
    request.version += 1
    request.changed_at, request.changed_by = step.now, step.actor.name
    if request.state != before["state"]:
        request.state_since, request.state_by = step.now, step.actor.name
    request.save()
    note_authors(request)
    after = {**audit_record(request), **step.extras}
    # Only what changed, since the audit is read by people and kept for good.
    changed = {k for k in {*before, *after} if k in _ALWAYS or before.get(k) != after.get(k)}
    record(
        step.actor,
        action,
        request.audit_subject,
        at=step.now,
        before={k: v for k, v in before.items() if k in changed},
        after={k: v for k, v in after.items() if k in changed},
        note=step.note,
    )


def note_authors(request: ChangeRequest) -> None:
    """Keep the table by which a person's requests are found in step with the request."""
    rows = [Author(request=request, username=name) for name in request.authors]
    Author.objects.bulk_create(rows, ignore_conflicts=True)


def audit_record(request: ChangeRequest) -> dict[str, Any]:
    """Return what the audit says of a request: no floats, times as text."""
    return {
        "cluster": request.cluster.name,
        "team": request.team.name,
        "source": request.source,
        "namespace": request.namespace,
        "name": request.name,
        "key": request.key,
        "from": request.before,
        "to": request.after,
        "tiers": list(request.tiers),
        "reason": request.reason,
        "needed_by": moment(request.needed_by),
        "until": moment(request.until),
        "starts_at": moment(request.starts_at),
        "state": request.state,
        "authors": list(request.authors),
        "approvals": list(request.approvals),
        "approvals_needed": request.approvals_needed,
        "reviewer": request.reviewer,
        "version": request.version,
    }


def open_request(ref: QuotaRef, states: Sequence[str], *, but: int) -> int | None:
    """Return another request for a quota key that is in one of these states. One query.

    A booking stands in the way only while it is being written.
    """
    blocking = Q(starts_at__isnull=True) | Q(state__in=WRITING_STATES)
    rows = ChangeRequest.objects.filter(blocking, same_key(ref), state__in=states).exclude(pk=but)
    return rows.order_by("pk").values_list("pk", flat=True).first()


def check_key_free(request: ChangeRequest, by: Actor) -> None:
    """Raise KeyTaken where another request is open for the key. Two queries at most.

    What counts is the constraint of the database, at the end; this is to say so in good time.
    """
    if request.starts_at is not None:
        return
    taken = open_request(request.ref, OPEN_STATES, but=request.pk)
    if taken is not None:
        raise KeyTaken(_if_known(taken, by))


def _if_known(pk: int, actor: Actor) -> int | None:
    """Return the number of a request that the actor may know of, else None. One query."""
    return pk if ChangeRequest.objects.filter(seen_by(actor), pk=pk).exists() else None

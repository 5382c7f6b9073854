"""The states of a request as a table: from where, by what, to where, and who may.

The docs show the same table. Roles are relations to one request, because
the same person may be author here and reviewer there.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from apps.accounts.domain.structs import replace


class RequestState(StrEnum):
    # In rows, in the audit and in the API: never to be renamed.
    DRAFT = "draft"
    SUBMITTED = "submitted"
    IN_REVIEW = "in review"
    CHANGES_ASKED = "changes asked"
    APPROVED = "approved"
    SCHEDULED = "scheduled"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    APPLYING = "applying"
    APPLIED = "applied"
    FAILED = "failed"
    REVERTING = "reverting"
    REVERTED = "reverted"
    EXPIRED = "expired"


FINAL: Final = frozenset(
    {RequestState.REJECTED, RequestState.WITHDRAWN, RequestState.REVERTED, RequestState.EXPIRED}
)
"""States without a way out; APPLIED may stay for good, but can be reverted."""

WRITING: Final = frozenset({RequestState.APPLYING, RequestState.REVERTING})
"""States in which the cluster is being changed: one request at a time for a quota key."""

OPEN: Final = (
    frozenset(RequestState)
    - FINAL
    - {
        RequestState.DRAFT,
        RequestState.SCHEDULED,
        RequestState.APPLIED,
        RequestState.REVERTING,
    }
)
"""States in which a request is asked for: one at a time for a quota key.

A draft has no effect yet, so that a forgotten one blocks no other. A raise that reverts on its date
depends on no further request: it does not belong here either. Bookings have a time of their own:
they neither block nor are blocked, whatever their state.
"""


class RequestAction(StrEnum):
    EDIT = "edit"
    SUBMIT = "submit"
    WITHDRAW = "withdraw"
    TAKE = "take"
    RELEASE = "release"
    ASK_CHANGES = "ask_changes"
    APPROVE = "approve"
    APPROVE_BY_RULE = "approve_by_rule"
    SCHEDULE = "schedule"
    HAND_OVER = "hand_over"
    REJECT = "reject"
    APPLY = "apply"
    CONFIRM_APPLIED = "confirm_applied"
    SEND_BACK = "send_back"
    FAIL = "fail"
    REOPEN = "reopen"
    REVERT = "revert"
    CONFIRM_REVERTED = "confirm_reverted"
    STOP_REVERT = "stop_revert"
    EXPIRE = "expire"


class ActorRole(StrEnum):
    """Relations of a person to a request; SYSTEM is the portal itself, never a person.

    AUTHOR is everybody who wrote or edited it and still leads the team or is a platform admin.
    REVIEWER is a platform admin who never wrote or edited it.
    """

    AUTHOR = "author"
    LEAD = "lead of the team"
    REVIEWER = "reviewer"
    SYSTEM = "portal"


class Transition(Struct, frozen=True):
    """One row of the table; `why` is the sentence of the docs."""

    start: RequestState
    action: RequestAction
    end: RequestState
    who: frozenset[ActorRole]
    why: str


def _rows(
    starts: Iterable[RequestState],
    action: RequestAction,
    end: RequestState | None,
    who: Iterable[ActorRole],
    why: str,
) -> list[Transition]:
    return [Transition(s, action, s if end is None else end, frozenset(who), why) for s in starts]


_EDITABLE: Final = (RequestState.DRAFT, RequestState.SUBMITTED, RequestState.CHANGES_ASKED)
_UNDECIDED: Final = (RequestState.SUBMITTED, RequestState.IN_REVIEW, RequestState.CHANGES_ASKED)
_DECIDED: Final = (RequestState.APPROVED, RequestState.SCHEDULED)
_OWN: Final = (ActorRole.AUTHOR, ActorRole.LEAD)

TABLE: Final[tuple[Transition, ...]] = (
    *_rows(_EDITABLE, RequestAction.EDIT, None, _OWN, "until it is taken for review"),
    *_rows(
        [RequestState.DRAFT, RequestState.CHANGES_ASKED],
        RequestAction.SUBMIT,
        RequestState.SUBMITTED,
        _OWN,
        "evidence and preview are frozen with it",
    ),
    *_rows(
        [RequestState.DRAFT, *_UNDECIDED, *_DECIDED, RequestState.FAILED],
        RequestAction.WITHDRAW,
        RequestState.WITHDRAWN,
        _OWN,
        "no longer wanted; nothing was changed",
    ),
    *_rows(
        [RequestState.SUBMITTED],
        RequestAction.TAKE,
        RequestState.IN_REVIEW,
        [ActorRole.REVIEWER],
        "someone looks at it",
    ),
    *_rows(
        [RequestState.IN_REVIEW],
        RequestAction.RELEASE,
        RequestState.SUBMITTED,
        [ActorRole.REVIEWER],
        "unassigned",
    ),
    *_rows(
        [RequestState.IN_REVIEW],
        RequestAction.ASK_CHANGES,
        RequestState.CHANGES_ASKED,
        [ActorRole.REVIEWER],
        "with a question or a counter-offer",
    ),
    *_rows(
        [RequestState.IN_REVIEW],
        RequestAction.APPROVE,
        RequestState.IN_REVIEW,
        [ActorRole.REVIEWER],
        "the first of two approvals, above the threshold",
    ),
    *_rows(
        [RequestState.IN_REVIEW],
        RequestAction.APPROVE,
        RequestState.APPROVED,
        [ActorRole.REVIEWER],
        "never by an author",
    ),
    *_rows(
        [RequestState.SUBMITTED],
        RequestAction.APPROVE_BY_RULE,
        RequestState.APPROVED,
        [ActorRole.SYSTEM],
        "small and within fair share and budget, where the rule is on",
    ),
    *_rows(
        [RequestState.APPROVED],
        RequestAction.SCHEDULE,
        RequestState.SCHEDULED,
        [ActorRole.SYSTEM],
        "a booking: it is applied at its start",
    ),
    *_rows(
        [RequestState.SCHEDULED],
        RequestAction.APPLY,
        RequestState.APPLYING,
        [ActorRole.SYSTEM],
        "its start has come",
    ),
    *_rows(
        [RequestState.SCHEDULED],
        RequestAction.HAND_OVER,
        RequestState.APPROVED,
        [ActorRole.SYSTEM],
        "its start has come, and the portal may not write: people apply it",
    ),
    *_rows(
        [RequestState.IN_REVIEW],
        RequestAction.REJECT,
        RequestState.REJECTED,
        [ActorRole.REVIEWER],
        "with the reason",
    ),
    *_rows(
        [RequestState.APPROVED, RequestState.FAILED],
        RequestAction.APPLY,
        RequestState.APPLYING,
        [ActorRole.REVIEWER, ActorRole.SYSTEM],
        "the approval is what is carried out",
    ),
    *_rows(
        [RequestState.APPLYING],
        RequestAction.CONFIRM_APPLIED,
        RequestState.APPLIED,
        [ActorRole.SYSTEM],
        "the cluster showed the new value",
    ),
    *_rows(
        [RequestState.APPLYING],
        RequestAction.SEND_BACK,
        RequestState.IN_REVIEW,
        [ActorRole.SYSTEM],
        "the cluster no longer showed the reviewed value; nothing was changed",
    ),
    *_rows(
        [RequestState.APPLYING],
        RequestAction.FAIL,
        RequestState.FAILED,
        [ActorRole.SYSTEM],
        "nothing was changed; the record says why",
    ),
    *_rows(
        [RequestState.SCHEDULED, RequestState.FAILED],
        RequestAction.REOPEN,
        RequestState.IN_REVIEW,
        [ActorRole.REVIEWER],
        "decided anew",
    ),
    *_rows(
        [RequestState.APPLIED],
        RequestAction.REVERT,
        RequestState.REVERTING,
        [ActorRole.REVIEWER, ActorRole.SYSTEM],
        "by hand, or on the date of a time-boxed raise",
    ),
    *_rows(
        [RequestState.REVERTING],
        RequestAction.CONFIRM_REVERTED,
        RequestState.REVERTED,
        [ActorRole.SYSTEM],
        "the cluster showed the old value again",
    ),
    *_rows(
        [RequestState.REVERTING],
        RequestAction.STOP_REVERT,
        RequestState.APPLIED,
        [ActorRole.SYSTEM],
        "not possible now; the raised value stands and the record says why",
    ),
    *_rows(
        [RequestState.DRAFT, *_UNDECIDED, *_DECIDED, RequestState.FAILED],
        RequestAction.EXPIRE,
        RequestState.EXPIRED,
        [ActorRole.SYSTEM],
        "its time has passed; nothing was changed",
    ),
    *_rows(
        [RequestState.APPLIED],
        RequestAction.EXPIRE,
        RequestState.EXPIRED,
        [ActorRole.SYSTEM],
        "its end has come while a later change stands; nothing is taken back",
    ),
)


class TransitionDenied(Exception):
    """An action is not possible now, or not for this person; the message says why."""


class ActingPerson(Struct, frozen=True):
    """Who acts. `admin`: a platform admin."""

    name: str
    admin: bool = False


class TransitionFacts(Struct, frozen=True):
    """Where a request stands: its state, whose it is and who has approved it.

    `authors` are all who wrote or edited it; `leads` lead its team now. `approvals` are of the
    text as it is: an edit or a return to the author voids them.
    """

    state: RequestState
    authors: frozenset[str]
    leads: frozenset[str] = frozenset()
    approvals: tuple[str, ...] = ()
    approvals_needed: int = 1


def relations(standing: TransitionFacts, person: ActingPerson | None) -> frozenset[ActorRole]:
    """Return what a person is to a request; None is the portal itself."""
    if person is None:
        return frozenset({ActorRole.SYSTEM})
    found = set()
    wrote, leads = person.name in standing.authors, person.name in standing.leads
    # Who no longer leads the team has no say in its requests, written by them or not.
    if wrote and (leads or person.admin):
        found.add(ActorRole.AUTHOR)
    # One edit makes an admin an author, and no author decides on their own words.
    if person.admin and not wrote:
        found.add(ActorRole.REVIEWER)
    if leads:
        found.add(ActorRole.LEAD)
    return frozenset(found)


def moved(
    standing: TransitionFacts, action: RequestAction, person: ActingPerson | None
) -> TransitionFacts:
    """Return the standing after `action`. Raises TransitionDenied with the reason."""
    rows = [row for row in TABLE if row.start is standing.state and row.action is action]
    if not rows:
        raise TransitionDenied(_not_now(standing.state, action))
    row = _chosen(rows, standing)
    if not row.who & relations(standing, person):
        raise TransitionDenied(_not_you(row, standing, person))
    if person is not None and action is RequestAction.APPROVE and person.name in standing.approvals:
        raise TransitionDenied("You have approved this already; a second person has to.")
    if action is RequestAction.APPROVE_BY_RULE and standing.approvals_needed > 1:
        raise TransitionDenied("No rule approves what two people have to decide on.")
    return _after(standing, row, person)


def allowed(standing: TransitionFacts, person: ActingPerson | None) -> tuple[RequestAction, ...]:
    """Return what a person may do now, in the order of the table."""
    found = []
    for action in RequestAction:
        # Tried and not worked out again, so that pages offer exactly what `moved` lets pass.
        try:
            moved(standing, action, person)
        except TransitionDenied:
            continue
        found.append(action)
    return tuple(found)


def _chosen(rows: list[Transition], standing: TransitionFacts) -> Transition:
    """Of two rows for one action the last approval that is needed takes the later one."""
    enough = len(standing.approvals) + 1 >= standing.approvals_needed
    # The table lists the row that stays in review first, the one that approves last.
    return rows[-1] if enough else rows[0]


def _after(
    standing: TransitionFacts, row: Transition, person: ActingPerson | None
) -> TransitionFacts:
    approvals = standing.approvals
    authors = standing.authors
    if row.action is RequestAction.APPROVE and person is not None:
        approvals = (*approvals, person.name)
    # What comes back may have another text by now, and earlier approvals were of the old one.
    elif row.end in (RequestState.IN_REVIEW, RequestState.CHANGES_ASKED, RequestState.SUBMITTED):
        approvals = ()
    if row.action is RequestAction.EDIT and person is not None:
        # An editor can no longer review it.
        authors = authors | {person.name}
    return replace(standing, state=row.end, approvals=approvals, authors=authors)


_PARTICIPLES: Final = {
    RequestAction.APPROVE_BY_RULE: "approved by rule",
    RequestAction.TAKE: "taken for review",
    RequestAction.RELEASE: "unassigned",
    RequestAction.ASK_CHANGES: "returned with questions",
    RequestAction.EDIT: "edited",
    RequestAction.SUBMIT: "submitted",
    RequestAction.WITHDRAW: "withdrawn",
    RequestAction.APPROVE: "approved",
    RequestAction.SCHEDULE: "scheduled",
    RequestAction.HAND_OVER: "handed over",
    RequestAction.REJECT: "rejected",
    RequestAction.APPLY: "applied",
    RequestAction.CONFIRM_APPLIED: "recorded as applied",
    RequestAction.SEND_BACK: "sent back to review",
    RequestAction.FAIL: "recorded as failed",
    RequestAction.REOPEN: "reopened",
    RequestAction.REVERT: "reverted",
    RequestAction.CONFIRM_REVERTED: "recorded as reverted",
    RequestAction.STOP_REVERT: "recorded as not reverted",
    RequestAction.EXPIRE: "expired",
}
"""What cannot be done, as refusals say it."""
AUDIT_WORDS: Final[Mapping[str, str]] = {
    **{action.value: words for action, words in _PARTICIPLES.items()},
    # A worker goes on with these, so the person's act is only their beginning.
    "apply": "apply started",
    "revert": "revert started",
    "create": "created",
    "accept_offer": "offer accepted",
    "release": "unassigned",
    "ask_changes": "changes requested",
    "counter_offer": "another amount offered",
    "give_up": "given up",
    "accept_drift": "cluster value accepted",
    "comment": "commented",
    "confirm_applied": "applied",
    "fail": "could not be applied",
    "confirm_reverted": "reverted",
    "stop_revert": "not reverted",
    "put_off_revert": "revert postponed",
    "announce_revert": "end announced",
    "drift": "differs from the cluster",
    "drift_ended": "matches the cluster again",
}
"""What the audit names, in words: actions, and what the portal does by itself."""


def _not_now(state: RequestState, action: RequestAction) -> str:
    return f"A request that is {state.value} cannot be {_PARTICIPLES[action]}."


def _not_you(row: Transition, standing: TransitionFacts, person: ActingPerson | None) -> str:
    who = " or ".join(sorted(who.value for who in row.who))
    if person is not None and person.name in standing.authors and ActorRole.REVIEWER in row.who:
        done = f"{_PARTICIPLES[row.action]} by a {who}"
        return f"Authors never decide on their own request; it can be {done}."
    return f"Only the {who} may do this: the request cannot be {_PARTICIPLES[row.action]} by you."

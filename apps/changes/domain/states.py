"""The states of a request as a table: from where, by what, to where, and who may.

The diagram in the docs is made from the same table. Roles are relations to one request, because
the same person may be author here and reviewer there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class State(StrEnum):
    DRAFT = "draft"
    SUBMITTED = "submitted"
    IN_REVIEW = "in review"
    CHANGES_ASKED = "changes asked"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    APPLYING = "applying"
    APPLIED = "applied"
    FAILED = "failed"
    REVERTING = "reverting"
    REVERTED = "reverted"
    EXPIRED = "expired"


FINAL: Final = frozenset({State.REJECTED, State.WITHDRAWN, State.REVERTED, State.EXPIRED})
"""States without a way out; APPLIED may stay for good, but can be reverted."""

WRITING: Final = frozenset({State.APPLYING, State.REVERTING})
"""States in which the cluster is being changed: one request at a time for a quota key."""

OPEN: Final = frozenset(State) - FINAL - {State.DRAFT, State.APPLIED, State.REVERTING}
"""States in which a request is asked for: one at a time for a quota key.

A draft asks for nothing yet, so that a forgotten one blocks nobody. A raise that goes back on its
date waits for no one who asks for more: it does not belong here either.
"""


class Action(StrEnum):
    EDIT = "edit"
    SUBMIT = "submit"
    WITHDRAW = "withdraw"
    TAKE = "take"
    RELEASE = "release"
    ASK_CHANGES = "ask_changes"
    APPROVE = "approve"
    APPROVE_BY_RULE = "approve_by_rule"
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


class Who(StrEnum):
    """Relations of a person to a request; SYSTEM is the portal itself, never a person.

    AUTHOR is everybody who wrote or edited it and still leads the team or is a platform admin.
    REVIEWER is a platform admin who never wrote or edited it.
    """

    AUTHOR = "author"
    LEAD = "lead of the team"
    REVIEWER = "reviewer"
    SYSTEM = "portal"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table; `why` is the sentence of the docs."""

    start: State
    action: Action
    end: State
    who: frozenset[Who]
    why: str


def _rows(
    starts: Iterable[State], action: Action, end: State | None, who: Iterable[Who], why: str
) -> list[Transition]:
    return [Transition(s, action, s if end is None else end, frozenset(who), why) for s in starts]


_EDITABLE: Final = (State.DRAFT, State.SUBMITTED, State.CHANGES_ASKED)
_UNDECIDED: Final = (State.SUBMITTED, State.IN_REVIEW, State.CHANGES_ASKED)
_OWN: Final = (Who.AUTHOR, Who.LEAD)

TABLE: Final[tuple[Transition, ...]] = (
    *_rows(_EDITABLE, Action.EDIT, None, _OWN, "until it is taken for review"),
    *_rows(
        [State.DRAFT, State.CHANGES_ASKED],
        Action.SUBMIT,
        State.SUBMITTED,
        _OWN,
        "evidence and preview are frozen with it",
    ),
    *_rows(
        [State.DRAFT, *_UNDECIDED, State.APPROVED, State.FAILED],
        Action.WITHDRAW,
        State.WITHDRAWN,
        _OWN,
        "no longer wanted; nothing was changed",
    ),
    *_rows([State.SUBMITTED], Action.TAKE, State.IN_REVIEW, [Who.REVIEWER], "someone looks at it"),
    *_rows(
        [State.IN_REVIEW],
        Action.RELEASE,
        State.SUBMITTED,
        [Who.REVIEWER],
        "given back to the queue",
    ),
    *_rows(
        [State.IN_REVIEW],
        Action.ASK_CHANGES,
        State.CHANGES_ASKED,
        [Who.REVIEWER],
        "with a question or a counter-offer",
    ),
    *_rows(
        [State.IN_REVIEW],
        Action.APPROVE,
        State.IN_REVIEW,
        [Who.REVIEWER],
        "the first of two approvals, above the threshold",
    ),
    *_rows(
        [State.IN_REVIEW],
        Action.APPROVE,
        State.APPROVED,
        [Who.REVIEWER],
        "never by an author",
    ),
    *_rows(
        [State.SUBMITTED],
        Action.APPROVE_BY_RULE,
        State.APPROVED,
        [Who.SYSTEM],
        "small and within fair share and budget, where the rule is on",
    ),
    *_rows([State.IN_REVIEW], Action.REJECT, State.REJECTED, [Who.REVIEWER], "with the reason"),
    *_rows(
        [State.APPROVED, State.FAILED],
        Action.APPLY,
        State.APPLYING,
        [Who.REVIEWER, Who.SYSTEM],
        "the approval is what is carried out",
    ),
    *_rows(
        [State.APPLYING],
        Action.CONFIRM_APPLIED,
        State.APPLIED,
        [Who.SYSTEM],
        "the cluster showed the new value",
    ),
    *_rows(
        [State.APPLYING],
        Action.SEND_BACK,
        State.IN_REVIEW,
        [Who.SYSTEM],
        "the cluster no longer showed the reviewed value; nothing was changed",
    ),
    *_rows(
        [State.APPLYING],
        Action.FAIL,
        State.FAILED,
        [Who.SYSTEM],
        "nothing was changed; the record says why",
    ),
    *_rows([State.FAILED], Action.REOPEN, State.IN_REVIEW, [Who.REVIEWER], "decided anew"),
    *_rows(
        [State.APPLIED],
        Action.REVERT,
        State.REVERTING,
        [Who.REVIEWER, Who.SYSTEM],
        "by hand, or on the date of a time-boxed raise",
    ),
    *_rows(
        [State.REVERTING],
        Action.CONFIRM_REVERTED,
        State.REVERTED,
        [Who.SYSTEM],
        "the cluster showed the old value again",
    ),
    *_rows(
        [State.REVERTING],
        Action.STOP_REVERT,
        State.APPLIED,
        [Who.SYSTEM],
        "not possible now; the raised value stands and the record says why",
    ),
    *_rows(
        [State.DRAFT, *_UNDECIDED, State.APPROVED, State.FAILED],
        Action.EXPIRE,
        State.EXPIRED,
        [Who.SYSTEM],
        "its time has passed; nothing was changed",
    ),
    *_rows(
        [State.APPLIED],
        Action.EXPIRE,
        State.EXPIRED,
        [Who.SYSTEM],
        "its end has come while a later change stands; nothing is taken back",
    ),
)


class TransitionDenied(Exception):
    """An action is not possible now, or not for this person; the message says why."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who acts. `admin`: a platform admin."""

    name: str
    admin: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a request stands: its state, whose it is and who has approved it.

    `authors` are all who wrote or edited it; `leads` lead its team now. `approvals` are of the
    text as it is: an edit or a return to the author voids them.
    """

    state: State
    authors: frozenset[str]
    leads: frozenset[str] = frozenset()
    approvals: tuple[str, ...] = ()
    approvals_needed: int = 1


def relations(standing: Standing, person: Person | None) -> frozenset[Who]:
    """Return what a person is to a request; None is the portal itself."""
    if person is None:
        return frozenset({Who.SYSTEM})
    found = set()
    wrote, leads = person.name in standing.authors, person.name in standing.leads
    if wrote and (leads or person.admin):
        found.add(Who.AUTHOR)
    if person.admin and not wrote:
        found.add(Who.REVIEWER)
    if leads:
        found.add(Who.LEAD)
    return frozenset(found)


def moved(standing: Standing, action: Action, person: Person | None) -> Standing:
    """Return the standing after `action`. Raises TransitionDenied with the reason."""
    rows = [row for row in TABLE if row.start is standing.state and row.action is action]
    if not rows:
        raise TransitionDenied(_not_now(standing.state, action))
    row = _chosen(rows, standing)
    if not row.who & relations(standing, person):
        raise TransitionDenied(_not_you(row, standing, person))
    if person is not None and action is Action.APPROVE and person.name in standing.approvals:
        raise TransitionDenied("You have approved this already; a second person has to.")
    if action is Action.APPROVE_BY_RULE and standing.approvals_needed > 1:
        raise TransitionDenied("No rule approves what two people have to decide on.")
    return _after(standing, row, person)


def allowed(standing: Standing, person: Person | None) -> tuple[Action, ...]:
    """Return what a person may do now, in the order of the table."""
    found = []
    for action in Action:
        try:
            moved(standing, action, person)
        except TransitionDenied:
            continue
        found.append(action)
    return tuple(found)


def _chosen(rows: list[Transition], standing: Standing) -> Transition:
    """Of two rows for one action the last approval that is needed takes the later one."""
    enough = len(standing.approvals) + 1 >= standing.approvals_needed
    return rows[-1] if enough else rows[0]


def _after(standing: Standing, row: Transition, person: Person | None) -> Standing:
    approvals = standing.approvals
    authors = standing.authors
    if row.action is Action.APPROVE and person is not None:
        approvals = (*approvals, person.name)
    elif row.end in (State.IN_REVIEW, State.CHANGES_ASKED, State.SUBMITTED):
        approvals = ()
    if row.action is Action.EDIT and person is not None:
        authors = authors | {person.name}
    return replace(standing, state=row.end, approvals=approvals, authors=authors)


_DOING: Final = {
    Action.APPROVE_BY_RULE: "approved by rule",
    Action.TAKE: "taken for review",
    Action.RELEASE: "given back",
    Action.ASK_CHANGES: "returned with questions",
    Action.EDIT: "edited",
    Action.SUBMIT: "submitted",
    Action.WITHDRAW: "withdrawn",
    Action.APPROVE: "approved",
    Action.REJECT: "rejected",
    Action.APPLY: "applied",
    Action.CONFIRM_APPLIED: "recorded as applied",
    Action.SEND_BACK: "sent back to review",
    Action.FAIL: "recorded as failed",
    Action.REOPEN: "opened again",
    Action.REVERT: "reverted",
    Action.CONFIRM_REVERTED: "recorded as reverted",
    Action.STOP_REVERT: "recorded as not reverted",
    Action.EXPIRE: "expired",
}


def _not_now(state: State, action: Action) -> str:
    return f"A request that is {state.value} cannot be {_DOING[action]}."


def _not_you(row: Transition, standing: Standing, person: Person | None) -> str:
    who = " or ".join(sorted(who.value for who in row.who))
    if person is not None and person.name in standing.authors and Who.REVIEWER in row.who:
        return (
            f"Who wrote a request never decides on it; it can be {_DOING[row.action]} by a {who}."
        )
    return f"Only the {who} may do this: the request cannot be {_DOING[row.action]} by you."


def diagram() -> str:
    """Return the table as a Mermaid state diagram, for the docs."""
    names = {state: state.value.replace(" ", "_") for state in State}
    arrows: dict[tuple[State, State], list[str]] = {}
    for row in TABLE:
        who = ", ".join(sorted(who.value for who in row.who))
        label = f"{row.action.value.replace('_', ' ')} ({who})"
        arrows.setdefault((row.start, row.end), []).append(label)
    lines = ["stateDiagram-v2", "    [*] --> draft"]
    lines += [f'    state "{s.value}" as {names[s]}' for s in State if " " in s.value]
    lines += [
        f"    {names[start]} --> {names[end]}: {' / '.join(labels)}"
        for (start, end), labels in arrows.items()
    ]
    lines += [f"    {names[state]} --> [*]" for state in State if state in FINAL | {State.APPLIED}]
    return "\n".join(lines) + "\n"


def rows() -> list[tuple[str, str, str, str, str]]:
    """Return the table as text: from, action, to, who may, why."""
    return [
        (
            row.start.value,
            row.action.value.replace("_", " "),
            row.end.value,
            ", ".join(sorted(who.value for who in row.who)),
            row.why,
        )
        for row in TABLE
    ]

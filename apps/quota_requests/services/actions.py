"""What people do with a request: pages and the API derive from here.

Who may do what in which state is the table of `domain.states`; `selectors.request_detail` names
what a reader may do now. Editing is not here: it has a form of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from apps.accounts.domain.identity import TokenScope
from apps.quota_requests.domain.states import RequestAction
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors.rows import RequestExtra
from apps.quota_requests.services import requests
from apps.quota_requests.services.execution.drift import accept_drift, give_up
from apps.quota_requests.services.execution.orders import revert, start
from apps.quota_requests.services.requests import accept_offer, comment, submit, withdraw


class ActionTakes(StrEnum):
    """What is given with an action beside the version of the request."""

    NOTHING = "nothing"
    NOTE = "a text, if any"
    REASON = "a text"
    OFFER = "a text and an amount, if any"
    WAY = "whether by commit"
    OWNERS = "whether by commit, and whose limit is taken over"


@dataclass(frozen=True, slots=True)
class ActionInput:
    """What somebody gives with an action; `version` is of the request as they read it."""

    version: int = -1
    text: str = ""
    offer: str = ""
    gitops: bool | None = None
    confirmed: tuple[str, ...] = ()


ActionMethod = Callable[[int, ActionInput, dict[str, Any]], object]
"""Does it: number of the request, what is given, and who acts when on which version."""


@dataclass(frozen=True, slots=True)
class Action:
    """`label` is of its button, `summary` of the API.

    `text` labels what is said with it. One that is not `versioned` leaves the text of the request
    as it is. `asks`: the page asks once more.
    """

    name: str
    label: str
    summary: str
    scope: TokenScope
    method: ActionMethod
    takes: ActionTakes = ActionTakes.NOTHING
    text: str = ""
    hint: str = ""
    versioned: bool = True
    primary: bool = False
    asks: bool = False

    @property
    def text_needed(self) -> bool:
        return self.takes in (ActionTakes.REASON, ActionTakes.OFFER)

    @property
    def is_plain(self) -> bool:
        """Whether a button alone does it."""
        return self.takes is ActionTakes.NOTHING and not self.asks

    def does(self, pk: int, given: ActionInput, *, by: Actor, now: datetime) -> object:
        """Do it; raises what the service raises."""
        how: dict[str, Any] = {"by": by, "now": now}
        if self.versioned:
            how["version"] = given.version
        return self.method(pk, given, how)


_ALL = (
    Action(
        RequestExtra.ACCEPT_OFFER,
        "Accept the offer",
        "Accept the reviewer's offer and submit the request again.",
        TokenScope.REQUEST,
        lambda pk, given, how: accept_offer(pk, **how),
        primary=True,
    ),
    Action(
        RequestAction.SUBMIT,
        "Submit request",
        "Hand a request in: evidence and preview are frozen with it.",
        TokenScope.REQUEST,
        lambda pk, given, how: submit(pk, **how),
        hint="Evidence and preview are frozen.",
        primary=True,
    ),
    Action(
        RequestAction.TAKE,
        "Assign to me",
        "Take a request for review: it cannot be edited from then on.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.take(pk, **how),
        hint="It cannot be edited from then on.",
    ),
    Action(
        RequestAction.APPROVE,
        "Approve",
        "Approve a request as it was read; above the threshold the first of two approvals.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.approve(pk, note=given.text, **how),
        ActionTakes.NOTE,
        text="A note, if any",
        primary=True,
    ),
    Action(
        RequestAction.APPLY,
        "Apply",
        "Begin to apply an approved request; a worker carries it out.",
        TokenScope.DECIDE,
        lambda pk, given, how: start(
            pk, gitops=bool(given.gitops), confirmed=given.confirmed, **how
        ),
        ActionTakes.OWNERS,
        primary=True,
    ),
    Action(
        RequestAction.ASK_CHANGES,
        "Ask for changes",
        "Send a request back with a question, or with an amount that would be approved.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.ask_changes(pk, given.text, offer=given.offer, **how),
        ActionTakes.OFFER,
        text="What to change",
    ),
    Action(
        RequestAction.REJECT,
        "Reject",
        "Turn a request down, with the reason.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.reject(pk, given.text, **how),
        ActionTakes.REASON,
        text="Why not",
    ),
    Action(
        RequestAction.RELEASE,
        "Unassign",
        "Give a request back to the queue.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.release(pk, **how),
    ),
    Action(
        RequestAction.REOPEN,
        "Decide anew",
        "Decide anew on a request that could not be carried out.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.reopen(pk, **how),
    ),
    Action(
        RequestAction.REVERT,
        "Take it back",
        "Begin to take an applied change back.",
        TokenScope.DECIDE,
        lambda pk, given, how: revert(pk, gitops=given.gitops, **how),
        ActionTakes.WAY,
    ),
    Action(
        RequestExtra.GIVE_UP,
        "Stop tracking the commit",
        "Stop tracking the commit; the cluster stays as it is.",
        TokenScope.DECIDE,
        lambda pk, given, how: give_up(pk, **how),
        hint="The portal stops tracking the commit; what the cluster shows stays.",
        versioned=False,
    ),
    Action(
        RequestExtra.ACCEPT_DRIFT,
        "Accept what the cluster shows",
        "Take what the cluster shows for right.",
        TokenScope.DECIDE,
        lambda pk, given, how: accept_drift(pk, **how),
        versioned=False,
    ),
    Action(
        RequestAction.WITHDRAW,
        "Withdraw",
        "Take a request back.",
        TokenScope.REQUEST,
        lambda pk, given, how: withdraw(pk, **how),
        hint="It is taken back for good. It can be asked for again, in a new request.",
        asks=True,
    ),
    Action(
        RequestExtra.COMMENT,
        "Comment",
        "Say something of a request; its version stays.",
        TokenScope.REQUEST,
        lambda pk, given, how: comment(pk, given.text, **how),
        ActionTakes.REASON,
        text="Comment",
        versioned=False,
    ),
)
ACTIONS: Mapping[str, Action] = {one.name: one for one in _ALL}
"""By name, the most likely first."""

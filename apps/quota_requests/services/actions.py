"""What people do with a request: pages and the API derive from here.

Who may do what in which state is the table of `domain.states`; `selectors.request_detail` names
what a reader may do now. Editing is not here: it has a form of its own.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

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


class ActionInput(Struct, frozen=True):
    """What somebody gives with an action; `version` is of the request as they read it."""

    # No request has this version: a client that leaves it out meets a conflict, never a blind
    # write.
    version: int = -1
    text: str = ""
    offer: str = ""
    gitops: bool | None = None
    confirmed: tuple[str, ...] = ()


ActionMethod = Callable[[int, ActionInput, dict[str, Any]], object]
"""Does it: number of the request, what is given, and who acts when on which version."""


class Action(Struct, frozen=True):
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
        # Others leave the request's text alone, so that no version has to be read before.
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
        "Submit a request: evidence and preview are frozen with it.",
        TokenScope.REQUEST,
        lambda pk, given, how: submit(pk, **how),
        hint="Evidence and preview are frozen.",
        primary=True,
    ),
    Action(
        RequestAction.TAKE,
        "Assign to me",
        "Assign a request to yourself: it can no longer be edited.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.take(pk, **how),
        hint="It can no longer be edited.",
    ),
    Action(
        RequestAction.APPROVE,
        "Approve",
        "Approve a request as it was read; above the threshold the first of two approvals.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.approve(
            pk, note=given.text, confirmed=given.confirmed, **how
        ),
        ActionTakes.NOTE,
        text="Note (optional)",
        primary=True,
    ),
    Action(
        RequestAction.APPLY,
        "Apply",
        "Start to apply an approved request; a worker does it.",
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
        "Return a request with a question or a counter-offer.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.ask_changes(pk, given.text, offer=given.offer, **how),
        ActionTakes.OFFER,
        text="What to change",
    ),
    Action(
        RequestAction.REJECT,
        "Reject",
        "Reject a request, with the reason.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.reject(pk, given.text, **how),
        ActionTakes.REASON,
        text="Reason",
    ),
    Action(
        RequestAction.RELEASE,
        "Unassign",
        "Unassign a request.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.release(pk, **how),
    ),
    Action(
        RequestAction.REOPEN,
        "Reopen",
        "Reopen a request that could not be applied.",
        TokenScope.DECIDE,
        lambda pk, given, how: requests.reopen(pk, **how),
    ),
    Action(
        RequestAction.REVERT,
        "Revert",
        "Start to revert an applied change.",
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
        "Accept cluster value",
        "Accept the value in the cluster.",
        TokenScope.DECIDE,
        lambda pk, given, how: accept_drift(pk, **how),
        versioned=False,
    ),
    Action(
        RequestAction.WITHDRAW,
        "Withdraw",
        "Withdraw a request.",
        TokenScope.REQUEST,
        lambda pk, given, how: withdraw(pk, **how),
        hint="A withdrawn request cannot be reopened. You can submit a new one.",
        asks=True,
    ),
    Action(
        RequestExtra.COMMENT,
        "Comment",
        "Comment on a request; its version stays.",
        TokenScope.REQUEST,
        lambda pk, given, how: comment(pk, given.text, **how),
        ActionTakes.REASON,
        text="Comment",
        versioned=False,
    ),
)
ACTIONS: Mapping[str, Action] = {one.name: one for one in _ALL}
"""By name, the most likely first."""

"""What was just done, said on the page that it led to: the request may no longer stand there."""

from dataclasses import dataclass

from django.http import Http404, QueryDict

from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors import RequestRow
from apps.web.components.links import Query
from apps.web.quota_requests.request_page import detail_for

_LEAVES = frozenset({"approve", "ask_changes", "reject", "apply", "revert", "reopen"})


@dataclass(frozen=True, slots=True)
class ActionResult:
    """`words`, and the request that they are about; `next_words` name what comes next, if any.

    `stays`: what comes next is on its card, which still stands in the queue.
    """

    row: RequestRow
    words: str
    next_words: str = ""
    stays: bool = False


def done_query(pk: int, action: str) -> Query:
    """Return what says in an address what was done; nothing for what the card itself shows."""
    return [("did", action), ("of", str(pk))] if action in _LEAVES else []


def done_of(given: QueryDict, actor: Actor) -> ActionResult | None:
    """Return what an address says was done, as far as it is so still."""
    action, number = given.get("did", ""), given.get("of", "")
    if action not in _LEAVES or not (number.isascii() and number.isdigit() and len(number) < 10):
        return None
    try:
        row = detail_for(int(number), actor).row
    except Http404:
        return None
    return _said(action, row)


def _said(action: str, row: RequestRow) -> ActionResult | None:
    authors = " and ".join(row.authors)
    match (action, row.state):
        case ("approve", "approved"):
            return ActionResult(
                row, "Approved; nothing is changed yet.", "Apply it now", stays=True
            )
        case ("ask_changes", "changes asked"):
            return ActionResult(
                row, f"Sent back to {authors}, who can answer, edit it or withdraw it."
            )
        case ("reject", "rejected"):
            return ActionResult(row, f"Rejected; {authors} can read why.")
        case ("approve" | "apply", "applying" | "applied" | "failed"):
            return ActionResult(row, f"The change is {row.state}.", "See how it goes")
        case ("revert", "reverting" | "reverted"):
            return ActionResult(row, "It is being taken back.", "See how it goes")
    return None

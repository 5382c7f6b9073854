"""What can be done with a request: how the pages call it, what it needs, and doing it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.http import QueryDict

from apps.quota_requests import services
from apps.quota_requests.permissions import Actor


@dataclass(frozen=True, slots=True)
class ActionInput:
    """What somebody gives with an action; `version` is of the request as they read it.

    `at_once`: what is approved is to be applied in the same click.
    """

    version: int | None = None
    text: str = ""
    offer: str = ""
    gitops: bool = False
    confirmed: tuple[str, ...] = ()
    at_once: bool = False


def given_of(posted: QueryDict) -> ActionInput:
    version = posted.get("version", "")
    is_number = version.isascii() and version.isdigit() and len(version) < 11
    return ActionInput(
        version=int(version) if is_number else None,
        text=posted.get("text", ""),
        offer=posted.get("offer", "").strip(),
        gitops=posted.get("gitops") == "yes",
        # No database keeps a null character, and no manager has one in its name.
        confirmed=tuple(name for name in posted.getlist("confirmed") if "\0" not in name)[:50],
        at_once=posted.get("then") == "apply",
    )


Does = Callable[[int, ActionInput, Actor, datetime], object]


def _read(given: ActionInput) -> int:
    """Return the version that was read; a form that lost it is held to be out of date."""
    return -1 if given.version is None else given.version


@dataclass(frozen=True, slots=True)
class PageAction:
    """An action of a page: `text` labels what is to be said with it, empty for nothing."""

    name: str
    label: str
    does: Does
    text: str = ""
    text_needed: bool = False
    primary: bool = False
    hint: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether a button alone does it."""
        return not self.text and self.name not in {"apply", "revert", "withdraw"}


def _submit(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.submit(pk, by=by, version=_read(given), now=now)


def _accept_offer(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.accept_offer(pk, by=by, version=_read(given), now=now)


def _take(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.take(pk, by=by, version=_read(given), now=now)


def _approve(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.approve(pk, by=by, version=_read(given), now=now, note=given.text)


def _ask_changes(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.ask_changes(
        pk, given.text, by=by, now=now, offer=given.offer, version=_read(given)
    )


def _reject(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.reject(pk, given.text, by=by, now=now, version=_read(given))


def _apply(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.start(
        pk,
        by=by,
        version=_read(given),
        now=now,
        gitops=given.gitops,
        confirmed=given.confirmed,
    )


def _revert(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.revert(
        pk, by=by, version=_read(given), now=now, gitops=True if given.gitops else None
    )


def _release(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.release(pk, by=by, now=now, version=_read(given))


def _reopen(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.reopen(pk, by=by, now=now, version=_read(given))


def _withdraw(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.withdraw(pk, by=by, now=now, version=_read(given))


def _comment(pk: int, given: ActionInput, by: Actor, now: datetime) -> object:
    return services.comment(pk, given.text, by=by, now=now)


def _give_up(pk: int, given: ActionInput, by: Actor, now: datetime) -> None:
    services.give_up(pk, by=by, now=now)


def _accept_drift(pk: int, given: ActionInput, by: Actor, now: datetime) -> None:
    services.accept_drift(pk, by=by, now=now)


_COMMIT = "The portal stops waiting for the commit; what the cluster shows stays."
_FOR_GOOD = "It is taken back for good. It can be asked for again, in a new request."
_ALL = (
    PageAction("accept_offer", "Accept the offer", _accept_offer, primary=True),
    PageAction(
        "submit", "Hand it in", _submit, primary=True, hint="Evidence and preview are frozen."
    ),
    PageAction(
        "take", "Take for review", _take, primary=True, hint="It cannot be edited from then on."
    ),
    PageAction("approve", "Approve", _approve, text="A note, if any", primary=True),
    PageAction("apply", "Apply", _apply, primary=True),
    PageAction(
        "ask_changes", "Ask for changes", _ask_changes, text="What to change", text_needed=True
    ),
    PageAction("reject", "Reject", _reject, text="Why not", text_needed=True),
    PageAction("release", "Give it back to the queue", _release),
    PageAction("reopen", "Decide anew", _reopen),
    PageAction("revert", "Take it back", _revert),
    PageAction("give_up", "Stop waiting for the commit", _give_up, hint=_COMMIT),
    PageAction("accept_drift", "Accept what the cluster shows", _accept_drift),
    PageAction("withdraw", "Withdraw", _withdraw, hint=_FOR_GOOD),
    PageAction("comment", "Comment", _comment, text="Comment", text_needed=True),
)
ACTS: Mapping[str, PageAction] = {act.name: act for act in _ALL}


APPROVE = "approve"


def acts_of(allowed: Collection[str]) -> Sequence[PageAction]:
    """Return what is allowed, the most likely first; editing has a page of its own."""
    found = [act for act in _ALL if act.name in allowed and act.name != "comment"]
    if "accept_offer" not in allowed:
        return found
    # With an offer there is one likely answer, and it is not to hand in what was sent back.
    return [replace(act, primary=False) if act.name == "submit" else act for act in found]

"""What can be done with a request, as its pages show it and as their forms give it."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from django.http import QueryDict

from apps.quota_requests.services import ACTIONS, Action, ActionInput

APPROVE = "approve"


def given_of(posted: QueryDict) -> ActionInput:
    """Return what a form gives; one that lost its version is held to be out of date."""
    version = posted.get("version", "")
    is_number = version.isascii() and version.isdigit() and len(version) < 11
    return ActionInput(
        version=int(version) if is_number else -1,
        text=posted.get("text", ""),
        offer=posted.get("offer", "").strip(),
        # A box that is not ticked says nothing: a change goes back as it was applied.
        gitops=True if posted.get("gitops") == "yes" else None,
        # No database keeps a null character, and no manager has one in its name.
        confirmed=tuple(name for name in posted.getlist("confirmed") if "\0" not in name)[:50],
    )


def acts_of(allowed: Collection[str]) -> Sequence[Action]:
    """Return what is allowed, the most likely first; comments have a form of their own."""
    found = [act for act in ACTIONS.values() if act.name in allowed and act.name != "comment"]
    if "accept_offer" not in allowed:
        return found
    # With an offer there is one likely answer, and it is not to hand in what was sent back.
    return [replace(act, primary=False) if act.name == "submit" else act for act in found]

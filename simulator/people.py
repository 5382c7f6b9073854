"""Who is behind some pods, as JupyterHub and a `created-by` label say it.

Drawn from the names of the work alone: nothing else of a scenario depends on it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from simulator import identity
from simulator.fleet import Pod

HUB_KEY, CREATED_BY = "hub.jupyter.org/username", "created-by"
_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "speech": ("ben", "eva@campus.example", "mira"),
    "vision": ("ada", "lin", "tess"),
}
_KEEPERS: Mapping[tuple[str, str], str] = {("speech-apps", "tts-legacy"): "ben"}
"""Who keeps a service without calls: the demo's member has it to answer for."""
_NOTEBOOK = "notebook-"
_WITHOUT_ONE_OF = 3


class PersonMarks(NamedTuple):
    """The labels and annotations that name a pod's person; empty for pods of no person."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


NOBODY = PersonMarks({}, {})


def person_marks(pod: Pod) -> PersonMarks:
    """Return what a pod says of its person."""
    team = pod.namespace.partition("-")[0]
    members = _MEMBERS.get(team, ())
    top = pod.owner.parent or pod.owner
    if not members:
        return NOBODY
    if top.kind == "StatefulSet" and top.name.startswith(_NOTEBOOK):
        name = top.name.removeprefix(_NOTEBOOK)
        whole = next((one for one in members if one.partition("@")[0] == name), name)
        return PersonMarks({HUB_KEY: _escaped(whole)}, {HUB_KEY: whole})
    keeper = _KEEPERS.get((pod.namespace, top.name))
    if keeper is not None:
        return PersonMarks({CREATED_BY: keeper}, {})
    # Who starts a Job or keeps a service names themselves more often than not.
    if not identity.below(_WITHOUT_ONE_OF, "person", pod.namespace, top.kind, top.name):
        return NOBODY
    of_whom = identity.below(len(members), "member", pod.namespace, top.kind, top.name)
    return PersonMarks({CREATED_BY: members[of_whom].partition("@")[0]}, {})


def _escaped(name: str) -> str:
    """Return a user name as JupyterHub writes it in a label."""
    return "".join(
        sign
        if sign.isascii() and (sign.islower() or sign.isdigit())
        else "".join(f"-{byte:02x}" for byte in sign.encode())
        for sign in name
    )

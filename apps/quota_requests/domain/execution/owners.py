"""Who else says that this very field is theirs, from `managedFields`, and whether they insist."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from apps.quota_requests.domain.execution.patches import FIELD_MANAGER, Object
from apps.quota_requests.domain.snapshots import Owner
from apps.quota_requests.domain.targets import QuotaKeyTarget, Target, VolcanoCell


class Tool(StrEnum):
    """What is behind a field manager, as far as its name tells."""

    KUBECTL = "kubectl"
    ARGO_CD = "Argo CD"
    FLUX = "Flux"
    HELM = "Helm"
    TERRAFORM = "Terraform"
    OTHER = "other"


_BY_START: Final = (
    ("kubectl", Tool.KUBECTL),
    ("argocd", Tool.ARGO_CD),
    ("kustomize-controller", Tool.FLUX),
    ("helm-controller", Tool.FLUX),
    ("flux", Tool.FLUX),
    ("helm", Tool.HELM),
    ("terraform", Tool.TERRAFORM),
    ("hashicorp", Tool.TERRAFORM),
)
ANY_ITEM: Final = "*"
_RECONCILING: Final = frozenset({Tool.ARGO_CD, Tool.FLUX})
_GROUPS: Final = 2
"""How many steps `f:spec` and `f:resourceGroups` are: a list without keys, which is one field.

The amounts of a ResourceQuota or Volcano Queue are a granular map: each key has owners of its own,
and an empty set owns the map alone. The API server leaves one behind where another manager wrote
the only key (seen on 1.36.2)."""


@dataclass(frozen=True, slots=True)
class OtherOwner:
    """A field manager that set the field; `applies`: by server-side apply, which claims it.

    `reverts`: it writes its own value again by itself, so that a change here would not last.
    """

    manager: str
    tool: Tool
    applies: bool
    reverts: bool

    @property
    def advice(self) -> str:
        """One sentence on what will become of a change made here."""
        name = self.manager if self.tool is Tool.OTHER else f"{self.tool} ({self.manager})"
        if self.reverts:
            return f"{name} owns this limit and will put its own value back: use GitOps mode."
        if self.applies or self.tool in (Tool.HELM, Tool.TERRAFORM):
            return f"{name} owns this limit; its next run puts its value back unless it is told."
        return f"{name} set this limit last; confirm that the portal may take it over."


def other_owners(target: Target, live: Object) -> tuple[OtherOwner, ...]:
    """Return who else owns exactly the target's field, in the order of the object.

    The resource groups of a ClusterQueue are one field to the API server: whoever owns the list
    owns the cell. Status writers and owners of neighbouring keys are not named.
    """
    path = _path(target)
    entries = (live.get("metadata") or {}).get("managedFields")
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or entry.get("subresource"):
            continue
        manager = str(entry.get("manager") or "unnamed field manager")
        fields = entry.get("fieldsV1")
        if manager == FIELD_MANAGER or not fields or not _owns(fields, path, _atomic_from(target)):
            continue
        tool = _tool(manager)
        applies = entry.get("operation") == "Apply"
        found.append(OtherOwner(manager, tool, applies, tool in _RECONCILING))
    return tuple(dict.fromkeys(found))


def _tool(manager: str) -> Tool:
    name = manager.lower()
    return next((tool for start, tool in _BY_START if name.startswith(start)), Tool.OTHER)


def _path(target: Target) -> tuple[str, ...]:
    """Return the steps to the field as `fieldsV1` writes them; `*` stands for any list item."""
    if isinstance(target, QuotaKeyTarget):
        return ("f:spec", "f:hard", f"f:{target.key}")
    if isinstance(target, VolcanoCell):
        return ("f:spec", f"f:{target.part}", f"f:{target.resource}")
    flavor, resource = _item(target.flavor), _item(target.resource)
    groups = ("f:spec", "f:resourceGroups", ANY_ITEM)
    return (*groups, "f:flavors", flavor, "f:resources", resource, "f:nominalQuota")


def _atomic_from(target: Target) -> int:
    """Return after how many steps of the path an empty set means all that is in it."""
    return len(_path(target)) if isinstance(target, QuotaKeyTarget | VolcanoCell) else _GROUPS


def _item(name: str) -> str:
    return "k:" + json.dumps({"name": name}, separators=(",", ":"))


def _owns(fields: object, path: Sequence[str], atomic_from: int) -> bool:
    """Walk the owned fields; an empty set `atomic_from` steps in owns all, before that nothing."""
    if not isinstance(fields, Mapping):
        return False
    if not path:
        return True
    if not fields:
        return atomic_from <= 0
    return any(
        _owns(child, path[1:], atomic_from - 1)
        for name, child in fields.items()
        if name == path[0] or (path[0] == ANY_ITEM and name.startswith(("k:", "i:")))
    )


def preview_owners(owners: Sequence[OtherOwner]) -> tuple[Owner, ...]:
    """Return owners as a preview has them."""
    return tuple(
        Owner(one.manager, one.advice, one.tool.value, one.applies, one.reverts) for one in owners
    )

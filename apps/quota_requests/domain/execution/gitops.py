"""GitOps mode: the patch file that a person commits, and whether the cluster shows it yet.

The files are YAML written by hand here: every name and value is a JSON string, which YAML reads
as itself, so that no name can break out of its place.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

from apps.quota_requests.domain.execution.patches import Object, Operation, patch_for
from apps.quota_requests.domain.quantities import Quantity
from apps.quota_requests.domain.targets import QueueCell, QuotaKeyTarget, Target, VolcanoCell

_API_VERSIONS: Final = {
    QuotaKeyTarget: "v1",
    QueueCell: "kueue.x-k8s.io/v1beta2",
    VolcanoCell: "scheduling.volcano.sh/v1beta1",
}
_TESTED: Final = (
    "# Where a test fails, the manifest has its lists in another order, or another amount, than\n"
    "# the cluster: set the amount there by hand instead.\n"
)


@dataclass(frozen=True, slots=True)
class PatchFile:
    """A file to commit: its proposed name, its text and how it is put to use."""

    name: str
    text: str
    how: str


def patch_file(target: Target, live: Object, *, reviewed: Quantity, wanted: Quantity) -> PatchFile:
    """Return the patch for the repository that the cluster is made from.

    A ResourceQuota or Volcano queue gets a merge patch of the one key. The cells of a Kueue
    ClusterQueue stand in lists that a merge would replace whole, taking the other flavors with it:
    it gets a JSON patch whose tests name the flavor, the resource and the value. Files of
    different keys have different names, so that one committed never takes the place of another.
    A merge patch takes the place of the one before it for its key; a JSON patch, whose test is of
    the amount that the one before it left, stands below that and has a name of its own.
    Raises as `patch_for` where the object is not as it was reviewed.
    """
    operations = patch_for(target, live, reviewed=reviewed, wanted=wanted)
    version = str(live.get("apiVersion") or _API_VERSIONS[type(target)])
    heading = f"# {_one_line(target)}: {reviewed} -> {wanted}\n"
    if isinstance(target, QueueCell):
        name = _file_name(target, f"{reviewed}-to-{wanted}")
        text = heading + _TESTED + _json_patch(operations)
        return PatchFile(name, text, _how_json(target, version, name))
    name = _file_name(target)
    text = heading + _merge_patch(target, version, wanted)
    how = f"In kustomization.yaml, under patches: - path: {name}; it replaces one of the same name"
    return PatchFile(name, text, how)


def _file_name(target: Target, *more: str) -> str:
    parts = (target.namespace or target.source.lower(), target.name, target.key, *more)
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts) + ".yaml"


def _merge_patch(target: QuotaKeyTarget | VolcanoCell, version: str, wanted: Quantity) -> str:
    part = "hard" if isinstance(target, QuotaKeyTarget) else target.part.value
    key = target.key if isinstance(target, QuotaKeyTarget) else target.resource
    lines = [
        f"apiVersion: {_quoted(version)}",
        f"kind: {_quoted(target.source.value)}",
        "metadata:",
        f"  name: {_quoted(target.name)}",
    ]
    if target.namespace:
        lines.append(f"  namespace: {_quoted(target.namespace)}")
    lines += ["spec:", f"  {part}:", f"    {_quoted(key)}: {_quoted(wanted.text)}"]
    return "\n".join(lines) + "\n"


def _json_patch(operations: list[Operation]) -> str:
    lines = []
    for operation in operations:
        first, *rest = operation.items()
        lines.append(f"- {first[0]}: {_quoted(first[1])}")
        lines += [f"  {name}: {_quoted(value)}" for name, value in rest]
    return "\n".join(lines) + "\n"


def _how_json(target: QueueCell, version: str, name: str) -> str:
    group, _, served = version.partition("/")
    return (
        f"In kustomization.yaml, under patches and below earlier ones of this queue: - path: {name}"
        f", with the target group: {group}, version: {served}, kind: {target.source}, "
        f"name: {target.name}"
    )


def _quoted(value: object) -> str:
    return json.dumps(value)


def _one_line(target: Target) -> str:
    """A comment ends with its line, so a name must not bring a line of its own."""
    return "".join(c if c.isprintable() else " " for c in str(target))

"""The JSON Patch that checks and writes one amount in one step, and the patch file for GitOps."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from apps.quota_requests.domain.quantities import NotAQuantity, Quantity, quantity
from apps.quota_requests.domain.targets import (
    QueueCell,
    QuotaKeyTarget,
    Target,
    VolcanoCell,
    check_key,
)

FIELD_MANAGER: Final = "gpuportal"
Object = Mapping[str, Any]
Operation = dict[str, Any]
_API_VERSIONS: Final = {
    QuotaKeyTarget: "v1",
    QueueCell: "kueue.x-k8s.io/v1beta2",
    VolcanoCell: "scheduling.volcano.sh/v1beta1",
}
_TESTED: Final = (
    "# Where a test fails, the manifest has its lists in another order, or another amount, than\n"
    "# the cluster: set the amount there by hand instead.\n"
)


class PatchRefused(Exception):
    """The change cannot be written to the object as it is; the message says why, for people."""


class KeyMissing(PatchRefused):
    """The object has no such key. The portal changes limits, it neither adds nor removes any."""


class ValueChanged(PatchRefused):
    """The object shows another amount than the one that was reviewed."""

    def __init__(self, target: Target, *, reviewed: Quantity, live: Quantity) -> None:
        super().__init__(f"{target} is {live} now; {reviewed} was reviewed.")
        self.live = live


class PatchLocation(Struct, frozen=True):
    """Where an amount stands in an object: its pointer, its raw JSON value and what it means.

    `identity` are pointers with the values that make this the right cell of a list.
    """

    pointer: str
    raw: str | int
    amount: Quantity
    identity: tuple[tuple[str, str], ...] = ()


def escaped(name: str) -> str:
    """Return one step of a JSON pointer (RFC 6901): `~` first, then `/`."""
    return name.replace("~", "~0").replace("/", "~1")


def patch_for(
    target: Target, live: Object, *, reviewed: Quantity, wanted: Quantity
) -> list[Operation]:
    """Return `[test …, replace]` that turns `reviewed` into `wanted` and touches nothing else.

    The test carries the value as the object has it (`2k` where 2000 was reviewed), because the
    API server compares JSON values, not amounts. Raises KeyMissing, ValueChanged, PatchRefused.
    """
    _check_object(target, live)
    # A JSON Patch and no merge patch: only its `test` makes check and write one step.
    spot = locate(target, live)
    if spot.amount != reviewed:
        raise ValueChanged(target, reviewed=reviewed, live=spot.amount)
    tests: list[Operation] = [
        {"op": "test", "path": pointer, "value": value} for pointer, value in spot.identity
    ]
    return [
        # Kueue's cells are addressed by index: these tests fail when someone reordered the list.
        *tests,
        {"op": "test", "path": spot.pointer, "value": spot.raw},
        {"op": "replace", "path": spot.pointer, "value": wanted.text},
    ]


def is_object(target: Target, body: Object) -> bool:
    """Say whether an answer is the object that a target stands in, by kind and name."""
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping):
        return False
    shown = (body.get("kind"), metadata.get("namespace", ""), metadata.get("name"))
    return shown == (target.source.value, target.namespace, target.name)


def uid_of(live: Object) -> str:
    """Return which object it is, of all that ever had its name; empty where it does not say."""
    metadata = live.get("metadata")
    return str(metadata.get("uid") or "") if isinstance(metadata, Mapping) else ""


def why_unreadable(target: Target, live: Object) -> str:
    """Return why an amount that is there cannot be told; empty where it can, or is not there."""
    try:
        locate(target, live)
    except KeyMissing:
        return ""
    except PatchRefused as refused:
        return str(refused)
    return ""


def live_amount(target: Target, live: Object | None) -> Quantity | None:
    """Return what the object shows; None where the object, the key or an amount is not there."""
    if live is None:
        return None
    try:
        return locate(target, live).amount
    except PatchRefused:
        return None


def locate(target: Target, live: Object) -> PatchLocation:
    """Return where the amount stands. Raises KeyMissing, or PatchRefused for an odd object."""
    spec = live.get("spec")
    if not isinstance(spec, Mapping):
        raise PatchRefused(f"{target}: the object has no spec.")
    if isinstance(target, QueueCell):
        return _in_groups(target, spec)
    if isinstance(target, QuotaKeyTarget):
        return _in_map(target, spec, "hard", target.key)
    return _in_map(target, spec, target.part.value, target.resource)


def _check_object(target: Target, live: Object) -> None:
    if not is_object(target, live):
        raise PatchRefused(f"{target}: the server answered with another object.")
    # The server accepts a patch of a terminating object, and the limit vanishes with it.
    if live["metadata"].get("deletionTimestamp"):
        raise PatchRefused(f"{target}: the object is being deleted.")
    if isinstance(target, QuotaKeyTarget):
        check_key(target.key, named=[target.resource])


def _in_map(
    target: QuotaKeyTarget | VolcanoCell, spec: Object, part: str, key: str
) -> PatchLocation:
    amounts = spec.get(part)
    if not isinstance(amounts, Mapping) or key not in amounts:
        raise KeyMissing(f"{target} is not there any more; the portal adds no limit by itself.")
    return _spot(target, f"/spec/{part}/{escaped(key)}", amounts[key])


def _in_groups(target: QueueCell, spec: Object) -> PatchLocation:
    """Find the cell by names. Kueue allows a flavor once and a resource in one group only."""
    # All groups are read to the end: the first match may not be the only one.
    found: list[PatchLocation] = []
    for g, group in enumerate(_items(spec, "resourceGroups")):
        for f, flavor in enumerate(_items(group, "flavors")):
            if flavor.get("name") != target.flavor:
                continue
            at = f"/spec/resourceGroups/{g}/flavors/{f}"
            for r, resource in enumerate(_items(flavor, "resources")):
                if resource.get("name") == target.resource and "nominalQuota" in resource:
                    cell = f"{at}/resources/{r}"
                    names = ((f"{at}/name", target.flavor), (f"{cell}/name", target.resource))
                    raw = resource["nominalQuota"]
                    found.append(_spot(target, f"{cell}/nominalQuota", raw, names))
    if not found:
        raise KeyMissing(f"{target} is not there any more; the portal adds no limit by itself.")
    if len(found) > 1:
        raise PatchRefused(f"{target} is there {len(found)} times: which one is not certain.")
    return found[0]


def _items(within: Object, name: str) -> Sequence[Object]:
    items = within.get(name)
    if not isinstance(items, list):
        return ()
    # A stand-in keeps the place of what is no object, so that indices stay those of the server.
    return [item if isinstance(item, Mapping) else {} for item in items]


def _spot(
    target: Target, pointer: str, raw: Any, identity: tuple[tuple[str, str], ...] = ()
) -> PatchLocation:
    try:
        return PatchLocation(pointer, raw, quantity(raw), identity)
    except NotAQuantity as error:
        raise PatchRefused(f"{target} cannot be read: {error}.") from error


class PatchFile(Struct, frozen=True):
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

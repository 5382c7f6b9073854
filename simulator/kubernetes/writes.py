"""Changes of the fault scenarios through the Kubernetes API: POST, PUT, PATCH and DELETE.

Refusals are those of a real server: 409 for what is there already and for a stale version, 422
for a failed test of a JSON patch and for values it does not take, 403 over quota. Of what the
scenario tells only the limits can be changed (`edits`); the rest of it answers 403.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from simulator.clock import Clock
from simulator.fault_scenarios import script
from simulator.fault_scenarios.live import Live
from simulator.kubernetes.entities import Collection
from simulator.kubernetes.fields.managed_fields import managed
from simulator.kubernetes.fields.patches import (
    MalformedPatch,
    PatchFailed,
    json_patched,
    merge_patched,
)
from simulator.kubernetes.objects import Object
from simulator.kubernetes.status import (
    already_exists,
    conflict,
    forbidden,
    invalid,
    not_allowed,
    not_found,
    rejected,
    unprocessable,
    unsupported,
)
from simulator.responses import Parameters, Response, json_response, one
from simulator.scheduler.admission import Forbidden
from simulator.scheduler.amounts import quantity
from simulator.scheduler.placing import terminate
from simulator.scheduler.plane import ControlPlane
from simulator.scheduler.store import copied

_JSON_PATCH = "application/json-patch+json"
_MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
_BUILT_IN = ("v1", "apps/v1", "batch/v1", "resource.k8s.io/v1", "scheduling.k8s.io/v1")
_READ_ONLY = frozenset({"configmaps", "events", "namespaces"})
_QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_STANDARD = frozenset(
    {"cpu", "memory", "pods", "services", "secrets", "configmaps", "persistentvolumeclaims",
     "resourcequotas", "replicationcontrollers", "ephemeral-storage"}
)  # fmt: skip
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_NAME_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


class WriteRequest(Struct, frozen=True):
    """A request that would change something."""

    method: str
    collection: Collection
    namespace: str
    name: str
    parameters: Parameters
    content_type: str
    body: bytes

    @property
    def dry(self) -> bool:
        return one(self.parameters, "dryRun") == "All"

    @property
    def manager(self) -> str:
        return one(self.parameters, "fieldManager") or "lab-client"


class Writes:
    """Answers what would change something; raises Refused."""

    def __init__(self, live: Live, clock: Clock) -> None:
        self._live = live
        self._clock = clock

    def answer(self, asked: WriteRequest) -> Response:
        """Do what is asked, at once with all that follows from it."""
        if asked.collection.plural in _READ_ONLY:
            return not_allowed()
        act = {
            "POST": self._create if not asked.name else None,
            "PUT": self._replace if asked.name else None,
            "PATCH": self._patch if asked.name else None,
            "DELETE": self._delete if asked.name else None,
        }.get(asked.method)
        if act is None:
            return not_allowed()
        if asked.dry:
            return self._live.read(lambda plane: act(plane, asked))
        return self._live.write(lambda plane: act(plane, asked))

    # ------------------------------------------------------------ one each

    def _create(self, plane: ControlPlane, asked: WriteRequest) -> Response:
        item = sent_object(asked)
        meta = item["metadata"]
        if asked.namespace:
            meta["namespace"] = asked.namespace
            if plane.store.get("namespaces", "", asked.namespace) is None:
                raise self._elsewhere(asked)
        stem = "" if meta.get("name") else str(meta.pop("generateName", "")).rstrip("-")
        if not stem and not meta.get("name"):
            text = "name or generateName is required"
            raise unprocessable(asked.collection.kind, "", "metadata.name", "Required value", text)
        name = meta.get("name") or plane.store.name_for(asked.namespace, stem)
        if plane.store.get(asked.collection.plural, asked.namespace, name) is not None:
            raise already_exists(asked.collection.plural, name)
        for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            meta.pop(key, None)
        meta["name"] = name
        _check(asked.collection.kind, item)
        if asked.collection.plural != "pods":
            item.setdefault("status", {})
        managed(None, item, asked.manager, self._now)
        try:
            if asked.dry:
                made = copied(item)
            else:
                made = script.create(plane, asked.collection.plural, item)
        except Forbidden as refusal:
            raise forbidden(str(refusal), name, asked.collection.plural) from refusal
        return json_response(_full(asked, made), 201)

    def _replace(self, plane: ControlPlane, asked: WriteRequest) -> Response:
        return self._changed(plane, asked, self._found(plane, asked), sent_object(asked))

    def _patch(self, plane: ControlPlane, asked: WriteRequest) -> Response:
        old = self._found(plane, asked)
        return self._changed(plane, asked, old, patched(asked, old))

    def _delete(self, plane: ControlPlane, asked: WriteRequest) -> Response:
        old = self._found(plane, asked)
        if asked.dry:
            return json_response(_full(asked, old))
        options = json.loads(asked.body) if asked.body else {}
        grace = one(asked.parameters, "gracePeriodSeconds") or options.get("gracePeriodSeconds")
        plural = asked.collection.plural
        if plural == "pods" and str(grace) != "0":
            terminate(plane.store, old)
            left = plane.store.get(plural, asked.namespace, asked.name)
            return json_response(_full(asked, left or old))
        plane.store.remove(plural, old)
        details = {"name": asked.name, "kind": plural, "uid": old["metadata"]["uid"]}
        return json_response(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details,
            }
        )

    # ------------------------------------------------------------ what they share

    @property
    def _now(self) -> int:
        return self._clock.now_ms() // 1000

    def _found(self, plane: ControlPlane, asked: WriteRequest) -> Object:
        found = plane.store.get(asked.collection.plural, asked.namespace, asked.name)
        if found is not None:
            return found
        there = asked.namespace and plane.store.get("namespaces", "", asked.namespace)
        if asked.collection.plural == "nodes" or (asked.namespace and not there):
            raise self._elsewhere(asked)
        raise not_found(asked.collection.plural, asked.name)

    def _elsewhere(self, asked: WriteRequest) -> Exception:
        text = (
            f'{asked.collection.plural} "{asked.name}" is forbidden: only the fault scenarios of '
            "the lab can be changed"
        )
        return forbidden(text, asked.name, asked.collection.plural)

    def _changed(
        self, plane: ControlPlane, asked: WriteRequest, old: Object, new: Object
    ) -> Response:
        new = taken(asked, old, new, self._now)
        if not asked.dry:
            new = plane.store.change(asked.collection.plural, old, lambda item: _become(item, new))
        return json_response(_full(asked, new))


def patched(asked: WriteRequest, old: Object) -> Object:
    """Return an object as a patch makes it. Raises Refused."""
    kind = asked.content_type.partition(";")[0].strip()
    if kind != _JSON_PATCH and kind not in _MERGES:
        raise unsupported((_JSON_PATCH, *_MERGES))
    if kind == _MERGES[1] and asked.collection.group_version not in _BUILT_IN:
        raise unsupported((_JSON_PATCH, _MERGES[0]))
    patch = _json(asked.body, asked.collection.kind)
    try:
        merged = kind in _MERGES
        return dict(merge_patched(old, patch) if merged else json_patched(old, patch))
    except PatchFailed as failure:
        raise rejected() from failure
    except MalformedPatch as error:
        raise invalid(str(error)) from error


def taken(asked: WriteRequest, old: Object, new: Object, now: int) -> Object:
    """Return an object as the server would store it at `now` in Unix seconds. Raises Refused."""
    version = new.get("metadata", {}).get("resourceVersion")
    if version not in {None, "", old["metadata"]["resourceVersion"]}:
        raise conflict(asked.collection.plural, asked.name)
    new = _unchanged(old, new)
    _check(asked.collection.kind, new)
    if asked.collection.plural == "pods":
        _check_pod(old, new)
    if new != old:
        managed(old, new, asked.manager, now)
    return new


def sent_object(asked: WriteRequest) -> Object:
    """Return the object that a request carries. Raises Refused where there is none."""
    item = _json(asked.body, asked.collection.kind)
    if not isinstance(item, dict) or not isinstance(item.get("metadata"), dict):
        raise invalid(f"the object provided is unrecognized (must be of type {_kind(asked)})")
    item.setdefault("kind", asked.collection.kind)
    item.setdefault("apiVersion", asked.collection.group_version)
    return dict(item)


def _kind(asked: WriteRequest) -> str:
    return asked.collection.kind


def _json(body: bytes, kind: str) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        text = body[:60].decode("utf-8", "replace")
        raise invalid(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get "
            f"version/kind; json parse error: {error} ({text})"
        ) from error


def _full(asked: WriteRequest, item: Object) -> Object:
    return {
        "kind": asked.collection.kind,
        "apiVersion": asked.collection.group_version,
        **{key: value for key, value in item.items() if key not in {"kind", "apiVersion"}},
    }


def _unchanged(old: Object, new: Object) -> Object:
    """Return the new object with what no client may set: its identity, versions and status."""
    found = copied(new)
    own = {
        key: old["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp",
                    "generation", "managedFields", "ownerReferences", "deletionTimestamp",
                    "deletionGracePeriodSeconds")
        if key in old["metadata"]
    }  # fmt: skip
    found["metadata"] = {**found.get("metadata", {}), **copied(own)}
    if "status" in old:
        found["status"] = copied(old["status"])
    return {**{key: old[key] for key in ("kind", "apiVersion") if key in old}, **found}


def _become(item: Object, new: Object) -> None:
    """Make the stored object the new one; version and generation are the store's to set."""
    item.clear()
    item.update(copied(new))


def _check(kind: str, item: Object) -> None:
    """Raise the refusal of values that a real server does not take, of quotas above all."""
    name = item["metadata"]["name"]
    if not _NAME.match(name):
        raise unprocessable(kind, name, "metadata.name", f'Invalid value: "{name}"', _NAME_TEXT)
    if kind == "ResourceQuota":
        _check_quota(name, item.get("spec", {}).get("hard") or {})


def _check_quota(name: str, hard: Mapping[str, Any]) -> None:
    kind = "ResourceQuota"
    for key, text in hard.items():
        field = f"spec.hard[{key}]"
        try:
            amount = quantity(text)
        except ValueError as error:
            raise invalid(
                f'{kind} in version "v1" cannot be handled as a {kind}: quantities must match the '
                f"regular expression '{_QUANTITY}'"
            ) from error
        if "/" not in key and key not in _STANDARD and not key.startswith(("requests.", "limits.")):
            text = "must be a standard resource type or fully qualified"
            raise unprocessable(kind, name, field, f'Invalid value: "{key}"', text)
        if amount < 0:
            least = "must be greater than or equal to 0"
            raise unprocessable(kind, name, field, f'Invalid value: "{text}"', least)


def _check_pod(old: Object, new: Object) -> None:
    """Raise the refusal of what cannot be changed in a pod: nearly all of its spec."""
    before, after = copied(old["spec"]), copied(new.get("spec", {}))
    gates = [gate["name"] for gate in after.get("schedulingGates") or []]
    known = [gate["name"] for gate in before.get("schedulingGates") or []]
    kept = all(one in after.get("tolerations", []) for one in before.get("tolerations", []))
    if set(gates) <= set(known) and kept:
        for spec in (before, after):
            for key in ("schedulingGates", "tolerations", "activeDeadlineSeconds"):
                spec.pop(key, None)
            for container in spec.get("containers", []):
                container.pop("image", None)
        if before == after:
            return
    raise unprocessable(
        "Pod",
        old["metadata"]["name"],
        "spec",
        "Forbidden",
        "pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
        "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be "
        "set to 1 if it was previously negative)",
    )

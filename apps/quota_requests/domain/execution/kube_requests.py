"""What is asked of the API server for a target: path, query and body, for the adapter to send."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from apps.quota_requests.domain.execution.patches import FIELD_MANAGER, Operation
from apps.quota_requests.domain.targets import QueueCell, QuotaKeyTarget, Target

JSON_PATCH: Final = "application/json-patch+json"
SERVER_TIMEOUT_SECONDS: Final = 10
KUEUE: Final = ("v1beta2", "v1beta1")
VOLCANO: Final = ("v1beta1",)


@dataclass(frozen=True, slots=True)
class KubeRequest:
    """A request to the API server, without its address and credentials."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def object_path(target: Target, version: str = "") -> str:
    """Return where the target's object is; `version` is what discovery says is served.

    Without it the newest known one of Kueue or Volcano.
    """
    name = quote(target.name, safe="")
    if isinstance(target, QuotaKeyTarget):
        namespace = quote(target.namespace, safe="")
        return f"/api/v1/namespaces/{namespace}/resourcequotas/{name}"
    if isinstance(target, QueueCell):
        return f"/apis/kueue.x-k8s.io/{version or KUEUE[0]}/clusterqueues/{name}"
    return f"/apis/scheduling.volcano.sh/{version or VOLCANO[0]}/queues/{name}"


def read_request(target: Target, version: str = "") -> KubeRequest:
    """Return the GET of the object. Without a resourceVersion it reads what is stored, no cache."""
    return KubeRequest("GET", object_path(target, version), headers={"Accept": "application/json"})


def patch_request(
    target: Target, patch: Sequence[Operation], *, dry_run: bool, version: str = ""
) -> KubeRequest:
    """Return the PATCH. A dry run goes through admission and changes nothing.

    `timeout` is for the server: a request that it gave up cannot take effect long after the
    portal stopped waiting for it. The client has to wait longer than that.
    """
    query = {
        "fieldManager": FIELD_MANAGER,
        "fieldValidation": "Strict",
        "timeout": f"{SERVER_TIMEOUT_SECONDS}s",
    }
    if dry_run:
        query["dryRun"] = "All"
    return KubeRequest(
        "PATCH",
        object_path(target, version),
        query,
        {"Accept": "application/json", "Content-Type": JSON_PATCH},
        json.dumps(list(patch), separators=(",", ":")).encode(),
    )

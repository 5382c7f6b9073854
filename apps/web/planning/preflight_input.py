"""What is to be checked: a manifest as written or uploaded, or that which a small form makes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import yaml
from django.http import QueryDict
from msgspec import Struct

from apps.clusters.selectors import TierRow
from apps.web.components.page_query import Query, href

KEYS = ("where", "on", "resource", "gpus", "pods", "priority", "queue")
"""Keys of the small form; none is a filter, which would narrow the pages that it links to."""
MOST_GPUS, MOST_PODS = 1024, 10_000
_LONGEST = 253


class InputRefused(ValueError):
    """What of a form cannot be checked, in one sentence."""


class NamespaceRef(Struct, frozen=True):
    """A namespace of a cluster."""

    cluster: str
    namespace: str

    @property
    def text(self) -> str:
        return f"{self.cluster}/{self.namespace}"


def place_in(written: str) -> NamespaceRef:
    """Return the place that is written as `cluster/namespace`. Raises InputRefused."""
    cluster, _, namespace = written.strip()[: 2 * _LONGEST].partition("/")
    # PostgreSQL refuses NUL in text.
    if not cluster or not namespace or "\0" in written:
        raise InputRefused("Choose a namespace, written as cluster/namespace.")
    return NamespaceRef(cluster, namespace)


def manifest_in(given: QueryDict, file: bytes | None) -> str:
    """Return the text of a form's file, else of its field. Raises InputRefused."""
    if file is None:
        return given.get("manifest", "")
    try:
        # Editors on Windows begin a file with a byte order mark, which YAML need not accept.
        return file.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputRefused("The file is not text in UTF-8.") from error


class RequestFields(Struct, frozen=True):
    """The small form as written."""

    fields: Mapping[str, str]

    @classmethod
    def of(cls, given: QueryDict) -> "RequestFields":
        return cls({key: given.get(key, "").strip()[: 2 * _LONGEST] for key in KEYS})

    @property
    def is_complete(self) -> bool:
        """Whether enough is written to be checked."""
        return all(self.fields[key] for key in ("where", "gpus"))

    def manifest(self, tiers: Collection[TierRow]) -> str:
        """Return the YAML of a Job with this request. Raises InputRefused."""
        fields = self.fields
        tier = next((row for row in tiers if row.name == fields["on"]), None)
        if fields["on"] and tier is None:
            raise InputRefused(f"There is no tier “{fields['on'][:80]}”.")
        resource = fields["resource"]
        if tier is not None and not resource:
            # A tier of several resources is asked for by its first one, as in its manifest.
            resource = next(iter((*tier.resources, *tier.device_classes)), "")
        if not resource:
            raise InputRefused("Choose a tier or a resource.")
        gpus = _whole(fields["gpus"], "GPUs", MOST_GPUS)
        pods = _whole(fields["pods"] or "1", "pods", MOST_PODS)
        by_claim = tier is not None and resource in tier.device_classes
        pod = _pod(resource, gpus, tier, by_claim=by_claim, priority=fields["priority"])
        documents = [_job(pod, pods, fields["queue"])]
        if by_claim:
            # The template comes first: a pod that names a missing one does not start.
            documents.insert(0, _claim_template(resource, gpus))
        return yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False)


def _whole(written: str, what: str, most: int) -> int:
    # `isdigit` holds for other scripts too, and a number of any length takes long to read.
    number = int(written) if written.isascii() and written.isdigit() and len(written) < 9 else 0
    if not 1 <= number <= most:
        raise InputRefused(f"The number of {what} is a whole number from 1 to {most:,}.")
    return number


def _pod(
    resource: str, gpus: int, tier: TierRow | None, *, by_claim: bool, priority: str
) -> dict[str, Any]:
    spec: dict[str, Any] = {"restartPolicy": "Never"}
    if tier is not None and tier.node_selector:
        spec["nodeSelector"] = dict(tier.node_selector)
    if priority:
        spec["priorityClassName"] = priority
    resources: dict[str, Any] = {"limits": {resource: gpus}}
    if by_claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "my-gpu"}]
        resources = {"claims": [{"name": "gpu"}]}
    spec["containers"] = [{"name": "main", "image": "my-image", "resources": resources}]
    return spec


def _job(pod: dict[str, Any], pods: int, queue: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "my-job"}
    if queue:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _claim_template(device_class: str, gpus: int) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class, "count": gpus}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "my-gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def check_href(query: Query = (), **fields: str) -> str:
    """Return the address of the page, its small form filled in with these fields."""
    own: Sequence[tuple[str, str]] = [(key, fields[key]) for key in KEYS if fields.get(key)]
    return href("preflight", [*own, *query]) or ""

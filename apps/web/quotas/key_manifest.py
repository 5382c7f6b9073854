"""What of a manifest sets a quota key, as YAML."""

import json
from collections.abc import Callable, Mapping
from zoneinfo import ZoneInfo

from apps.quotas.domain.keys import QuotaSource
from apps.quotas.selectors import QuotaRow
from apps.web.components.formats import Format, exact

_UTC = ZoneInfo("UTC")


def manifest_of(row: QuotaRow) -> str:
    """Return the part of the object that sets this key; empty of a queue of Volcano.

    Names come from clusters: JSON strings are YAML strings, whatever they hold.
    """
    written = _WRITTEN_BY.get(row.source)
    return written(row) if written else ""


def _resource_quota(row: QuotaRow) -> str:
    return _joined(
        "apiVersion: v1",
        "kind: ResourceQuota",
        "metadata:",
        f"  name: {json.dumps(row.name)}",
        f"  namespace: {json.dumps(row.namespace)}",
        "spec:",
        "  hard:",
        f"    {json.dumps(row.key)}: {json.dumps(_amount(row.hard))}",
        *(["  scopes:", *(f"    - {json.dumps(one)}" for one in row.scopes)] if row.scopes else []),
    )


def _cluster_queue(row: QuotaRow) -> str:
    # A key of a ClusterQueue reads flavor/resource, and a resource has slashes of its own.
    flavor, _, resource = row.key.partition("/")
    limits = {
        "nominalQuota": row.hard,
        "borrowingLimit": row.borrowing_limit,
        "lendingLimit": row.lending_limit,
    }
    return _joined(
        "apiVersion: kueue.x-k8s.io/v1beta1",
        "kind: ClusterQueue",
        "metadata:",
        f"  name: {json.dumps(row.name)}",
        "spec:",
        *([f"  cohort: {json.dumps(row.cohort)}"] if row.cohort else []),
        "  resourceGroups:",
        f"    - coveredResources: [{json.dumps(resource)}]",
        "      flavors:",
        f"        - name: {json.dumps(flavor)}",
        "          resources:",
        f"            - name: {json.dumps(resource)}",
        *(
            f"              {name}: {json.dumps(_amount(value))}"
            for name, value in limits.items()
            if value is not None
        ),
    )


def _kai_queue(row: QuotaRow) -> str:
    part = row.key.partition("/")[0]
    return _joined(
        "apiVersion: scheduling.run.ai/v2",
        "kind: Queue",
        "metadata:",
        f"  name: {json.dumps(row.name)}",
        "spec:",
        "  resources:",
        "    gpu:",
        f"      {part}: {row.hard:g}",
    )


_WRITTEN_BY: Mapping[str, Callable[[QuotaRow], str]] = {
    QuotaSource.RESOURCE_QUOTA: _resource_quota,
    QuotaSource.CLUSTER_QUEUE: _cluster_queue,
    QuotaSource.KAI_QUEUE: _kai_queue,
}


def _amount(value: float) -> str:
    # In full and without an exponent, which Kubernetes would read as another suffix.
    return exact(value, Format.NUMBER, _UTC)


def _joined(*lines: str) -> str:
    return "\n".join(lines)

"""Objects and answers that real servers sent, from `tests/recordings`."""

import json
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parent.parent / "recordings"
KUBE = "kube-1.36.2"
KUEUE = "kueue-v0.19"
VOLCANO = "volcano"


def body(folder: str, name: str) -> Any:
    """Return the JSON of a recorded answer, as `errors/409-ssa-conflict.json`."""
    return json.loads((RECORDINGS / folder / name).read_bytes())


def listed(folder: str, name: str, kind: str, of: str) -> dict[str, Any]:
    """Return one object of a recorded list, with the kind that lists leave out."""
    items = body(folder, f"lists/{name}.json")["items"]
    (found,) = (item for item in items if item["metadata"]["name"] == of)
    return {"apiVersion": "v1", "kind": kind, **found}


def quota(name: str) -> dict[str, Any]:
    """Return a recorded ResourceQuota."""
    return listed(KUBE, "resourcequotas", "ResourceQuota", name)


def cluster_queue(name: str, version: str = "v1beta2") -> dict[str, Any]:
    """Return a recorded ClusterQueue."""
    return listed(KUEUE, f"kueue-{version}-clusterqueues", "ClusterQueue", name)


def volcano_queue(name: str) -> dict[str, Any]:
    """Return a recorded Volcano queue."""
    return listed(VOLCANO, "volcano-queues", "Queue", name)

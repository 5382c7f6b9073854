"""Worker: a list of many pods into the ledger, beside decoding the same bytes with orjson.

python -m tests.bench.listing PODS
"""

import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import orjson
from kubernetes.client import ApiClient

from apps.clusters.domain.pods.kube_objects import pod_record
from apps.clusters.domain.pods.ledger import nearest_owner
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster
from apps.clusters.ports import ClusterSource
from apps.clusters.services.watch.follow import snapshot
from gpuportal.garbage import gc_paused
from tests.bench.api_server import PODS, pages
from tests.bench.database import NOW
from tests.bench.measuring import alternated, peak_mib, timed, wall
from tests.portal import stop
from tests.servers import ROOT

SNAPSHOT_CLUSTER = "bench-listing"


@contextmanager
def api_server(pods: int) -> Iterator[str]:
    """Serve the pods from another process and yield the address."""
    server = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-m", "tests.bench.api_server", str(pods)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        if server.stdin is None or server.stdout is None:
            raise RuntimeError("no pipes")
        port = int(server.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(server)
        for pipe in (server.stdin, server.stdout):
            if pipe is not None:
                pipe.close()


@gc_paused()
def records(source: ClusterSource) -> int:
    """Read the list through the adapter and make a record of each pod; return how many.

    Garbage is not looked for meanwhile, as in a snapshot.
    """
    made = [pod_record(pod, owner=nearest_owner(pod)) for pod in source.list(PODS).items]
    return sum(record is not None for record in made)


def decoded(bodies: list[bytes]) -> int:
    """Decode the same bytes with orjson at its fastest; return how many pods.

    No answer is kept longer than its chunk and no garbage is looked for meanwhile, which would
    take longer than decoding.
    """
    gc.disable()
    try:
        return sum(len(orjson.loads(body)["items"]) for body in bodies)
    finally:
        gc.enable()


def model_classes(body: bytes) -> int:
    """Decode one chunk as the official client does; return how many pods."""
    made: Any = ApiClient().deserialize(body.decode(), "V1PodList", "application/json")
    return len(made.items)


def stored(source: ClusterSource) -> int:
    """Write a whole look at the cluster into the database; return how many pods."""
    cluster = Cluster.objects.get_or_create(name=SNAPSHOT_CLUSTER)[0]
    return snapshot(cluster, source, NOW).pods


def measure(size: str) -> dict[str, Any]:
    """Return seconds of each. The model classes are run on one chunk and taken times chunks."""
    pods = int(size)
    bodies = list(pages(pods)[PODS])
    with api_server(pods) as url:
        source = cluster_source(Cluster(name="bench", kubernetes={"api_server": url}))
        if source is None:
            raise RuntimeError("the cluster has no API server")
        counts = {records(source), decoded(bodies)}
        if counts != {pods}:
            raise RuntimeError(f"{counts} pods were read, not {pods}")
        found = alternated({"records": lambda: records(source), "orjson": lambda: decoded(bodies)})
        first = timed(lambda: stored(source))
    models = timed(lambda: model_classes(bodies[0]))
    scale = pods / len(orjson.loads(bodies[0])["items"])
    pairs = zip(found["records"], found["orjson"], strict=True)
    return {
        "records_seconds": wall(found["records"]),
        "orjson_seconds": wall(found["orjson"]),
        "ratio": median(a.wall / b.wall for a, b in pairs),
        "stored_seconds": first.wall,
        "models_seconds": models.wall * scale,
        "bytes": sum(map(len, bodies)),
        "pods": pods,
        "peak_mib": peak_mib(),
    }

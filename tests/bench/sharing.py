"""Worker: an hour of a cluster that shares its GPUs, beside one of as many exclusive GPUs.

python -m tests.bench.sharing GPUS URL SHARED_URL FOLDER
"""

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from apps.clusters.gateways import metrics_source
from apps.clusters.models import Cluster
from apps.usage.models import PodHour
from tests.bench.collecting import collect, curl_config, downloaded, recorded, sizes
from tests.bench.database import fill_shared, sharing, watched
from tests.bench.fleet import HOUR
from tests.bench.measuring import Timed, alternated, cpu, wall
from tests.bench.shared_fleet import SharedFleet

if TYPE_CHECKING:
    import requests

NANO = 1_000_000_000


def measure(size: str, url: str, shared: str, place: str) -> dict[str, Any]:
    """Return how much longer the shared cluster takes, and how exact it is.

    The database must hold the exclusive cluster. `ratio` is of the seconds, `curl_ratio` of those
    of downloading the answers alone, `rows_ratio` of the device rows; `over_curl` is the shared
    cluster's own time beside its downloads, `over_curl_ratio` that beside the exclusive one's.
    """
    gpus = int(size)
    fill_shared(gpus, url, shared)
    names = {"exclusive": watched(gpus), "shared": sharing(gpus)}
    runs: dict[str, Any] = {}
    wanted: dict[str, list[requests.PreparedRequest]] = {}
    for kind, name in names.items():
        wanted[kind] = []
        with recorded(wanted[kind]):
            collect(name)
        folder = Path(place) / kind
        folder.mkdir()
        config = curl_config(wanted[kind], folder)
        runs[kind] = lambda name=name: collect(name)
        runs[f"{kind} curl"] = lambda config=config: downloaded(config)
    found = alternated(runs)
    over_curl = {kind: _ratio(found[kind], found[f"{kind} curl"]) for kind in names}
    rows = {kind: _device_rows(name) for kind, name in names.items()}
    return {
        "ratio": _ratio(found["shared"], found["exclusive"]),
        "curl_ratio": _ratio(found["shared curl"], found["exclusive curl"]),
        "over_curl": over_curl["shared"],
        "over_curl_ratio": over_curl["shared"] / over_curl["exclusive"],
        "rows_ratio": rows["shared"] / rows["exclusive"],
        "seconds": wall(found["shared"]),
        "cpu_seconds": cpu(found["shared"]),
        "cpu_ratio": cpu(found["shared"]) / cpu(found["exclusive"]),
        "requests": len(wanted["shared"]),
        "bytes": sum(sizes(wanted["shared"], Path(place) / "shared")),
        **_exactness(sharing(gpus), SharedFleet(gpus)),
    }


def _device_rows(name: str) -> int:
    """Return how many rows of devices and holders the hour has: its series, about."""
    return len(metrics_source(Cluster.objects.get(name=name)).devices(HOUR).rows)


def _ratio(some: list[Timed], others: list[Timed]) -> float:
    return median(a.wall / b.wall for a, b in zip(some, others, strict=True))


def _exactness(name: str, fleet: SharedFleet) -> dict[str, Any]:
    """Return how many pods held, and by how many GPU-hours the worst of them is off."""
    start, end = int(HOUR.start_seconds), int(HOUR.end_seconds)
    truth = {}
    for node in fleet.nodes:
        for pod in node.pods:
            seconds = pod.held_seconds(start, end)
            if seconds:
                truth[pod.uid] = seconds * pod.units * node.kind.weight / 3600
    rows = PodHour.objects.filter(cluster__name=name, hour=HOUR.start)
    held = {uid: amount / NANO for uid, amount in rows.values_list("pod__uid", "allocated")}
    off = max(abs(truth.get(uid, 0.0) - held.get(uid, 0.0)) for uid in truth.keys() | held.keys())
    return {"pods": len(truth), "gpu_hours_off": off}

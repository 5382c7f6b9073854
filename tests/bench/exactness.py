"""Worker: what the portal finds out, held against what the fleet is.

python -m tests.bench.exactness GPUS
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models import Sum

from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.window import Window
from apps.clusters.gateways import metrics_source
from apps.clusters.models import Cluster, Namespace
from apps.usage.models import PodHour
from apps.usage.services import collect_window
from tests.bench.database import NOW, unwatched, watched
from tests.bench.fleet import HOUR, Fleet, SlotTruth

NANO = 1_000_000_000
# A namespace that held this many GPU-hours is held to 0.5 %.
SMALL_GPU_HOURS = 1.0


def mean_errors(rows: Iterable[DeviceSlot], truths: Iterable[SlotTruth]) -> dict[str, Any]:
    """Return how far means are off, at most, and how many rows are missing or not there really.

    `aligned` is of the nodes that are scraped on full seconds. A row counts as wrong when its
    number of samples is.
    """
    found = {(r.slot, r.uuid, r.namespace, r.pod): r for r in rows}
    worst = {"aligned": 0.0, "other": 0.0}
    wrong = compared = 0
    for truth in truths:
        row = found.pop((truth.slot, truth.uuid, truth.namespace, truth.pod), None)
        if row is None or row.activity_sum is None or row.samples != truth.samples:
            wrong += 1
            continue
        compared += 1
        kind = "aligned" if truth.on_the_second else "other"
        worst[kind] = max(worst[kind], abs(row.activity_sum / row.samples - truth.mean))
    return {**worst, "wrong": wrong + len(found), "compared": compared}


def device_errors(gpus: int, fleet: Fleet) -> dict[str, Any]:
    """Return the errors of the hourly and of the backfill queries."""
    source = metrics_source(Cluster.objects.get(name=watched(gpus)))
    truths = list(fleet.slot_truths())
    slots = set(HOUR.slots())
    longer = Window(HOUR.start - timedelta(hours=1), HOUR.end + timedelta(hours=1))
    ranged = [row for row in source.devices(longer).rows if row.slot in slots]
    return {
        "hourly": mean_errors(source.devices(HOUR).rows, truths),
        "backfill": mean_errors(ranged, truths),
    }


def allocated(name: str) -> dict[str, int]:
    """Collect the hour and return the allocated nano-GPU-hours by namespace.

    Raises RuntimeError where the hour fails.
    """
    (outcome,) = collect_window(name, HOUR, now=NOW)
    if outcome.state.value == "failed":
        raise RuntimeError(f"{name}: {outcome.error}")
    names = dict(Namespace.objects.filter(cluster__name=name).values_list("pk", "name"))
    rows = PodHour.objects.filter(cluster__name=name, hour=HOUR.start).order_by()
    sums = rows.values("namespace_id").annotate(sum=Sum("allocated"))
    return {names[row["namespace_id"]]: row["sum"] for row in sums}


def series_errors(fleet: Fleet, found: dict[str, int]) -> dict[str, float]:
    """Return by how many per cent the total, and the worst namespace, are off."""
    truth = fleet.gpu_seconds()
    total = sum(truth.values()) / 3600
    worst = max(
        abs(found.get(namespace, 0) / NANO / (seconds / 3600) - 1)
        for namespace, seconds in truth.items()
        if seconds / 3600 > SMALL_GPU_HOURS
    )
    off = abs(sum(found.values()) / NANO / total - 1)
    return {"total_percent": off * 100, "namespace_percent": worst * 100}


def api_error(fleet: Fleet, found: dict[str, int]) -> float:
    """Return by how many GPU-hours any namespace is off; each pod's hours are rounded to 1e-9."""
    start, end = int(HOUR.start_seconds), int(HOUR.end_seconds)
    truth: dict[str, int] = defaultdict(int)
    for pod in fleet.pods():
        truth[pod.namespace] += round(pod.held_seconds(start, end) * pod.units * NANO / 3600)
    names = truth.keys() | found.keys()
    return max(abs(truth[name] - found.get(name, 0)) for name in names) / NANO


def measure(size: str) -> dict[str, Any]:
    """Return every error."""
    gpus = int(size)
    fleet = Fleet(gpus)
    return {
        **device_errors(gpus, fleet),
        "series": series_errors(fleet, allocated(unwatched(gpus))),
        "api_gpu_hours": api_error(fleet, allocated(watched(gpus))),
    }

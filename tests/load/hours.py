"""Worker: a cluster filled, its closed hour collected, or what follows from the hours of all.

python -m tests.bench.worker tests.load.hours ACTION ARGUMENT…
"""

import time
from collections.abc import Callable
from typing import Any

from apps.clusters.models import Cluster
from apps.operations.services import derive_after_hours, load_catalog
from tests.bench.collecting import collect as collect_hour
from tests.bench.database import NOW, catalog_of, write_ledger
from tests.bench.fleet import Fleet
from tests.bench.measuring import peak_mib
from tests.bench.sizes import sizes as database_sizes


def measure(action: str, *arguments: str) -> dict[str, Any]:
    """Return what an action found, its wall and CPU seconds, and the most memory that it had."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = _ACTIONS[action](*arguments) or {}
    return {
        **found,
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mib": peak_mib(),
    }


def fill(name: str, gpus: str, url: str) -> None:
    """Add a cluster to the catalog with a ledger of so many GPUs."""
    add(name, url)
    write_ledger(name, Fleet(int(gpus)))


def add(name: str, url: str) -> None:
    """Add a cluster to the catalog, with the metrics at a URL."""
    known = Cluster.objects.filter(active=True).values_list("name", "prometheus")
    urls = {one: prometheus["url"] for one, prometheus in known}
    load_catalog(catalog_of(urls | {name: url}), "load.yaml", now=NOW)


def watch(name: str, url: str) -> None:
    """Add a cluster whose API server is at a URL; nothing answers for its metrics."""
    add(name, "http://127.0.0.1:9")
    Cluster.objects.filter(name=name).update(kubernetes={"api_server": url})


def derive() -> None:
    """Compute what follows from all collected hours. Raises RuntimeError where a step fails."""
    failed = [one.step for one in derive_after_hours(lambda: NOW) if one.done is None]
    if failed:
        raise RuntimeError(f"failed: {failed}")


def sizes() -> dict[str, int]:
    """Return rows and bytes of the tables that grow by the hour; others do with pods and days."""
    hourly = [one for one in database_sizes() if one.table in _HOURLY]
    return {"rows": sum(one.rows for one in hourly), "bytes": sum(one.bytes for one in hourly)}


_HOURLY = (
    *("usage_podhour", "usage_nodehour", "usage_tierhour", "usage_teamhour"),
    *("costs_workloadcosthour", "costs_teamcosthour", "quotas_quotakeyhour"),
    *("fairness_teamfairnesshour", "fairness_tierfairnesshour", "fairness_loanhour"),
)
_ACTIONS: dict[str, Callable[..., dict[str, int] | None]] = {
    "fill": fill,
    "watch": watch,
    "collect": collect_hour,
    "derive": derive,
    "sizes": sizes,
}

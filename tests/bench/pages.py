"""Worker: the server's time for each page over thirteen months, and charts beside go.Figure.

python -m tests.bench.pages DAYS POD_HOUR_DAYS WORKLOADS
"""

import gc
import time
from datetime import UTC, datetime
from statistics import median
from typing import Any

from django.db import connection
from django.test import Client
from msgspec import to_builtins

from apps.accounts.models import User
from tests.bench import charting, history
from tests.bench.history import History
from tests.bench.measuring import REPETITIONS, percentile95

_ROUNDS = 4 * REPETITIONS
_PROBES = 3
_WINDOWS = ("window=today", "window=24h", "window=7d", "window=30d", "window=last-month")


def addresses(facts: History) -> dict[str, list[str]]:
    """Return what is asked for of each page: its address in each window, the longest included."""
    first = facts.start.date()
    last = facts.end.date()
    windows = (*_WINDOWS, f"first={first}&last={last}")
    workload = f"/workloads/{facts.cluster}/{facts.namespace}/Job/{facts.workload}/"
    explained = "figure=not_busy_gpu_hours"
    of_window = {
        "overview": "/?",
        "tier": f"/capacity/tiers/{facts.tier}/?",
        "teams": "/capacity/teams/?",
        "team": f"/capacity/teams/{facts.team}/?",
        "workload": f"{workload}?",
        "pod": f"/pods/{facts.cluster}/{facts.pod}/?",
        "data health": "/admin/data-quality/?",
        "explain a tier": f"/explain/?{explained}&tier={facts.tier}&",
        "explain a team": f"/explain/?{explained}&team={facts.team}&",
    }
    found = {name: [path + window for window in windows] for name, path in of_window.items()}
    return found | {
        "overview, now alone": ["/?part=now"],
        "tiers": ["/capacity/tiers/"],
        "search": ["/search/?q=train-1", "/search/?q=team", "/search/?q=nothing-has-it"],
        "first run": ["/first-run/"],
    }


def seconds(client: Client, address: str) -> float:
    """Return how long the server takes to answer. Raises RuntimeError unless it answers well."""
    headers = {"HX-Request": "true"} if "part=now" in address else {}
    gc.collect()
    began = time.perf_counter()
    response = client.get(address, headers=headers)
    took = time.perf_counter() - began
    if response.status_code != 200:
        raise RuntimeError(f"{address}: {response.status_code}")
    return took


def measured(client: Client, facts: History) -> dict[str, Any]:
    """Return for each page the p95 and median of its slowest window, in seconds.

    Of the presets; the median of all thirteen months stands beside it.
    """
    found = {}
    for name, paths in addresses(facts).items():
        usual = [path for path in paths if "first=" not in path]
        every = {path: median(_times(client, path, _PROBES)) for path in paths}
        slowest = max(usual, key=lambda path: every[path])
        times = _times(client, slowest, _ROUNDS)
        found[name] = {
            "window": slowest.partition("window=")[2] or "none",
            "p95_seconds": percentile95(times),
            "median_seconds": median(times),
            "longest_seconds": max((every[p] for p in paths if "first=" in p), default=None),
            "every": every,
        }
    return found


def _times(client: Client, path: str, count: int) -> list[float]:
    seconds(client, path)
    return [seconds(client, path) for _ in range(count)]


def measure(days: str, pod_hour_days: str, workloads: str) -> dict[str, Any]:
    """Fill the database, then measure every page and chart."""
    began = time.perf_counter()
    facts = history.write(
        datetime.now(UTC),
        days=int(days),
        pod_hour_days=int(pod_hour_days),
        workloads=int(workloads),
    )
    filled = time.perf_counter() - began
    client = Client(headers={"Host": "127.0.0.1"})
    client.force_login(User.objects.get(username="bench-pages"))
    return {
        "filled_seconds": filled,
        "rows": facts.rows,
        "history": {key: str(value) for key, value in to_builtins(facts).items()},
        "pages": measured(client, facts),
        "charts": charting.measure(facts),
        "database": connection.vendor,
    }

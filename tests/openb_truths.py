"""Holds what the portal says of the pods of `openb` against the trace's published sums.

`python -m tests.openb_truths [DAYS]` serves `openb`, loads its catalog, collects its days over
HTTP into the database of DATABASE_URL (which it migrates first), and compares the GPU-hours
allocated on every GPU model: of all 34 days with the sums published with the trace, of fewer with
what the trace's rows add up to. It ends with status 1 when a figure is off.
"""

import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from math import fsum

from simulator.fleet import DAY
from simulator.scenarios.openb import DAYS, FOLDER, WINDOW
from tests.simulator.truths import NOW
from tests.truths import begin, collect_days, say

TOLERANCE = 0.001
"""0.1 %, as promised for every figure."""

END = datetime.fromtimestamp(NOW // DAY * DAY, UTC)
"""The trace's window ends at the last midnight before NOW."""

PUBLISHED: Mapping[str, float] = {
    "G2": 24211.341228,
    "G3": 635.461944,
    "P100": 129.501944,
    "T4": 2481.319575,
    "V100M16": 43.548333,
    "V100M32": 1855.218056,
}
"""`derived_subfleet.window_gpu_hours_fractional_by_model` of the truths beside the trace."""


def trace_figures(days: int) -> dict[str, float]:
    """Return GPU-hours by model of the last days of the window, from the trace's own rows.

    They are read here by other means than in the lab, so that an error in its reader shows.
    """
    models = {row["sn"]: row["model"] for row in _rows("derived_subfleet_nodes.csv")}
    nodes = {
        row["name"]: row["node"] for row in _rows("derived_subfleet_placement_gpuspec33.csv.gz")
    }
    found: dict[str, list[float]] = defaultdict(list)
    for row in _rows("openb_pod_list_gpuspec33.csv.gz"):
        if row["name"] in nodes:
            begun = max(float(row["scheduled_time"]), WINDOW[1] - days * DAY)
            held = max(0.0, min(float(row["deletion_time"]), WINDOW[1]) - begun)
            gpus = int(row["num_gpu"]) * int(row["gpu_milli"]) / 1000
            found[models[nodes[row["name"]]]].append(gpus * held / 3600)
    return {model: fsum(parts) for model, parts in sorted(found.items())}


def _rows(name: str) -> Iterator[Mapping[str, str]]:
    content = (FOLDER / name).read_bytes()
    text = gzip.decompress(content) if name.endswith(".gz") else content
    yield from csv.DictReader(text.decode().splitlines())


def portal_figures() -> dict[str, float]:
    """Return the same of what was collected."""
    from apps.usage.models import TierHour

    found: dict[str, float] = defaultdict(float)
    for model, amount in TierHour.objects.values_list("gpu_model__name", "allocated"):
        found[model] += amount / 1e9
    return found


def differences(expected: Mapping[str, float], found: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for every model, and for all together, whose figure is off."""
    pairs = [(model, amount, found.get(model, 0.0)) for model, amount in expected.items()]
    pairs.append(("all models", fsum(expected.values()), fsum(found.values())))
    for name, wanted, got in pairs:
        if abs(got - wanted) > TOLERANCE * wanted + 1e-6:
            yield f"GPU-hours of {name}: {got:.6f}, the trace has {wanted:.6f}"


def main(days: int) -> int:
    begin()
    from simulator.catalog import catalog_yaml
    from simulator.scenarios.registry import load
    from tests.served_lab import served_lab

    days = min(days, DAYS)
    expected = dict(PUBLISHED) if days == DAYS else trace_figures(days)
    scenario = load("openb", now=NOW)
    with served_lab(scenario, NOW) as url:
        for line in collect_days(url, catalog_yaml(scenario, url=url), END, days):
            say(line)
    found = portal_figures()
    say(f"{fsum(found.values()):,.3f} GPU-hours of {END - timedelta(days=days)} to {END}")
    off = list(differences(expected, found))
    for line in off:
        say(line)
    say("every figure is as in the trace" if not off else f"{len(off)} figures are off")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else DAYS))

"""Worker: one question, asked of the portal and of rules that people record for their dashboards.

python -m tests.bench.recording_rules GPUS URL FOLDER

How many GPU-hours each namespace held in an hour, and how many of them its GPUs were active. The
rules are evaluated each minute, as dashboards of GPUs have it, by promtool over the fleet's series,
and their series are served by a Prometheus of their own. A range of one scrape stands for the
staleness marks of a live server, which data loaded from a file lacks: without it every pod would be
counted for five minutes more.
"""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db.models import Sum

from apps.clusters.models import Namespace
from apps.usage.models import PodHour
from apps.usage.services import collect_window
from tests.bench.database import NOW, watched
from tests.bench.exactness import NANO, SMALL_GPU_HOURS
from tests.bench.fleet import CLUSTER, HOUR, INTERVAL_SECONDS, Fleet
from tests.bench.measuring import alternated, wall
from tests.bench.programs import prometheus
from tests.programs import find

_HELD, _ACTIVE = "namespace:gpu_held:sum", "namespace:gpu_active:sum"
_ONE_SCRAPE = f'cluster="{CLUSTER}"}}[{INTERVAL_SECONDS}s]'
_OVER = f'last_over_time(kube_pod_status_phase{{phase=~"Succeeded|Failed",{_ONE_SCRAPE}) == 1'
_REQUESTS = "kube_pod_container_resource_requests"
_RULES = {
    _HELD: (
        f'sum by (namespace) (last_over_time({_REQUESTS}{{resource="nvidia_com_gpu",node!="",'
        f"{_ONE_SCRAPE}) unless on (namespace, pod, uid) ({_OVER}))"
    ),
    _ACTIVE: (
        "label_replace(sum by (exported_namespace) (last_over_time("
        f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{exported_namespace!="",{_ONE_SCRAPE})), '
        '"namespace", "$1", "exported_namespace", "(.*)")'
    ),
}

Answers = dict[str, dict[str, float]]
"""GPU-hours by namespace, of each of the two questions."""


def record(url: str, folder: Path) -> Path:
    """Evaluate the rules for each minute of the hour; return the folder of their blocks."""
    rules = [{"record": name, "expr": query} for name, query in _RULES.items()]
    group = {"name": "gpus", "interval": "1m", "rules": rules}
    file = folder / "rules.yml"
    # JSON is YAML.
    file.write_text(json.dumps({"groups": [group]}), encoding="ascii")
    start, end = int(HOUR.start_seconds), int(HOUR.end_seconds)
    words = ["tsdb", "create-blocks-from", "rules", "-q", f"--url={url}", f"--start={start}"]
    data = folder / "recorded"
    shutil.rmtree(data, ignore_errors=True)
    words += [f"--end={end - 1}", f"--output-dir={data}", str(file)]
    subprocess.run([find("promtool"), *words], check=True, capture_output=True)  # noqa: S603 - ours
    return data


def of_rules(url: str) -> Answers:
    """Ask the recorded series for the GPU-hours of the hour."""
    at = f"{HOUR.end_seconds - 0.001:.3f}"
    found: Answers = {}
    for name in _RULES:
        words = {"query": f"sum_over_time({name}[1h]) / 60", "time": at}
        form = urllib.parse.urlencode(words).encode()
        with urllib.request.urlopen(f"{url}/api/v1/query", form, timeout=60) as answer:  # noqa: S310 - ours
            series = json.load(answer)["data"]["result"]
        found[name] = {one["metric"]["namespace"]: float(one["value"][1]) for one in series}
    return found


def of_portal(name: str) -> Answers:
    """Ask the facts for the same."""
    names = dict(Namespace.objects.filter(cluster__name=name).values_list("pk", "name"))
    rows = PodHour.objects.filter(cluster__name=name, hour=HOUR.start).order_by()
    sums = rows.values_list("namespace_id").annotate(held=Sum("allocated"), active=Sum("busy"))
    found: Answers = {_HELD: {}, _ACTIVE: {}}
    for namespace, held, active in sums:
        found[_HELD][names[namespace]] = held / NANO
        found[_ACTIVE][names[namespace]] = active / NANO
    return found


def _ways(recorded: str, name: str) -> dict[str, Callable[[], Answers]]:
    return {"rules": lambda: of_rules(recorded), "portal": lambda: of_portal(name)}


def truth(fleet: Fleet) -> Answers:
    """Return what the fleet held, to the second, and what its samples say was active."""
    active: dict[str, float] = defaultdict(float)
    for one in fleet.slot_truths():
        if one.namespace:
            active[one.namespace] += one.mean * one.samples * INTERVAL_SECONDS / 3600
    held = {namespace: seconds / 3600 for namespace, seconds in fleet.gpu_seconds().items()}
    return {_HELD: held, _ACTIVE: dict(active)}


def errors(found: Answers, right: Answers) -> dict[str, float]:
    """Return by how many per cent held GPU-hours in all, and of the worst namespace, are off."""
    result = {}
    for name, what in ((_HELD, "held"), (_ACTIVE, "active")):
        total = sum(right[name].values())
        result[f"{what}_total"] = abs(sum(found[name].values()) / total - 1) * 100
        result[f"{what}_worst"] = max(
            abs(found[name].get(namespace, 0.0) / hours - 1) * 100
            for namespace, hours in right[name].items()
            if hours > SMALL_GPU_HOURS
        )
    return result


def measure(size: str, url: str, place: str) -> dict[str, Any]:
    """Return seconds and errors of both ways."""
    name, folder = watched(int(size)), Path(place)

    def collect() -> None:
        (outcome,) = collect_window(name, HOUR, now=NOW)
        if outcome.state.value != "complete":
            raise RuntimeError(f"the hour came out {outcome.state}: {outcome.error}")

    made = alternated({"rules": lambda: record(url, folder), "portal": collect})
    right = truth(Fleet(int(size)))
    with prometheus(folder / "recorded") as recorded:
        asked = _ways(recorded, name)
        read = alternated(asked)
        wrong = {way: errors(ask(), right) for way, ask in asked.items()}
    return {
        way: {
            "made_seconds": wall(made[way]),
            "read_seconds": wall(read[way]),
            **wrong[way],
        }
        for way in asked
    }

"""What is measured, in which order, and the target of each figure."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

from apps.accounts.domain.structs import replace
from tests.bench import exports_figures, generate
from tests.bench.auditing_figures import audited
from tests.bench.fairness_figures import shared_out
from tests.bench.figures import Figure, at_least, at_most, stated
from tests.bench.fleet import Fleet
from tests.bench.page_figures import paged
from tests.bench.pending_figures import checked, waited
from tests.bench.programs import BenchFailed, manage, program, prometheus, worker
from tests.bench.quotas_figures import limited
from tests.bench.shared_fleet import SharedFleet

# From how many GPUs on the targets of one collected hour hold.
TARGETED = 10_000
# The client's data frames of more would not fit into memory.
MOST_FRAMES = 10_000
# A Prometheus more is at work then, with over twice as many series.
MOST_SHARED = 10_000
# promtool asks for the whole hour in one answer, which a server refuses of more series.
MOST_RECORDED = 10_000
_WAYS = ("means", "means-frames", "rows", "rows-frames")
_RATIOS = {10_000: "1.13", 100_000: "1.18"}
_GROWTHS = {10_000: "7.1", 100_000: "9.0"}
_MOST_MIB = {10_000: 256.0, 100_000: 1024.0}

Say = Callable[[str], None]


class Scope(Struct, frozen=True):
    """How much is measured: fleets of so many GPUs, rows of an hour, pods of a list; how often.

    `history` is how many days pages look back on, how many of them by the pod, of how many
    workloads. `waiting` is how many nodes a cluster has in which how many pods wait. `fairness` is
    how many teams are entitled to how many tiers on how many days, `quotas` how many namespaces
    have one of five keys, `audit` how many lines an audit has, `exports` how many rows a cost file.
    `campus_days` are the days of campus that recommendations are made from, 0 for none.

    The targets of times are for what is large: with `timed` false they are stated only.
    """

    sizes: tuple[int, ...]
    rows: int = 20_000
    pods: int = 20_000
    history: tuple[int, int, int] = (396, 30, 2_000)
    waiting: tuple[int, int] = (2_000, 5_000)
    fairness: tuple[int, int, int] = (1_000, 20, 90)
    quotas: int = 1_000
    audit: int = 200_000
    exports: int = 400_000
    campus_days: int = 30
    repetitions: int = 5
    timed: bool = True


def all_of(scope: Scope, data: Path, folder: Path, say: Say) -> Iterator[Figure]:
    """Measure everything in the scope, yielding figures as they come.

    `folder` is for what need not stay. Raises BenchFailed.
    """
    seconds: dict[int, float] = {}
    manage("migrate", "--verbosity", "0")
    for gpus in scope.sizes:
        try:
            blocks = generate.blocks(Fleet(gpus), data, say)
        except generate.NoRoom as reason:
            raise BenchFailed(str(reason)) from reason
        with prometheus(blocks) as url:
            say(f"{gpus:,} GPUs: filling the database")
            worker("database", gpus, url)
            say(f"{gpus:,} GPUs: collecting")
            found = worker("collecting", gpus, folder)
            seconds[gpus] = found["collect_seconds"]
            yield from collected(gpus, found, seconds.get(gpus // 10))
            if gpus <= MOST_FRAMES:
                say(f"{gpus:,} GPUs: against data frames")
                yield from against_frames(gpus, url, min(3, scope.repetitions))
            say(f"{gpus:,} GPUs: exactness")
            yield from exact(gpus, worker("exactness", gpus))
            if gpus <= MOST_RECORDED:
                say(f"{gpus:,} GPUs: beside recording rules")
                with TemporaryDirectory(dir=folder) as place:
                    found = worker("recording_rules", gpus, url, place)
                yield from beside_rules(gpus, found)
            if gpus <= MOST_SHARED:
                yield from shared(gpus, url, data, folder, say)
    for figure in _without_metrics(scope, folder, say):
        yield figure if scope.timed else replace(figure, target=None, holds=None)


def _without_metrics(scope: Scope, folder: Path, say: Say) -> Iterator[Figure]:
    say("an hour written again")
    yield from written(scope, folder)
    say("reads of the API")
    yield from read(worker("reading", scope.pods, GPUPORTAL_API_RATE="1000000/min"))
    say("a list of the Kubernetes API")
    yield from listed(worker("listing", scope.pods))
    say("pages over a long history")
    yield from paged(*scope.history, folder)
    say("a cluster in which much waits")
    yield from waited(*scope.waiting, folder)
    yield from checked(scope.pods, folder)
    say("fairness of many teams on many tiers")
    yield from shared_out(*scope.fairness, folder)
    say("quotas of many namespaces")
    yield from limited(scope.quotas, folder)
    say("a long audit")
    yield from audited(scope.audit, folder)
    if scope.campus_days:
        say("recommendations on campus")
        yield from covered(scope.campus_days, folder)
    say("cost files")
    yield from exports_figures.written(scope.exports, folder)
    yield from exports_figures.focus_month(scope.exports // 2, folder)


# ---------------------------------------------------------------- recommendations


def covered(days: int, folder: Path) -> Iterator[Figure]:
    """Yield how much of the waste of campus recommendations cover, and by how many kinds."""
    url = f"sqlite:///{folder / 'campus.db'}"
    found = program("tests.campus_truths", days, DATABASE_URL=url)
    name = f"campus, {days} days"
    yield at_least(f"{name}: waste covered", found["waste_covered_ratio"] or 0.0, 0.5, "")
    yield at_least(f"{name}: kinds of recommendations", len(found["kinds"]), 6, "")


# ---------------------------------------------------------------- one hour collected


def collected(gpus: int, found: Mapping[str, Any], smaller: float | None) -> list[Figure]:
    """Return the figures of one collected hour; `smaller` is the seconds at a tenth of the GPUs."""
    size = f"{gpus:,} GPUs"
    name = f"{size}: one hour collected ÷ curl downloading the same answers"
    ratio = found["ratio"]
    figures = [at_most(name, ratio, 1.5, "×", _RATIOS.get(gpus, ""))]
    if gpus < TARGETED:
        figures = [stated(name, ratio, "×")]
    if smaller is not None:
        name = f"{size}: one hour collected, growth from a tenth of the GPUs"
        growth = found["collect_seconds"] / smaller
        figures.append(at_most(name, growth, 11, "×", _GROWTHS.get(gpus, "")))
    figures.append(_memory(gpus, found["peak_mib"]))
    name = f"{size}: CPU of the worker for one hour (two slots, with Django)"
    figures.append(stated(name, found["cpu_seconds"], "s"))
    figures.append(stated(f"{size}: one hour collected", found["collect_seconds"], "s"))
    name = f"{size}: curl downloading the same {found['requests']} answers"
    figures.append(stated(name, found["curl_seconds"], "s"))
    figures.append(stated(f"{size}: answers downloaded", found["bytes"] / 1e6, "MB"))
    return figures


def _memory(gpus: int, mib: float) -> Figure:
    name = f"{gpus:,} GPUs: peak memory of the worker"
    most = _MOST_MIB.get(gpus)
    return stated(name, mib, "MiB") if most is None else at_most(name, mib, most, "MiB")


# ---------------------------------------------------------------- against data frames


def against_frames(gpus: int, url: str, repetitions: int) -> list[Figure]:
    """Return the figures of the adapter against prometheus-api-client's data frames.

    Raises BenchFailed when the two do not come to the same means.
    """
    worker("dataframes", "rows", url)  # what the server reads from disk once
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    for _ in range(repetitions):
        for way, found in runs.items():
            found.append(worker("dataframes", way, url))
    _check_same([found[0] for found in runs.values()])
    figures = []
    for way, what in (("means", "slot means"), ("rows", "all device rows (4 metrics)")):
        figures += _beside(f"{gpus:,} GPUs: {what}", gpus, runs[way], runs[f"{way}-frames"])
    cpu = _of(runs["rows"], "cpu_seconds")
    slot = "0.24 at 10,000, one slot" if gpus == TARGETED else ""
    name = f"{gpus:,} GPUs: all device rows, CPU without Django (two slots)"
    return [*figures, stated(name, cpu, "s", slot)]


def _beside(
    name: str, gpus: int, ours: list[dict[str, Any]], frames: list[dict[str, Any]]
) -> list[Figure]:
    """Return how much faster and smaller ours is than raw ranges, data frames and pandas."""
    faster = median(b["seconds"] / a["seconds"] for a, b in zip(ours, frames, strict=True))
    smaller = median(a["peak_mib"] / b["peak_mib"] for a, b in zip(ours, frames, strict=True))
    time = f"{name}, raw ranges with pandas ÷ ours"
    memory = f"{name}, our memory ÷ theirs"
    figures = [stated(time, faster, "×"), stated(memory, smaller, "×")]
    if gpus >= TARGETED:
        figures = [
            at_least(time, faster, 10, "×", "20"),
            at_most(memory, smaller, 1 / 6, "×", "1/17"),
        ]
    return [
        *figures,
        stated(f"{name}, ours", _of(ours, "seconds"), "s"),
        stated(f"{name}, theirs", _of(frames, "seconds"), "s"),
        stated(f"{name}, our memory", _of(ours, "peak_mib"), "MiB"),
        stated(f"{name}, their memory", _of(frames, "peak_mib"), "MiB"),
    ]


def _check_same(found: list[dict[str, Any]]) -> None:
    sums = [one["sum"] for one in found]
    if len({one["devices"] for one in found}) > 1 or max(sums) - min(sums) > 1e-6:
        raise BenchFailed(f"the ways do not come to the same means: {found}")


def _of(runs: list[dict[str, Any]], name: str) -> float:
    return float(median(run[name] for run in runs))


# ---------------------------------------------------------------- GPUs that are shared


def shared(gpus: int, url: str, data: Path, folder: Path, say: Say) -> Iterator[Figure]:
    """Yield the figures of a cluster that shares its GPUs beside the exclusive one at `url`."""
    try:
        blocks = generate.blocks(SharedFleet(gpus), data, say)
    except generate.NoRoom as reason:
        raise BenchFailed(str(reason)) from reason
    with prometheus(blocks) as other, TemporaryDirectory(dir=folder) as place:
        say(f"{gpus:,} GPUs: a third exclusive, a third time-sliced, a third MIG")
        yield from beside_exclusive(gpus, worker("sharing", gpus, url, other, place))


def beside_exclusive(gpus: int, found: Mapping[str, Any]) -> list[Figure]:
    """Return what sharing costs: in time, and in time beside what a download of it takes."""
    size = f"{gpus:,} GPUs, two thirds shared"
    name = f"{size}: one hour collected ÷ the same of exclusive GPUs"
    figures = [
        at_most(name, found["ratio"], 1.3, "×"),
        at_most(f"{name}, each ÷ curl", found["over_curl_ratio"], 1.3, "×"),
    ]
    if gpus < TARGETED:
        figures = [replace(figure, target=None, holds=None) for figure in figures]
    off = f"{size}: allocated from the API, worst pod of {found['pods']:,} off by"
    return [
        *figures,
        stated(f"{size}: one hour collected ÷ curl", found["over_curl"], "×"),
        stated(f"{name}, CPU of the worker", found["cpu_ratio"], "×"),
        stated(f"{name}, curl alone", found["curl_ratio"], "×"),
        stated(f"{name}, device rows", found["rows_ratio"], "×"),
        stated(f"{size}: one hour collected", found["seconds"], "s"),
        stated(f"{size}: CPU of the worker for one hour", found["cpu_seconds"], "s"),
        stated(f"{size}: {found['requests']} answers downloaded", found["bytes"] / 1e6, "MB"),
        at_most(off, found["gpu_hours_off"], 1e-9, "GPU-hours"),
    ]


# ---------------------------------------------------------------- exactness


def exact(gpus: int, found: Mapping[str, Any]) -> list[Figure]:
    """Return how far off the portal is from the truth of the fleet."""
    size = f"{gpus:,} GPUs"
    figures = []
    for queries in ("hourly", "backfill"):
        errors = found[queries]
        name = f"{size}: mean activity per device and slot, {queries} queries"
        figures += [
            at_most(f"{name}, largest error", errors["other"], 1e-9, ""),
            at_most(f"{name}, scraped on the full second", errors["aligned"], 1e-9, ""),
            at_most(f"{name}, rows wrong of {errors['compared']:,}", errors["wrong"], 0, "rows"),
        ]
    series = found["series"]
    name = f"{size}: allocated from metrics only"
    figures += [
        at_most(f"{name}, total off by", series["total_percent"], 0.05, "%"),
        at_most(f"{name}, worst namespace off by", series["namespace_percent"], 0.5, "%"),
    ]
    name = f"{size}: allocated from the API, worst namespace off by"
    # Each pod's hours are kept to 1e-9; the truth is rounded the same way.
    figures.append(at_most(name, found["api_gpu_hours"], 1e-9, "GPU-hours"))
    return figures


# ---------------------------------------------------------------- against recording rules


def beside_rules(gpus: int, found: Mapping[str, Any]) -> list[Figure]:
    """Return time and error of an hour by namespace, ours and that of recording rules."""
    figures = []
    for way, who in (("portal", "the portal"), ("rules", "recording rules")):
        name = f"{gpus:,} GPUs, an hour by namespace, {who}"
        one = found[way]
        figures += [
            stated(f"{name}: made", one["made_seconds"], "s"),
            stated(f"{name}: read", one["read_seconds"] * 1000, "ms"),
            stated(f"{name}: allocated, total off by", one["held_total"], "%"),
            stated(f"{name}: allocated, worst namespace off by", one["held_worst"], "%"),
            stated(f"{name}: active by its samples, total off by", one["active_total"], "%"),
            stated(f"{name}: active by its samples, worst off by", one["active_worst"], "%"),
        ]
    return figures


# ---------------------------------------------------------------- writing, reading, listing


def written(scope: Scope, folder: Path) -> Iterator[Figure]:
    """Yield an hour written again on the database at hand, and on SQLite."""
    name = f"an hour of {scope.rows:,} pods written again ÷ bare"
    if os.environ["DATABASE_URL"].startswith("postgres"):
        yield from _written(f"{name} COPY (PostgreSQL)", worker("writing", scope.rows))
    url = f"sqlite:///{folder / 'writing.db'}"
    manage("migrate", "--verbosity", "0", DATABASE_URL=url)
    found = worker("writing", scope.rows, DATABASE_URL=url)
    yield from _written(f"{name} executemany (SQLite)", found)


def _written(name: str, found: Mapping[str, Any]) -> Iterator[Figure]:
    yield at_most(name, found["ratio"], 2, "×")
    yield stated(f"{name}: written again", found["again_seconds"], "s")
    yield stated(f"{name}: bare, {found['rows']:,} rows", found["bare_seconds"], "s")


def read(found: Mapping[str, Any]) -> list[Figure]:
    """Return the reads of the API against bare SQL."""
    days, pods = found["days"], found["pods"]
    one, page = found["days_of_one_tier"], found["days_page"]
    name = "13 months by day and tier, endpoint ÷ bare SQL"
    return [
        at_most(f"{name}: all {days['rows']:,} rows, page by page", days["ratio"], 3, "×"),
        stated(f"{name}: one tier, {one['rows']} rows in a page", one["ratio"], "×"),
        stated(f"{name}: one page of {page['rows']} rows", page["ratio"], "×"),
        stated("13 months by day and tier, bare SQL", days["sql_seconds"] * 1000, "ms"),
        stated("13 months by day and tier, endpoint", days["endpoint_seconds"] * 1000, "ms"),
        at_most(
            f"{pods['rows']:,} listed pods (two pages, a page has 500) ÷ bare SQL",
            pods["ratio"],
            3,
            "×",
        ),
        stated(f"{pods['rows']:,} listed pods, endpoint", pods["endpoint_seconds"] * 1000, "ms"),
    ]


def listed(found: Mapping[str, Any]) -> list[Figure]:
    """Return a Kubernetes list turned into pod records."""
    pods = f"a Kubernetes list of {found['pods']:,} pods ({found['bytes'] / 1e6:.0f} MB)"
    return [
        at_most(
            f"{pods} over HTTP into records ÷ orjson decoding the same bytes",
            found["ratio"],
            3,
            "×",
        ),
        stated(f"{pods} into records", found["records_seconds"], "s"),
        stated(f"{pods}, orjson alone", found["orjson_seconds"], "s"),
        stated(
            f"{pods}, the client's model classes (a chunk × chunks)", found["models_seconds"], "s"
        ),
        stated(f"{pods}, a first snapshot into the database", found["stored_seconds"], "s"),
    ]

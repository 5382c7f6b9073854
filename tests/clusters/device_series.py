"""Clusters instance devices are exported in every way that has been seen, as made series.

Each world is a cluster of its own, told apart by the label `cluster`.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from tests.clusters.openmetrics import ORIGIN, SLOT, Series, scrapes, series

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
MEMORY = "DCGM_FI_DEV_FB_USED"
SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
MEMORY_COPY = "DCGM_FI_DEV_MEM_COPY_UTIL"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
END = ORIGIN + 6 * SLOT
WATTS = 300.0


class Held(NamedTuple):
    """Who held a device from when to when; no pod: nobody."""

    start: float
    end: float
    namespace: str = ""
    pod: str = ""
    container: str = ""


def activity_of(uuid: str) -> Callable[[float], float]:
    """Return the activity of a device: rough, but the same in every run."""
    source = random.Random(uuid)  # noqa: S311 - made data
    levels = [round(source.random(), 6) for _ in range(977)]
    return lambda at: levels[int(at // 10) % 977]


def exporter(world: str, node: str, *, job: str = "dcgm-exporter") -> dict[str, str]:
    """Return the target labels of the exporter on a node."""
    return {
        "cluster": world,
        "job": job,
        "instance": f"{node}:9400",
        "namespace": "gpu-operator",
        "pod": f"{job}-{node}",
        "container": "exporter",
        "Hostname": node,
    }


def device(
    target: dict[str, str],
    uuid: str,
    holders: list[Held],
    *,
    form: str = "exported_",
    phase: float = 7.123,
    interval: float = 30.0,
    metrics: tuple[str, ...] = (ACTIVITY, UTILIZATION, MEMORY, ENERGY),
    values: dict[str, Callable[[float], float]] | None = None,
    **labels: str,
) -> Iterator[Series]:
    """Yield the series of a device, a new one for every holder."""
    activity = activity_of(uuid)
    given = {
        ACTIVITY: activity,
        UTILIZATION: lambda at: float(round(activity(at) * 100)),
        MEMORY: lambda at: float(1000 + int(at - ORIGIN) // 600),
        ENERGY: lambda at: 5e9 + (at - ORIGIN) * WATTS * 1000,
        **(values or {}),
    }
    for held in holders:
        names = {
            f"{form}namespace": held.namespace,
            f"{form}pod": held.pod,
            f"{form}container": held.container,
        }
        own = {"UUID": uuid, "modelName": "NVIDIA A100-SXM4-80GB", "gpu": "0", **labels}
        workload = {k: v for k, v in names.items() if v} if held.pod else {}
        for metric in metrics:
            yield series(
                metric,
                {**target, **own, **workload},
                given[metric],
                scrapes(held.start, held.end, phase=phase, interval=interval),
            )


def whole(pod: str = "", namespace: str = "vision") -> list[Held]:
    """Return one holder for all the time."""
    return [Held(ORIGIN, END, namespace if pod else "", pod, "main" if pod else "")]


def renamed() -> Iterator[Series]:
    """Workload labels renamed to `exported_*`; idle devices have none."""
    one, two = exporter("renamed", "n1"), exporter("renamed", "n2")
    two["hostname"] = two.pop("Hostname")
    change, again = ORIGIN + 2413, ORIGIN + 2 * SLOT + 601
    return chain(
        device(one, "GPU-a1", whole("train-0")),
        device(
            one,
            "GPU-a2",
            [
                Held(ORIGIN, change, "vision", "eval-0", "main"),
                Held(change, again),
                Held(again, END, "speech", "asr-0", "main"),
            ],
        ),
        device(one, "GPU-idle", whole(), phase=0.0),
        device(two, "GPU-b1", whole("serve-0", "speech"), phase=0.0),
    )


def deep() -> Iterator[Series]:
    """SM, tensor and memory copy activity; a GPU whose pod changes, and one without profiling."""
    target = exporter("deep", "n1")
    change = ORIGIN + 900
    holders = [
        Held(ORIGIN, change, "vision", "first-0", "main"),
        Held(change, END, "vision", "second-0", "main"),
    ]
    values: dict[str, Callable[[float], float]] = {
        SM_ACTIVE: lambda at: 0.2 if at < change else 0.6,
        TENSOR_ACTIVE: lambda _: 0.125,
        MEMORY_COPY: lambda _: 40.0,
    }
    every = (ACTIVITY, MEMORY, SM_ACTIVE, TENSOR_ACTIVE, MEMORY_COPY)
    return chain(
        device(target, "GPU-deep", holders, values=values, metrics=every, phase=0.0),
        device(
            target,
            "GPU-plain",
            whole("train-0"),
            values=values,
            metrics=(UTILIZATION, MEMORY, MEMORY_COPY),
        ),
        device(target, "GPU-none", whole("train-1"), metrics=(ACTIVITY, MEMORY)),
    )


def honoured() -> Iterator[Series]:
    """The exporter's own labels kept: the plain names are the workload's."""
    target = exporter("honoured", "n1")
    for name in ("namespace", "pod", "container"):
        del target[name]
    return chain(
        device(target, "GPU-h1", whole("train-0"), form=""),
        device(target, "GPU-h2", whole(), form=""),
    )


def lonely() -> Iterator[Series]:
    """Target labels with `pod`, and nobody holds a device: no exported labels exist."""
    return device(exporter("lonely", "n1"), "GPU-l1", whole())


def mixed() -> Iterator[Series]:
    """Two jobs, one renames and one honours; a node is scraped by one of them each."""
    plain = exporter("mixed", "n2", job="other-exporter")
    for name in ("namespace", "pod", "container"):
        del plain[name]
    return chain(
        device(exporter("mixed", "n1"), "GPU-m1", whole("train-0")),
        device(plain, "GPU-m2", whole("serve-0"), form=""),
    )


def twice() -> Iterator[Series]:
    """One node scraped through two exporters, with other phases and a renamed hostname."""
    one = exporter("twice", "n1")
    two = exporter("twice", "n1", job="second-dcgm-exporter")
    two["hostname"] = two.pop("Hostname")
    half = ORIGIN + 900
    holders = [Held(ORIGIN, half, "vision", "short-0", "main"), Held(half, END)]
    return chain(
        device(one, "GPU-t1", whole("train-0"), phase=0.0),
        device(two, "GPU-t1", whole("train-0"), phase=11.5),
        device(one, "GPU-t2", holders, phase=0.0),
        device(two, "GPU-t2", holders, phase=11.5),
        device(exporter("twice", "n2"), "GPU-t3", whole("serve-0")),
        device(exporter("twice", "n3"), "GPU-t4", whole("serve-1")),
        device(exporter("twice", "n4"), "GPU-t5", whole("serve-2")),
        device(exporter("twice", "n5"), "GPU-t6", whole("serve-3")),
    )


def sliced() -> Iterator[Series]:
    """MIG instances: no GPU_UTIL, energy of the whole device on each; one without activity."""
    target = exporter("sliced", "n1")
    metrics = (ACTIVITY, MEMORY, ENERGY)
    instance = partial(device, target, GPU_I_PROFILE="3g.40gb")
    return chain(
        instance("GPU-s1", whole("mig-0"), metrics=metrics, GPU_I_ID="1"),
        instance("GPU-s1", whole("mig-1"), metrics=metrics, GPU_I_ID="2"),
        instance("GPU-s2", whole("mig-2"), metrics=(MEMORY,), GPU_I_ID="5"),
    )


def without_profiling() -> Iterator[Series]:
    """A node that offers GPU_UTIL alone beside one that has both."""
    metrics = (UTILIZATION, MEMORY)
    return chain(
        device(exporter("without-profiling", "n1"), "GPU-u1", whole("train-0"), metrics=metrics),
        device(exporter("without-profiling", "n2"), "GPU-u2", whole("train-1")),
    )


def rescaled() -> Iterator[Series]:
    """A collector that writes GPU_UTIL as 0..1."""
    values = {UTILIZATION: activity_of("GPU-r1")}
    target = exporter("rescaled", "n1")
    return device(target, "GPU-r1", whole("train-0"), metrics=(UTILIZATION, MEMORY), values=values)


def _times_hundred(value: Callable[[float], float]) -> Callable[[float], float]:
    return lambda at: value(at) * 100


def percent() -> Iterator[Series]:
    """A collector that writes the profiling metric as per cent."""
    target = exporter("percent", "n1")
    return chain(
        *(
            device(
                target,
                uuid,
                whole(f"train-{uuid[-1]}"),
                values={ACTIVITY: _times_hundred(activity_of(uuid))},
            )
            for uuid in ("GPU-p1", "GPU-p2", "GPU-p3")
        )
    )


def _spoilt(uuid: str, every: int, blank: float) -> Callable[[float], float]:
    good = activity_of(uuid)
    return lambda at: blank if int(at - ORIGIN) // 30 % every == 0 else good(at)


BLANKS = {
    "GPU-x1": float("nan"),
    "GPU-x2": float("inf"),
    "GPU-x3": 1.8e19,
    "GPU-x4": 2147483632.0,
    "GPU-x5": -3e9,
}


def blank() -> Iterator[Series]:
    """Every tenth sample of five devices is none; a sixth is blank throughout."""
    target = exporter("blank", "n1")
    return chain(
        *(
            device(
                target,
                uuid,
                whole("train-" + uuid[-1]),
                values={ACTIVITY: _spoilt(uuid, 10, value), MEMORY: _spoilt(uuid, 10, value)},
            )
            for uuid, value in BLANKS.items()
        ),
        device(target, "GPU-x6", whole("train-6"), values={ACTIVITY: lambda _at: 1.8e19}),
        device(target, "GPU-x7", whole("train-7")),
        device(target, "GPU-x8", whole("train-8"), values={ACTIVITY: lambda _at: 1.02}),
    )


HOSTILE = 'a"b\\c\nd{e=~".+"}é'


def hostile() -> Iterator[Series]:
    """A cluster instance name tries to end the string it is quoted in, beside a decoy."""
    one, decoy = exporter(HOSTILE, "n1"), exporter('a"b\\c', "n1")
    return chain(
        device(one, 'GPU-"q"|.*', whole("train-0")), device(decoy, "GPU-decoy", whole("no"))
    )


def shared() -> Iterator[Series]:
    """One GPU time-sliced among three pods: three copies of its values (virtual GPUs)."""
    target = exporter("shared", "n1")
    return chain(
        *(device(target, "GPU-v1", whole(f"sharer-{n}"), vgpu=str(n)) for n in range(3)),
        device(exporter("shared", "n2"), "GPU-v2", whole("train-0")),
    )


def replicas() -> Iterator[Series]:
    """A pod that holds two replicas of a GPU beside one that holds one."""
    target = exporter("replicas", "n1")
    return chain(
        *(device(target, "GPU-y1", whole("two-of-it"), vgpu=str(n)) for n in range(2)),
        device(target, "GPU-y1", whole("one-of-it"), vgpu="2"),
        *(device(exporter("replicas", "n2"), f"GPU-z{n}", whole(f"train-{n}")) for n in range(3)),
    )


def glitch() -> Iterator[Series]:
    """A GPU at rest of which one sample in thirty is 100: a mean over 1, but not per cent."""
    return device(
        exporter("glitch", "n1"),
        "GPU-g1",
        whole("train-0"),
        values={
            ACTIVITY: lambda at: 100.0 if int(at - ORIGIN) // 30 % 30 == 0 else 0.01,
            ENERGY: lambda at: 1e9 if at < ORIGIN + 900 else 1.8e19,
        },
    )


def silent() -> Iterator[Series]:
    """A cluster whose devices show their memory and nothing else."""
    return device(exporter("silent", "n1"), "GPU-q1", whole("train-0"), metrics=(MEMORY,))


CHANGED = ORIGIN + 6 * SLOT
CHANGED_END = ORIGIN + 16 * SLOT


def speeds() -> Iterator[Series]:
    """Three nodes scraped every 15 s, one every minute, and one whose exporter was away."""
    away = [Held(ORIGIN, ORIGIN + 450, "vision", "away-0", "main"), *whole("away-0")]
    away[1] = away[1]._replace(start=ORIGIN + SLOT)
    metrics = (ACTIVITY, MEMORY)
    fast = partial(device, metrics=metrics, interval=15.0)
    return chain(
        *(fast(exporter("speeds", f"n{n}"), f"GPU-f{n}", whole(f"fast-{n}")) for n in range(3)),
        device(exporter("speeds", "n8"), "GPU-s1", whole("slow-0"), metrics=metrics, interval=60.0),
        fast(exporter("speeds", "n9"), "GPU-w1", away),
    )


def changed() -> Iterator[Series]:
    """Scraped every 30 s for three hours, then every 15 s for five."""
    for n in range(2):
        for start, end, interval in ((ORIGIN, CHANGED, 30.0), (CHANGED, CHANGED_END, 15.0)):
            yield from device(
                exporter("changed", f"n{n}"),
                f"GPU-c{n}",
                [Held(start, end, "vision", f"train-{n}", "main")],
                metrics=(ACTIVITY, MEMORY),
                interval=interval,
            )


def unmapped() -> Iterator[Series]:
    """Two exporters on a node, of which one does not know the pods; an idle GPU, a handover."""
    one, two = exporter("unmapped", "n1"), exporter("unmapped", "n1", job="standalone-dcgm")
    return chain(
        device(one, "GPU-o1", whole("train-0")),
        device(two, "GPU-o1", whole(), phase=11.5),
        device(one, "GPU-o2", [Held(ORIGIN, HANDOVER, "vision", "short-0", "main"),
                               Held(HANDOVER, END)]),
        device(two, "GPU-o2", whole(), phase=11.5),
        device(one, "GPU-o3", whole()),
        device(two, "GPU-o3", whole(), phase=11.5),
        device(exporter("unmapped", "n2"), "GPU-o4", whole("train-1")),
    )  # fmt: skip


HANDOVER = ORIGIN + 900


def restarted() -> Iterator[Series]:
    """A shared GPU whose exporter came back under another address."""
    before = exporter("restarted", "n1")
    after = {**before, "instance": "10.0.0.9:9400"}
    for n in range(3):
        held = [Held(ORIGIN, HANDOVER, "vision", f"sharer-{n}", "main")]
        yield from device(before, "GPU-l2", held, vgpu=str(n))
        held = [Held(HANDOVER, END, "vision", f"sharer-{n}", "main")]
        yield from device(after, "GPU-l2", held, vgpu=str(n))


def half_profiled() -> Iterator[Series]:
    """Two exporters on a node, of which one has no profiling metric and does not know the pods."""
    one, two = exporter("half-profiled", "n1"), exporter("half-profiled", "n1", job="old-dcgm")
    return chain(
        device(one, "GPU-j1", whole("train-0")),
        device(two, "GPU-j1", whole(), phase=11.5, metrics=(UTILIZATION, MEMORY)),
    )


def unmapped_alike() -> Iterator[Series]:
    """The same where both exporters are of one job and the plain labels name the pods."""
    plain = exporter("unmapped-alike", "n1")
    for name in ("namespace", "pod", "container"):
        del plain[name]
    return chain(
        device(plain, "GPU-o1", whole("train-0"), form=""),
        device({**plain, "instance": "n1:9401"}, "GPU-o1", whole(), phase=11.5),
    )


def _own_pod(world: str) -> Iterator[Series]:
    """Plain labels are the pods', and the exporter's own where nobody holds the card."""
    target = {**exporter(world, "n1", job="card-metrics"), "pod": "card-metrics-x2x2x"}
    workload = {"namespace": "vision", "pod": "model-exporter-0", "container": "main"}
    return chain(
        device({**target, **workload}, "GPU-e1", whole(), metrics=(ACTIVITY, MEMORY)),
        device(target, "GPU-e2", whole(), metrics=(ACTIVITY, MEMORY)),
        device(target, "GPU-e3", whole(), metrics=(ACTIVITY, MEMORY)),
    )


def targets() -> Iterator[Series]:
    """A scrape that keeps `up`, which tells the exporter's own pod."""
    yield from _own_pod("targets")
    own = {**exporter("targets", "n1", job="card-metrics"), "pod": "card-metrics-x2x2x"}
    del own["Hostname"]
    yield series("up", own, 1.0, scrapes(ORIGIN, END))


def one_percent() -> Iterator[Series]:
    """Cards without profiling that stand at exactly 1 % all the time."""
    target = exporter("one-percent", "n1")
    at_one = {UTILIZATION: lambda _at: 1.0}
    metrics = (UTILIZATION, MEMORY)
    return chain(
        device(target, "GPU-i1", whole("idle-0"), metrics=metrics, values=at_one),
        device(target, "GPU-i2", whole("idle-1"), metrics=metrics, values={
            UTILIZATION: lambda at: float(int(at - ORIGIN) // 30 % 2)
        }),
    )  # fmt: skip


def quarter() -> Iterator[Series]:
    """A collector that writes GPU_UTIL as 0..1, of which the sums are whole numbers."""
    return device(
        exporter("quarter", "n1"), "GPU-k1", whole("train-0"), metrics=(UTILIZATION, MEMORY),
        values={UTILIZATION: lambda _at: 0.25},
    )  # fmt: skip


def all_series() -> Iterator[Series]:
    """Yield the series of every world."""
    for world in (
        renamed, deep, honoured, lonely, mixed, twice, sliced, without_profiling, rescaled, percent,
        blank, hostile, shared, replicas, glitch, silent, speeds, changed, unmapped,
        unmapped_alike, targets, one_percent, quarter, half_profiled,
        restarted,
    ):  # fmt: skip
        yield from world()

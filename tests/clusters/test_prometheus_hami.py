"""GPUs that HAMi shares, from series alone, in a real Prometheus."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.resources import GPU, GPU_FRACTION, GPU_MEMORY
from apps.clusters.domain.tiers import GpuSharing, TierRule
from apps.clusters.domain.window import Window, from_seconds
from apps.clusters.ports import LedgerAnswer
from apps.usage.domain.attribution.gpu_classes import Classifier
from tests.clusters.kube_state_series import END, LATER, TrueNode, TruePod, world
from tests.clusters.openmetrics import ORIGIN, Series, scrapes, series, write
from tests.real_prometheus import RealPrometheus

pytestmark = pytest.mark.prometheus

ALL = Window(from_seconds(ORIGIN), from_seconds(END))
GPU_MIB = 32_768
UNITS = 20.0
TIMES = list(scrapes(ORIGIN, LATER))
# HAMi offers ten units a GPU.
NODES = [TrueNode("n1", gpus=UNITS, labels={}), TrueNode("plain", gpus=8.0, labels={})]
SMALL_MIB = GPU_MIB * 3 // 4
LABELLED = TrueNode("labelled", gpus=UNITS, labels={"label_nvidia_com_gpu_memory": f"{GPU_MIB}"})


def pod(name: str, node: str = "n1", units: float = 1.0, **of_each: float) -> TruePod:
    """Return a pod that asks for GPUs and for `gpumem`, `gpucores` or so of each."""
    requests = {"nvidia_com_gpu": units, **{f"nvidia_com_{k}": v for k, v in of_each.items()}}
    return TruePod(
        name, node=node, bound=ORIGIN + 60, started=ORIGIN + 65, requests={"main": requests}
    )


def gpus(node: str, count: int = 2, *, old: bool = False) -> Iterator[Series]:
    """Yield the GPUs of a node as HAMi's scheduler shows them."""
    for number in range(count):
        uuid, model = f"GPU-{node}-{number}", "NVIDIA-Tesla V100-PCIE-32GB"
        labels = {"node": node, "device_uuid": uuid, "device_type": model}
        if old:
            labels = {"nodeid": node, "deviceuuid": uuid, "devicetype": model}
        metric = "GPUDeviceMemoryLimit" if old else "hami_gpu_memory_limit_bytes"
        yield series(metric, labels, GPU_MIB * 2.0**20, TIMES)


def given(of: str, mib: float, gpu: int = 0, *, old: bool = False, node: str = "n1") -> Series:
    """Return what HAMi gave a pod of one GPU."""
    uuid = f"GPU-{node}-{gpu}"
    names = ("podnamespace", "podname", "nodename", "containeridx", "deviceuuid")
    if not old:
        names = ("namespace", "pod", "node", "container_index", "device_uuid")
    labels = dict(zip(names, ("vision", of, node, "0", uuid), strict=True))
    metric = "vGPUPodsDeviceAllocated" if old else "hami_vgpu_memory_allocated_bytes"
    return series(metric, labels, mib * 2.0**20, TIMES)


def limited(of: str, percent: float, gpu: int = 0, metric: str = "") -> Series:
    """Return how much of a GPU's cores HAMi lets a pod use."""
    labels = given(of, 1.0, gpu, old=bool(metric)).labels
    return series(metric or "hami_vgpu_core_allocated_ratio", labels, percent, TIMES)


def renamed(one: Series) -> Series:
    """Return a series of the scheduler as of a target that has the labels of its own pod."""
    own = {"namespace": "kube-system", "pod": "hami-scheduler-0", "node": "control-1"}
    kept = {f"exported_{k}" if k in own else k: v for k, v in one.labels.items()}
    return one._replace(labels={**kept, **own})


PODS = [
    pod("part", gpumem=8192.0),
    pod("two", units=2.0, gpumem=4096.0),
    pod("quarter", gpumem_percentage=25.0),
    pod("cores", gpucores=30.0),
    pod("too-much", gpumem=40_000.0),
    pod("whole-elsewhere", node="plain"),
    pod("unknown", node="plain", gpumem=1000.0),
]
GIVEN = [
    ("part", 8192.0, 0),
    ("two", 4096.0, 0),
    ("two", 4096.0, 1),
    ("quarter", 8192.0, 1),
    ("cores", float(GPU_MIB), 1),
]


def crowd(seed: int) -> list[tuple[TruePod, float, int]]:
    """Return pods as HAMi places them: never more memory of a GPU than it has."""
    random = Random(seed)  # noqa: S311 - made data
    left = [GPU_MIB, GPU_MIB]
    placed = []
    for number in range(12):
        wanted = random.randint(1, GPU_MIB // 2)
        gpu = next((n for n, free in enumerate(left) if free >= wanted), None)
        if gpu is not None:
            left[gpu] -= wanted
            # No more than the part of the memory: of cores alone the test below tells.
            cores = 100.0 * wanted // GPU_MIB
            one = pod(f"c{number}", gpumem=float(wanted), gpucores=cores)
            placed.append((one, float(wanted), gpu))
    return placed


SEEDS = range(6)
CORE_METRICS = {
    "cores-new": "",
    "cores-before-2.9": "vGPUCoreAllocated",
    "cores-before-2.8": "vGPUCorePercentage",
}


def worlds() -> Iterator[Series]:
    for name, old in (("new", False), ("old", True)):
        told = [*gpus("n1", old=old), *(given(p, m, g, old=old) for p, m, g in GIVEN)]
        yield from world(name, PODS, NODES, more=told)
    told = [*gpus("n1"), *(given(p, m, g) for p, m, g in GIVEN)]
    yield from world("renamed", PODS, NODES, more=map(renamed, told))
    # A pod of one GPU that was made anew on the other one, and both releases' names at once.
    moved = [*gpus("n1"), *gpus("n1", old=True), given("part", 8192.0, 0), given("part", 8192.0, 1)]
    yield from world("moved", PODS[:1], NODES, more=moved)
    yield from world("asked", PODS, NODES, more=gpus("n1"))
    # Cores are the larger share, of one pod on both GPUs, and are less than the memory of another.
    of_cores = [pod("one", gpumem=4096.0), pod("both", units=2.0, gpumem=4096.0), PODS[0]]
    parts = [("one", 4096.0, 50.0, 0), ("both", 4096.0, 25.0, 0), ("both", 4096.0, 25.0, 1)]
    parts.append(("part", 8192.0, 10.0, 1))
    for name, metric in CORE_METRICS.items():
        memory = [given(p, m, g, old=bool(metric)) for p, m, _, g in parts]
        cores = [limited(p, c, g, metric) for p, _, c, g in parts]
        told = [*gpus("n1", old=bool(metric)), *memory, *cores]
        yield from world(name, of_cores, NODES, more=told)
    asking = pod("asks", gpumem=4096.0, gpucores=50.0)
    waiting = replace(asking, name="waits", node="", bound=None, started=None)
    small = TrueNode("small", gpus=UNITS, labels={"label_nvidia_com_gpu_memory": f"{SMALL_MIB}"})
    yield from world("cores-asked", [asking, waiting], [*NODES, small], more=gpus("n1"))
    on_labelled = [pod("part", node="labelled", gpumem=8192.0)]
    yield from world("labelled", on_labelled, [LABELLED])
    yield from world("silent", PODS, NODES)
    for seed in SEEDS:
        placed = crowd(seed)
        more = [*gpus("n1"), *(given(p.name, mib, gpu) for p, mib, gpu in placed)]
        yield from world(f"crowd-{seed}", [one for one, _, _ in placed], NODES, more=more)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = Path(tmp_path_factory.mktemp("openmetrics")) / "hami.prom"
    with RealPrometheus.loaded(write(file, worlds())) as running:
        yield running.url


def ledger(server: str, name: str) -> LedgerAnswer:
    config = {"url": server, "matchers": {"cluster": name}}
    source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(config)))
    try:
        return source.ledger(ALL)
    finally:
        source.close()


def requests_of(answer: LedgerAnswer) -> dict[str, Mapping[str, float]]:
    return {one.name: one.requests for one in answer.pods}


@pytest.mark.parametrize("name", ["new", "old", "renamed"])
def test_what_hami_gave_is_held_by_memory(server: str, name: str) -> None:
    answer = ledger(server, name)
    assert requests_of(answer) == {
        "part": {GPU_MEMORY: 8192.0},
        "two": {GPU_MEMORY: 8192.0},
        "quarter": {GPU_MEMORY: 8192.0},
        "cores": {GPU_MEMORY: float(GPU_MIB)},
        "too-much": {GPU_MEMORY: float(GPU_MIB)},
        "whole-elsewhere": {GPU: 1.0},
        # Nothing tells the memory of that node's GPUs, so that it counts as it did.
        "unknown": {GPU: 1.0},
    }
    (shared,) = (one for one in answer.nodes if one.node == "n1")
    assert shared.capacity == shared.allocatable == {GPU_MEMORY: 2.0 * GPU_MIB}
    assert shared.labels["nvidia.com/gpu.product"] == "NVIDIA-Tesla-V100-PCIE-32GB"
    (plain,) = (one for one in answer.nodes if one.node == "plain")
    assert plain.capacity == {GPU: 8.0}


def test_a_pod_made_anew_on_another_gpu_holds_no_more(server: str) -> None:
    answer = ledger(server, "moved")
    assert requests_of(answer) == {"part": {GPU_MEMORY: 8192.0}}
    assert answer.pods[0].gpus == (), "which of both is not told"
    (shared,) = (one for one in answer.nodes if one.node == "n1")
    assert shared.capacity == {GPU_MEMORY: 2.0 * GPU_MIB}, "GPUs under two names count once"


@pytest.mark.parametrize("name", CORE_METRICS)
def test_the_larger_share_of_memory_and_cores_is_held(server: str, name: str) -> None:
    answer = ledger(server, name)
    assert {one.name: (one.requests, one.gpus) for one in answer.pods} == {
        "one": ({GPU_MEMORY: 0.5 * GPU_MIB}, ("GPU-n1-0",)),
        "both": ({GPU_MEMORY: 2 * 0.25 * GPU_MIB}, ("GPU-n1-0", "GPU-n1-1")),
        "part": ({GPU_MEMORY: 8192.0}, ("GPU-n1-1",)),
    }


def test_cores_of_a_request_count_too(server: str) -> None:
    found = requests_of(ledger(server, "cores-asked"))
    assert found["asks"] == {GPU_MEMORY: 0.5 * GPU_MIB}
    # It may come to any node, and takes no more than on the smallest GPU for sure.
    assert found["waits"] == {GPU_MEMORY: 0.5 * SMALL_MIB}


def test_without_what_was_given_the_request_tells(server: str) -> None:
    found = requests_of(ledger(server, "asked"))
    assert found["part"] == {GPU_MEMORY: 8192.0}
    assert found["two"] == {GPU_MEMORY: 8192.0}
    assert found["quarter"] == {GPU_FRACTION: 0.25}
    assert found["cores"] == {GPU: 1.0}, "HAMi gives the whole memory"


def test_a_node_label_tells_the_memory_too(server: str) -> None:
    answer = ledger(server, "labelled")
    assert requests_of(answer) == {"part": {GPU_MEMORY: 8192.0}}
    assert answer.nodes[0].capacity == {GPU: UNITS}, "units alone do not say how many GPUs"


def test_nothing_changes_where_no_series_tells_the_memory(server: str) -> None:
    found = requests_of(ledger(server, "silent"))
    assert found["part"] == {GPU: 1.0}
    assert found["two"] == {GPU: 2.0}
    # A part needs no memory.
    assert found["quarter"] == {GPU_FRACTION: 0.25}


@pytest.mark.parametrize("seed", SEEDS)
def test_pods_never_hold_more_than_the_gpus(server: str, seed: int) -> None:
    answer = ledger(server, f"crowd-{seed}")
    classifier = Classifier([TierRule("shared", GpuSharing.TIME_SLICED, (GPU,))])
    (node,) = (one for one in answer.nodes if one.node == "n1")
    (offered,) = classifier.offers(node)
    assert offered.units * offered.weight == pytest.approx(2.0)
    held: dict[int, float] = defaultdict(float)
    of_gpu = {one.name: (mib, gpu) for one, mib, gpu in crowd(seed)}
    for one in answer.pods:
        ((resource, units),) = one.requests.items()
        (holding,) = classifier.of(resource, node)
        assert holding.gpu_class == offered.gpu_class
        mib, gpu = of_gpu[one.name]
        assert units * holding.weight == pytest.approx(mib / GPU_MIB)
        held[gpu] += units * holding.weight
    assert len(answer.pods) == len(of_gpu)
    assert max(held.values()) <= 1.0 + 1e-9

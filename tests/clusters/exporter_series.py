"""Clusters whose devices are exported by every generation and family of exporter, as made series.

Each world is a cluster of its own, told apart by the label `cluster`. Values are constant, so that
what must come out can be said in advance.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from tests.clusters.device_series import (
    ACTIVITY,
    END,
    ENERGY,
    MEMORY,
    UTILIZATION,
    WATTS,
    Held,
    device,
    exporter,
    whole,
)
from tests.clusters.openmetrics import ORIGIN, Series, scrapes, series


def constant(
    activity: float, utilization: float | None = None
) -> dict[str, Callable[[float], float]]:
    """Return the values of a device that is this active all the time."""
    util = round(activity * 100) if utilization is None else utilization
    return {ACTIVITY: lambda _at: activity, UTILIZATION: lambda _at: float(util)}


def sharers(
    world: str,
    uuid: str,
    used: Mapping[str, float],
    *,
    of_device: float,
    metrics: tuple[str, ...] = (ACTIVITY, UTILIZATION, MEMORY, ENERGY),
    node: str = "n1",
) -> Iterator[Series]:
    """Yield a GPU shared by pods, with GPU_UTIL by process beside a row of the device."""
    target = exporter(world, node)
    target["hostname"] = target.pop("Hostname")
    yield from device(target, uuid, whole(), metrics=metrics, values=constant(of_device))
    for number, (pod, percent) in enumerate(used.items()):
        yield from device(
            target,
            uuid,
            whole(pod),
            metrics=metrics,
            values=constant(of_device, percent),
            vgpu=str(number),
            pod_uid=f"uid-{pod}",
        )


def by_process() -> Iterator[Series]:
    """Cards that show values by process: two busy pods, and one whose other sharer is idle."""
    return chain(
        sharers("by-process", "GPU-p1", {"a": 60.0, "b": 30.0}, of_device=0.9),
        sharers("by-process", "GPU-p2", {"c": 50.0, "d": 0.0}, of_device=0.5),
        sharers("by-process", "GPU-p3", {"e": 0.0, "f": 0.0}, of_device=0.0),
        device(exporter("by-process", "n2"), "GPU-p4", whole("alone")),
    )


def no_host_pid() -> Iterator[Series]:
    """The same without hostPID: every pod reads 0."""
    return sharers("no-host-pid", "GPU-h1", {"a": 0.0, "b": 0.0}, of_device=0.9)


def device_beside() -> Iterator[Series]:
    """A row of the device beside copies that are no values by process."""
    return sharers("device-beside", "GPU-d1", {"a": 70.0, "b": 70.0}, of_device=0.7)


def beside_in_two() -> Iterator[Series]:
    """The device's own row only where values are by process: GPU_UTIL and memory."""
    for one in sharers("beside-in-two", "GPU-b2", {"a": 60.0, "b": 30.0}, of_device=0.9):
        if "exported_pod" in one.labels or one.metric in {UTILIZATION, MEMORY}:
            yield one


def copies_twice() -> Iterator[Series]:
    """Copies for two pods, and a second exporter that does not know the pods."""
    one = exporter("copies-twice", "n1")
    two = exporter("copies-twice", "n1", job="standalone-dcgm")
    for number, pod in enumerate(("a", "b")):
        yield from device(one, "GPU-c2", whole(pod), values=constant(0.7), vgpu=str(number))
    yield from device(two, "GPU-c2", whole(), phase=11.5, values=constant(0.7, 69.0))
    yield from device(exporter("copies-twice", "n2"), "GPU-c3", whole("c"), values=constant(0.2))
    yield from device(exporter("copies-twice", "n3"), "GPU-c4", whole("d"), values=constant(0.2))


def released() -> Iterator[Series]:
    """Copies of a GPU that two pods share for 25 minutes and nobody holds after that."""
    target, end = exporter("released", "n1"), ORIGIN + 1500
    for number, pod in enumerate(("a", "b")):
        held = [Held(ORIGIN, end, "vision", pod, "main")]
        yield from device(target, "GPU-e1", held, values=constant(0.7), vgpu=str(number))
    yield from device(target, "GPU-e1", [Held(end, END)], values=constant(0.0))


def replicas_by_process() -> Iterator[Series]:
    """Values by process of a pod that holds two replicas of the GPU, and of one with one."""
    world = "replicas-by-process"
    target = exporter(world, "n1")
    yield from sharers(world, "GPU-q1", {"two": 60.0, "one": 20.0}, of_device=0.8)
    target["hostname"] = target.pop("Hostname")
    yield from device(
        target, "GPU-q1", whole("two"), values=constant(0.8, 60.0), vgpu="9", pod_uid="uid-two"
    )


def process_only() -> Iterator[Series]:
    """Values by process where GPU_UTIL is the only metric of activity."""
    metrics = (UTILIZATION, MEMORY)
    return sharers("process-only", "GPU-u1", {"a": 60.0, "b": 30.0}, of_device=0.9, metrics=metrics)


def stuck() -> Iterator[Series]:
    """A counter at 0 on a busy GPU; one at rest; a MIG instance, which has no GPU_UTIL."""
    target = exporter("stuck", "n1")
    no_util = (ACTIVITY, MEMORY)
    return chain(
        device(target, "GPU-s1", whole("train-0"), values=constant(0.0, 80.0)),
        device(target, "GPU-s2", whole("idle-0"), values=constant(0.0, 0.0)),
        device(target, "GPU-s3", whole("train-1"), values=constant(0.5)),
        device(target, "GPU-s4", whole("mig-0"), metrics=no_util,
               values=constant(0.0), GPU_I_ID="3", GPU_I_PROFILE="1g.10gb"),
    )  # fmt: skip


def at_rest() -> Iterator[Series]:
    """Cards that do nothing at all."""
    target = exporter("at-rest", "n1")
    return chain(
        *(device(target, f"GPU-r{n}", whole("idle-0"), values=constant(0.0)) for n in range(3))
    )


def working() -> Iterator[Series]:
    """Cards that all do something: the plain case of which queries are counted."""
    target = exporter("working", "n1")
    return chain(
        *(device(target, f"GPU-w{n}", whole(f"w-{n}"), values=constant(0.4)) for n in range(3))
    )


def upgrading() -> Iterator[Series]:
    """Ten nodes, four of which run the release that renamed `Hostname`."""
    for n in range(10):
        target = exporter("upgrading", f"n{n}")
        if n < 4:
            target["hostname"] = target.pop("Hostname")
        yield from device(target, f"GPU-g{n}", whole(f"train-{n}"), values=constant(0.5))


def mixed_models() -> Iterator[Series]:
    """A node whose profiling groups were asked of its first model: two GPUs have no metric."""
    target = exporter("mixed-models", "n1")
    return chain(
        device(target, "GPU-t1", whole("a"), metrics=(MEMORY,), modelName="Tesla T4"),
        device(target, "GPU-t2", whole("b"), metrics=(UTILIZATION, MEMORY), modelName="Tesla T4",
               values=constant(0.0, 80.0)),
        device(target, "GPU-a1", whole("c"), values=constant(0.8)),
    )  # fmt: skip


def _constants(
    labels: Mapping[str, str], values: Mapping[str, float], grows: Mapping[str, float]
) -> Iterator[Series]:
    """Yield gauges with one value and counters that grow by so much a second."""
    for metric, value in values.items():
        yield series(metric, labels, value, scrapes(ORIGIN, END, phase=7.123))
    for metric, each in grows.items():
        yield series(metric, labels, _growing(each), scrapes(ORIGIN, END, phase=7.123))


def _growing(each: float) -> Callable[[float], float]:
    return lambda at: 1e9 + (at - ORIGIN) * each


def first_release(world: str = "first-release", node: str = "n1") -> Iterator[Series]:
    """Release 1.x: other names of metrics and labels."""
    target = {"cluster": world, "job": "gpu-monitoring", "instance": f"{node}:9400", "node": node}
    pod = {"pod_name": "train-0", "pod_namespace": "vision", "container_name": "main"}
    for uuid, held, percent in (("GPU-o1", pod, 80.0), ("GPU-o2", {}, 0.0)):
        yield from _constants(
            {**target, **held, "uuid": uuid, "gpu": "0"},
            {"dcgm_gpu_utilization": percent, "dcgm_fb_used": 1000.0},
            {"dcgm_total_energy_consumption": WATTS * 1e3},
        )


def old_labels() -> Iterator[Series]:
    """Today's metrics with --use-old-namespace: `uuid`, `pod_name`."""
    target = {"cluster": "old-labels", "job": "dcgm", "instance": "n1:9400", "Hostname": "n1"}
    pod = {"pod_name": "train-0", "pod_namespace": "vision", "container_name": "main"}
    return _constants(
        {**target, **pod, "uuid": "GPU-l1", "modelName": "Tesla T4"},
        {ACTIVITY: 0.25, UTILIZATION: 25.0, MEMORY: 1000.0},
        {ENERGY: WATTS * 1e3},
    )


def both_releases() -> Iterator[Series]:
    """One GPU seen by an exporter of release 1.x and by one of today."""
    return chain(
        (
            one._replace(labels={**one.labels, "cluster": "both-releases"})
            for one in first_release()
        ),
        device(exporter("both-releases", "n1"), "GPU-o1", whole("train-0"), values=constant(0.5)),
    )


def _amd(world: str, gpu: int, **more: str) -> dict[str, str]:
    return {
        "cluster": world,
        "job": "amd-exporter",
        "instance": "a1:5000",
        "gpu_id": str(gpu),
        "card_model": "MI300X",
        "serial_number": f"69224700{gpu}",
        "hostname": "a1",
        "gpu_partition_id": "0",
        "gpu_compute_partition_type": "spx",
        "gpu_memory_partition_type": "nps1",
        **more,
    }


def _amd_values(percent: float, prefix: str = "") -> tuple[dict[str, float], dict[str, float]]:
    return (
        {f"{prefix}gpu_gfx_activity": percent, f"{prefix}gpu_used_vram": 1048.576},
        {f"{prefix}gpu_energy_consumed": WATTS * 1e6},
    )


_AMD_POD = {"pod": "train-0", "namespace": "vision", "container": "main"}


def amd() -> Iterator[Series]:
    """Whole GPUs: with a UUID, by serial number, by number; one held, one not."""
    return chain(
        _constants(_amd("amd", 0, gpu_uuid="c3ff-0", **_AMD_POD), *_amd_values(75.0)),
        _constants(_amd("amd", 1), *_amd_values(0.0)),
        _constants(_amd("amd", 2, serial_number=""), *_amd_values(12.0)),
    )


def amd_prefixed() -> Iterator[Series]:
    """The prefix of AMD's example, and Prometheus renamed the labels of the pod."""
    renamed = {f"exported_{name}": value for name, value in _AMD_POD.items()}
    own = {"pod": "metrics-exporter-x2x2x", "namespace": "kube-amd-gpu", "container": "exporter"}
    labels = _amd("amd-prefixed", 0, gpu_uuid="c3ff-9", **own)
    idle = _amd("amd-prefixed", 1, gpu_uuid="c3ff-8", **own)
    return chain(
        _constants({**labels, **renamed}, *_amd_values(75.0, "amd_")),
        _constants(idle, *_amd_values(20.0, "amd_")),
    )


def amd_partitions() -> Iterator[Series]:
    """A GPU in CPX mode: its values are on partition 0, the others read 0."""
    for number in range(3):
        labels = _amd(
            "amd-partitions", number, serial_number="692247009", gpu_partition_id=str(number),
            gpu_compute_partition_type="cpx", gpu_memory_partition_type="nps4",
        )  # fmt: skip
        yield from _constants(labels, *_amd_values(40.0 if number == 0 else 0.0))


def amd_old() -> Iterator[Series]:
    """An older release: upper-case labels, as in its sample."""
    target = {"cluster": "amd-old", "job": "amd", "instance": "a1:5000"}
    labels = {"GPU_UUID": "6699c0a8-4200-4242-037f-f97e6cae0f09", "SERIAL_NUMBER": "692247001282"}
    pods = {"POD": "train-0", "NAMESPACE": "vision", "CONTAINER": "main", "HOSTNAME": "a1"}
    return _constants({**target, **labels, **pods}, {"gpu_usage": 50.0}, {})


def intel() -> Iterator[Series]:
    """A GPU of two tiles, one with a single engine metric, and the rows of its board."""
    gpu = {
        "cluster": "intel", "job": "xpum", "instance": "i1:29999", "node": "i1",
        "dev_name": "Intel(R) Data Center GPU Max 1550", "vendor": "Intel(R) Corporation",
    }  # fmt: skip
    pod = {"kube_pod": "train-0", "kube_namespace": "vision", "kube_container": "main"}
    one = {**gpu, **pod, "uuid": "0000-1"}
    tiles = [("0", 0.2, 2.0**30), ("1", 0.6, 3 * 2.0**30)]
    return chain(
        _constants(one, {"xpum_engine_ratio": 0.4}, {"xpum_energy_joules_total": WATTS}),
        *(
            _constants(
                {**one, "sub_dev": tile},
                {"xpum_engine_ratio": ratio, "xpum_memory_used_bytes": used}, {},
            )
            for tile, ratio, used in tiles
        ),
        _constants({**gpu, "card": "2147483649"}, {"xpum_engine_ratio": 0.9}, {}),
    )  # fmt: skip


def intel_groups() -> Iterator[Series]:
    """Only the groups of engines are exported: the busiest of them is the GPU's activity."""
    gpu = {"cluster": "intel-groups", "job": "xpum", "instance": "i1:29999", "node": "i1"}
    for group, ratio in (("compute", 0.7), ("copy", 0.1)):
        labels = {**gpu, "uuid": "0000-2", "type": group}
        yield from _constants(labels, {"xpum_engine_group_ratio": ratio}, {})


def _npu(number: int, **more: str) -> dict[str, str]:
    own = {"namespace": "npu-exporter", "pod": "npu-exporter-x2", "container": "npu-exporter"}
    return {
        "cluster": "ascend", "job": "npu-exporter", "instance": "h1:8082", "node": "h1", **own,
        "id": str(number), "model_name": "Ascend910B", "vdie_id": f"D{number}-6EF4", **more,
    }  # fmt: skip


def _npu_values(percent: float, kind: str = "hbm_") -> dict[str, float]:
    return {
        "npu_chip_info_utilization": percent,
        f"npu_chip_info_{kind}used_memory": 8192.0,
        "npu_chip_info_power": 188.0,
    }


def ascend() -> Iterator[Series]:
    """Chips as Huawei's exporter shows them: held, free, and one of an old release by number."""
    pod = {"exported_namespace": "vision", "pod_name": "train-0", "container_name": "main"}
    return chain(
        _constants(_npu(0, **pod), _npu_values(36.0), {}),
        _constants(_npu(1), _npu_values(0.0), {}),
        _constants(_npu(2, vdie_id=""), _npu_values(50.0, ""), {}),
    )


def tpu() -> Iterator[Series]:
    """Chips as GKE's device plugin shows them, one held; and a GPU by its plugin of GPUs."""
    own = {"cluster": "tpu", "job": "tpu-device-plugin", "instance": "t1:2112", "node": "t1"}
    pod = {"exported_namespace": "vision", "exported_pod": "train-0", "exported_container": "main"}
    for number, percent, holder in ((4, 42.5, pod), (0, 0.0, {})):
        chip = {
            **own, "accelerator_id": f"1234567890123456789-{number}",
            "make": "cloud-tpu", "model": "tpu7x", "tpu_topology": "2x2x2",
        }  # fmt: skip
        values = {"duty_cycle": percent, "tensorcore_utilization": 9.0, "memory_used": 2.0**32}
        shown = {f"{name}_node": value for name, value in values.items()}
        if holder:
            yield from _constants({**chip, **holder}, values, {})
        yield from _constants(chip, shown, {})
    gpu = {**own, "accelerator_id": "GPU-77", "make": "nvidia", "model": "Tesla T4"}
    yield from _constants(gpu, {"duty_cycle": 80.0}, {})


def neuron() -> Iterator[Series]:
    """Nodes as Neuron Monitor shows them: named by a relabelling, and by their EC2 instance."""
    own = {
        "cluster": "neuron", "job": "neuron-monitor", "instance": "n1:8000", "instance_id": "i-01",
        "instance_name": "", "instance_type": "inf2.24xlarge", "availability_zone": "eu-1a",
        "region": "eu-1", "subnet_id": "subnet-1", "node": "n1",
    }  # fmt: skip
    yield from _neuron_node(own, 3, {0: 0.9, 1: 0.3, 2: 0.5})
    # The same node by a second job, which is scraped half as often.
    for one in _neuron_node({**own, "job": "again"}, 3, {0: 0.9, 1: 0.3, 2: 0.5}):
        yield one._replace(samples=one.samples[::2])
    # Amazon's collector writes per cent, and adds no name of the node.
    other = {**own, "instance": "n2:8000", "instance_id": "i-02"}
    del other["node"]
    yield from _neuron_node(other, 1, {0: 80.0, 1: 0.0})


def _neuron_node(own: dict[str, str], devices: int, cores: dict[int, float]) -> Iterator[Series]:
    told = {"neuron_device_count": str(devices), "neuroncore_per_device_count": "2"}
    yield from _constants({**own, **told}, {"neuron_hardware_info": 1.0}, {})
    for core, value in cores.items():
        shown = {**own, "neuroncore": str(core), "runtime_tag": "367"}
        yield from _constants(shown, {"neuroncore_utilization_ratio": value}, {})


def gaudi() -> Iterator[Series]:
    """Devices as Intel's exporter of Gaudi shows them: one held, one free and without a UUID."""
    own = {"cluster": "gaudi", "job": "gaudi-metric-exporter", "instance": "g1:41611"}
    pod = {"pod_namespace": "vision", "pod_name": "train-0"}
    free = {"pod_namespace": "", "pod_name": ""}
    for number, uuid, held, percent in ((0, "01P0-AA", pod, 75.0), (1, "", free, 0.0)):
        labels = {
            **own, **held, "UUID": uuid, "Serial": f"AM50{number}", "device": f"AM50{number}",
            "id": str(number), "driver": "1.23.0",
        }  # fmt: skip
        values = {"habanalabs_utilization": percent, "habanalabs_memory_used_bytes": 2.0**33}
        yield from _constants(labels, values, {"habanalabs_energy": WATTS * 1e3})


def hami() -> Iterator[Series]:
    """GPUs as HAMi's monitor shows them, of this release, of an old one, and beside DCGM."""
    own = {"cluster": "hami", "job": "hami-monitor", "instance": "m1:9394", "pod": "hami-0"}
    model = "NVIDIA-NVIDIA A100-SXM4-80GB"
    new = {**own, "node": "m1", "device_index": "0", "device_type": model}
    values = {"hami_host_gpu_utilization_ratio": 40.0, "hami_host_gpu_memory_used_bytes": 2.0**33}
    for uuid in ("GPU-h0", "GPU-v1"):
        yield from _constants({**new, "device_uuid": uuid}, values, {})
    old = {**own, "nodeid": "m2", "deviceuuid": "GPU-h2", "devicetype": model}
    yield from _constants(old, {"HostCoreUtilization": 60.0, "HostGPUMemoryUsage": 2.0**33}, {})
    # What containers have is no measure of them, and no device either.
    held = {**own, "podname": "train-0", "podnamespace": "vision", "deviceuuid": "GPU-h2"}
    yield from _constants(held, {"Device_utilization_desc_of_container": 0.0}, {})
    for one in two_vendors():
        if one.labels.get("UUID") == "GPU-v1":
            yield one._replace(labels={**one.labels, "cluster": "hami"})


def two_vendors() -> Iterator[Series]:
    """NVIDIA and AMD in one cluster."""
    return chain(
        device(exporter("two-vendors", "n1"), "GPU-v1", whole("train-1"), values=constant(0.3)),
        _constants(_amd("two-vendors", 0, gpu_uuid="c3ff-7", **_AMD_POD), *_amd_values(75.0)),
    )


RELEASES = ("3.3.7", "4.4.0", "4.8.1", "4.8.2", "4.8.3")
FORMS = ("exported_", "")


def generation_name(release: str, form: str) -> str:
    """Return the name of the cluster of a release and a form of labels."""
    return f"release-{release}-{form or 'plain'}"


def generation(release: str, form: str) -> Iterator[Series]:
    """One release with virtual GPUs (there since 4.0.3): whole, MIG, shared and idle cards."""
    target = exporter(generation_name(release, form), "n1")
    if release == "4.8.3":
        target["hostname"] = target.pop("Hostname")
    if not form:
        for name in ("namespace", "pod", "container"):
            del target[name]
    metrics = (ACTIVITY, MEMORY, ENERGY)
    yield from device(target, "GPU-x", whole("alone"), form=form, values=constant(0.5))
    for number, activity in (("1", 0.25), ("2", 0.75)):
        yield from device(
            target, "GPU-m", whole(f"mig-{number}"), form=form, metrics=metrics,
            values=constant(activity), GPU_I_ID=number, GPU_I_PROFILE="3g.40gb",
        )  # fmt: skip
    # Up to 4.8.1 the rows of idle GPUs vanish with virtual GPUs.
    if release in {"3.3.7", "4.8.2", "4.8.3"}:
        yield from device(target, "GPU-i", whole(), form=form, values=constant(0.0))
    yield from _shared_as_of(release, target, form)


def _shared_as_of(release: str, target: dict[str, str], form: str) -> Iterator[Series]:
    """Two pods on a GPU at 90 %, of which one does two thirds."""
    if release == "3.3.7":
        yield from device(target, "GPU-s", whole("last-listed"), form=form, values=constant(0.9))
        return
    by_process_now = release in {"4.8.2", "4.8.3"}
    if by_process_now:
        yield from device(target, "GPU-s", whole(), form=form, values=constant(0.9))
    for number, (pod, percent) in enumerate((("a", 60.0), ("b", 30.0))):
        yield from device(
            target, "GPU-s", whole(pod), form=form, vgpu=str(number), pod_uid=f"uid-{pod}",
            values=constant(0.9, percent if by_process_now else 90.0),
        )  # fmt: skip


def away() -> Iterator[Series]:
    """An exporter that is gone in the second half hour."""
    held = [Held(ORIGIN, ORIGIN + 1800, "vision", "train-0", "main")]
    return device(exporter("away", "n1"), "GPU-w9", held, values=constant(0.5))


def all_series() -> Iterator[Series]:
    """Yield the series of every world."""
    for world in (
        by_process, no_host_pid, device_beside, beside_in_two, copies_twice, released,
        replicas_by_process, process_only, stuck, at_rest, working, upgrading,
        mixed_models, first_release, old_labels, both_releases, amd, amd_prefixed, amd_partitions,
        amd_old, intel, intel_groups, ascend, tpu, neuron, gaudi, hami, two_vendors, away,
    ):  # fmt: skip
        yield from world()
    for release in RELEASES:
        for form in FORMS:
            yield from generation(release, form)

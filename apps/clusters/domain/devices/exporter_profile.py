"""How the device exporters of a cluster showed themselves in a window, by scrape job.

Detected anew in every window. A profile lists what was seen. What was not seen may exist all the
same (no pod held a device, no GPU was shared), so its absence is no change.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from apps.accounts.domain.structs import replace


class Family(StrEnum):
    """Exporters by the names and units of their metrics."""

    DCGM = "dcgm-exporter"
    DCGM_1 = "dcgm-exporter 1.x"
    AMD = "AMD device-metrics-exporter"
    INTEL = "Intel XPU Manager"
    ASCEND = "Ascend NPU exporter"
    TPU = "GKE TPU device plugin"
    NEURON = "AWS Neuron Monitor"
    GAUDI = "Intel Gaudi metric exporter"
    HAMI = "HAMi vGPU monitor"


class Generation(StrEnum):
    """Releases of dcgm-exporter as far as labels tell them apart."""

    FIRST = "1.x"
    HOSTNAME_UPPER = "4.8.2 or older"
    HOSTNAME_LOWER = "4.8.3 or newer"
    BOTH = "some 4.8.2 or older, some 4.8.3 or newer"
    UNKNOWN = "unknown"


class WorkloadLabels(StrEnum):
    """Which labels name the pod that holds a device."""

    PLAIN = "pod"
    EXPORTED = "exported_pod"
    OLD = "pod_name"
    KUBE = "kube_pod"
    NONE = "none"


class VirtualGpus(StrEnum):
    """How a GPU that several pods share appears in the series."""

    NONE = "none"
    COPIES = "a copy for each pod"
    COPIES_AND_DEVICE = "copies and a row of the device"
    BY_PROCESS = "values by process and a row of the device"


class JobProfile(Struct, frozen=True):
    """What one scrape job showed.

    `label_names` are those of its series that tell one set-up from another; None where the server
    does not list labels. `activity_metrics` gives by model the metrics that were used, the better
    one first. `rescaled` are metrics in another unit than the exporter's own; jobs that name
    workloads alike are read together and share it.
    """

    job: str
    family: Family
    generation: Generation = Generation.UNKNOWN
    workload_labels: WorkloadLabels = WorkloadLabels.NONE
    node_labels: tuple[str, ...] = ()
    virtual_gpus: VirtualGpus = VirtualGpus.NONE
    mig: bool = False
    dra_labels: bool = False
    pod_uid: bool = False
    rescaled: tuple[str, ...] = ()
    activity_metrics: tuple[tuple[str, tuple[str, ...]], ...] = ()
    memory_metric: str = ""
    energy_metric: str = ""
    label_names: tuple[str, ...] | None = None


class ExporterProfile(Struct, frozen=True):
    """The jobs that export devices, by family and name."""

    jobs: tuple[JobProfile, ...] = ()

    @property
    def families(self) -> tuple[Family, ...]:
        """Return the families there are, each once, in order."""
        return tuple(dict.fromkeys(one.family for one in self.jobs))

    def as_json(self) -> dict[str, Any]:
        """Return what `from_json` reads: dictionaries, lists, strings, booleans and None."""
        return {"jobs": [_plain(asdict(one)) for one in self.jobs]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ExporterProfile":
        """Return the profile that `as_json` wrote. Raises ValueError for a word it never wrote."""
        return cls(tuple(_job(one) for one in stored.get("jobs", ())))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, StrEnum) else value


def _job(stored: Mapping[str, Any]) -> JobProfile:
    names = stored.get("label_names")
    return JobProfile(
        job=stored["job"],
        family=Family(stored["family"]),
        generation=Generation(stored["generation"]),
        workload_labels=WorkloadLabels(stored["workload_labels"]),
        node_labels=tuple(stored["node_labels"]),
        virtual_gpus=VirtualGpus(stored["virtual_gpus"]),
        mig=stored["mig"],
        dra_labels=stored["dra_labels"],
        pod_uid=stored["pod_uid"],
        rescaled=tuple(stored["rescaled"]),
        activity_metrics=tuple((model, tuple(some)) for model, some in stored["activity_metrics"]),
        memory_metric=stored["memory_metric"],
        energy_metric=stored["energy_metric"],
        label_names=None if names is None else tuple(names),
    )


def with_earlier(before: ExporterProfile, after: ExporterProfile) -> ExporterProfile:
    """Return `after`, with what it could not see taken from `before`.

    A night without pods shows no workload labels and no shared GPU. Compared with the stored
    profile, the next morning is no change.
    """
    known = {(one.family, one.job): one for one in before.jobs}
    return ExporterProfile(
        tuple(_filled(known.get((one.family, one.job)), one) for one in after.jobs)
    )


def _filled(old: JobProfile | None, new: JobProfile) -> JobProfile:
    if old is None:
        return new
    nothing = WorkloadLabels.NONE
    models = {**dict(old.activity_metrics), **dict(new.activity_metrics)}
    return replace(
        new,
        generation=old.generation if new.generation is Generation.UNKNOWN else new.generation,
        workload_labels=(
            old.workload_labels if new.workload_labels is nothing else new.workload_labels
        ),
        node_labels=new.node_labels or old.node_labels,
        virtual_gpus=(
            old.virtual_gpus if new.virtual_gpus is VirtualGpus.NONE else new.virtual_gpus
        ),
        mig=new.mig or old.mig,
        dra_labels=new.dra_labels or old.dra_labels,
        pod_uid=new.pod_uid or old.pod_uid,
        activity_metrics=tuple(sorted(models.items())),
        memory_metric=new.memory_metric or old.memory_metric,
        energy_metric=new.energy_metric or old.energy_metric,
        label_names=old.label_names if new.label_names is None else new.label_names,
    )


def differences(before: ExporterProfile, after: ExporterProfile) -> list[str]:
    """Return what changed from one window to a later one, in words, with what it means.

    What `after` merely did not see is no difference; see `with_earlier`.
    """
    old = {(one.family, one.job): one for one in before.jobs}
    new = {(one.family, one.job): one for one in after.jobs}
    found = [
        f"Job {key[1]} exports devices now ({key[0]}): devices that another job exports, too, "
        "are counted once."
        for key in sorted(new.keys() - old.keys())
    ]
    found += [
        f"Job {key[1]} no longer exports devices ({key[0]}): devices that no other job exports "
        "have no metrics from then on."
        for key in sorted(old.keys() - new.keys())
    ]
    for key in sorted(old.keys() & new.keys()):
        found += [f"Job {key[1]}: {text}" for text in _changes(old[key], new[key])]
    return found


def _changes(old: JobProfile, new: JobProfile) -> list[str]:
    # What a quiet window could not show is no change.
    new = _filled(old, new)
    found = []
    if new.generation != old.generation:
        found.append(
            f"the exporter is {new.generation} where it was {old.generation}: the label of the "
            "node is read under either name, rules and dashboards of your own may not do so."
        )
    if new.workload_labels != old.workload_labels:
        found.append(
            f"pods are named by {new.workload_labels}, before by {old.workload_labels}: "
            "honorLabels or the exporter's mapping of pods was changed; facts follow by themselves."
        )
    if new.node_labels != old.node_labels and old.node_labels:
        found.append(
            f"nodes are named by {_listed(new.node_labels)}, before by {_listed(old.node_labels)}:"
            " the names must still be those of Kubernetes, or devices are at no known node."
        )
    if new.virtual_gpus != old.virtual_gpus:
        found.append(
            f"shared GPUs show {new.virtual_gpus}, before {old.virtual_gpus}: "
            f"{_SHARED[new.virtual_gpus]}"
        )
    for name, what in (
        ("mig", "MIG instances appeared: each is a device of its own, named by its GPU's UUID."),
        ("dra_labels", "labels of resource claims appeared: devices of DRA find their claims."),
        ("pod_uid", "labels of pods' UIDs appeared."),
    ):
        if getattr(new, name) and not getattr(old, name):
            found.append(what)
    if new.rescaled != old.rescaled:
        found.append(
            f"values in another unit than the exporter's own: {_listed(new.rescaled)}, before "
            f"{_listed(old.rescaled)}; they are converted, rules of your own may not do so."
        )
    return found + _metric_changes(old, new)


_SHARED: Mapping[VirtualGpus, str] = {
    VirtualGpus.NONE: "a GPU's activity is divided among the pods that hold it.",
    VirtualGpus.COPIES: "a GPU's activity is counted once and divided among the pods that hold it.",
    VirtualGpus.COPIES_AND_DEVICE: (
        "a GPU's activity is counted once and divided among the pods that hold it."
    ),
    VirtualGpus.BY_PROCESS: (
        "a GPU's activity is divided by what each pod's processes used, grade measured."
    ),
}


def _metric_changes(old: JobProfile, new: JobProfile) -> list[str]:
    found = []
    known = dict(old.activity_metrics)
    for model, metrics in new.activity_metrics:
        if model in known and known[model] != metrics:
            found.append(
                f"activity of {model or 'devices without a model'} is read from "
                f"{_listed(metrics)}, before from {_listed(known[model])}: both say how long "
                "work was present, but they do not agree to the last per cent."
            )
    for what, now, then in (
        ("memory", new.memory_metric, old.memory_metric),
        ("energy", new.energy_metric, old.energy_metric),
    ):
        if now != then:
            found.append(
                f"{what} is read from {now or 'nothing'}, before from {then or 'nothing'}."
            )
    return found


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


VENDOR_LIMITS: Mapping[Family, tuple[str, ...]] = {
    Family.DCGM: (),
    Family.DCGM_1: (
        "Release 1.x supports neither MIG instances nor shared GPUs: such devices have no metrics.",
        "It does not name the node unless a relabelling does: devices find their node through "
        "their pods alone.",
    ),
    Family.AMD: (
        "Activity is gfx_activity, whole per cent: short bursts are rounded.",
        "Pods are named only where the exporter may read the kubelet's pod resources.",
        "There is no MIG. In a partition mode (CPX, DPX, QPX) many values exist on partition 0 "
        "only. Another partition that always reads 0 has no metrics; it is not idle.",
        "Memory is exported in MB and shown in MiB; the exporter does not say whether it means "
        "1000 or 1024, so that it may be 5 % too small.",
        "Without gpu_uuid among the exporter's labels a GPU is known by its serial number, else "
        "by its number on its node.",
        "There is no value by process: the activity of a GPU that pods share is divided.",
    ),
    Family.INTEL: (
        "Pods are named only where xpumd runs with access to the kubelet's pod resources.",
        "A GPU of several tiles is as active as its most active tile. Its memory is the sum of "
        "the tiles' peaks where the exporter gives no value of the whole GPU.",
        "A GPU shared through gpu.intel.com/i915 with sharedDevNum has no values by pod: its "
        "activity is divided.",
        "There is no counterpart of MIG.",
    ),
    Family.ASCEND: (
        "Activity is the use of the AI cores, whole per cent: short bursts are rounded.",
        "Releases without vdie_id name chips by number: they find their node through a label of "
        "the node, else through their pods alone.",
        "Energy is not exported, power alone: it is not known.",
        "Parts of a chip (vNPU) have no activity of their own.",
    ),
    Family.TPU: (
        "Activity is duty_cycle, per cent of the time in which the TPU was at work.",
        "The plugin measures once a minute: shorter bursts are missed.",
        "Energy is not exported: it is not known.",
    ),
    Family.NEURON: (
        "Activity of a Neuron device is the mean of its NeuronCores; a core that no runtime has in "
        "use counts as idle, for the monitor shows it not at all.",
        "Pods are not named: a node's devices find their pod where one pod alone runs on Neuron "
        "devices there and has all of them. Else their activity is unattributed.",
        "A node is known by a label of its name, which a relabelling must add, else by its EC2 "
        "instance id.",
        "Memory is not read, and energy is not exported: both are not known.",
    ),
    Family.GAUDI: (
        "Activity is the utilization of the device, whole per cent: short bursts are rounded.",
        "Pods are named only where the exporter runs in the cluster. The node is not named unless "
        "a relabelling does: devices find it through their pods alone.",
        "The model is not exported: it is that of the node's labels.",
    ),
    Family.HAMI: (
        "Read for GPUs that no other exporter measures.",
        "Activity is GPU utilization, whole per cent: short bursts are rounded.",
        "Pods are not named: a GPU's activity is apportioned among those that HAMi put on it, by "
        "what they hold; where that is not known, among those that share GPUs of the node. "
        "Values by container are not used, since they stay 0 where a pod "
        "has no limit of cores.",
        "Energy is not exported, power alone: it is not known.",
    ),
}
"""What an exporter of a family cannot show, a sentence each, for the page of data quality."""

"""The labels of device exporters, and which of them name the workload.

Those are the plain ones, or `exported_*` (Prometheus' label clash). The exporter runs in a pod
itself. Where Prometheus adds that pod's labels as target labels and does not honour those of
the exporter, it renames the workload's to `exported_*`; else the plain ones are the workload's.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

import msgspec

# An exporter whose target labels say `pod` without a clash names itself, not a workload. `up`
# tells which pods these are; only where it is not kept does the name decide.
_EXPORTER = re.compile(r"dcgm|exporter")

Pods = Collection[tuple[str, str]]
"""(namespace, pod)."""


class HolderLabels(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A device and who held it: the key by which the answers of several queries are joined."""

    uuid: str = msgspec.field(name="UUID", default="")
    gpu_instance: str = msgspec.field(name="GPU_I_ID", default="")
    namespace: str = ""
    pod: str = ""
    container: str = ""


class ExportedHolder(HolderLabels, frozen=True, gc=False, cache_hash=True):
    """The same where the workload's labels were renamed."""

    namespace: str = msgspec.field(name="exported_namespace", default="")
    pod: str = msgspec.field(name="exported_pod", default="")
    container: str = msgspec.field(name="exported_container", default="")


class DeviceLabels(msgspec.Struct, frozen=True, gc=False):
    """All labels that a row is made of. A node is named in one of five ways."""

    uuid: str = msgspec.field(name="UUID", default="")
    gpu_instance: str = msgspec.field(name="GPU_I_ID", default="")
    namespace: str = ""
    pod: str = ""
    container: str = ""
    profile: str = msgspec.field(name="GPU_I_PROFILE", default="")
    model: str = msgspec.field(name="modelName", default="")
    node_label: str = msgspec.field(name="node", default="")
    kubernetes_node: str = ""
    nodename: str = ""
    hostname: str = ""
    old_hostname: str = msgspec.field(name="Hostname", default="")

    @property
    def node(self) -> str:
        return (
            self.node_label
            or self.kubernetes_node
            or self.nodename
            or self.hostname
            or self.old_hostname
        )


class ExportedDevice(DeviceLabels, frozen=True, gc=False):
    """The same where the workload's labels were renamed."""

    namespace: str = msgspec.field(name="exported_namespace", default="")
    pod: str = msgspec.field(name="exported_pod", default="")
    container: str = msgspec.field(name="exported_container", default="")


class OldHolder(ExportedHolder, frozen=True, gc=False, cache_hash=True):
    """The labels of release 1.x, and of later ones with --use-old-namespace.

    They clash with no label of a target, so that they are never renamed nor the exporter's own.
    """

    uuid: str = msgspec.field(name="uuid", default="")
    namespace: str = msgspec.field(name="pod_namespace", default="")
    pod: str = msgspec.field(name="pod_name", default="")
    container: str = msgspec.field(name="container_name", default="")


class OldDevice(DeviceLabels, frozen=True, gc=False):
    """The same with all labels that a row is made of."""

    uuid: str = msgspec.field(name="uuid", default="")
    namespace: str = msgspec.field(name="pod_namespace", default="")
    pod: str = msgspec.field(name="pod_name", default="")
    container: str = msgspec.field(name="container_name", default="")


class Target(msgspec.Struct, frozen=True, gc=False):
    """A device as one scrape target shows it."""

    uuid: str = msgspec.field(name="UUID", default="")
    job: str = ""
    instance: str = ""


class TargetHolder(HolderLabels, frozen=True, gc=False, cache_hash=True):
    """A device and its holder as one scrape target shows them."""

    job: str = ""
    instance: str = ""


class ExportedTargetHolder(ExportedHolder, frozen=True, gc=False, cache_hash=True):
    """The same where the workload's labels were renamed."""

    job: str = ""
    instance: str = ""


class OldTargetHolder(OldHolder, frozen=True, gc=False, cache_hash=True):
    """The same with the labels of release 1.x."""

    job: str = ""
    instance: str = ""


class LabelScheme(NamedTuple):
    """One of the ways in which devices and workloads are named."""

    holder: type[HolderLabels]
    device: type[DeviceLabels]
    target_holder: type[TargetHolder] | type[ExportedTargetHolder] | type[OldTargetHolder]

    @property
    def plain(self) -> bool:
        """Whether workloads have the labels that an exporter's own pod could have, too."""
        return self.holder is HolderLabels

    @property
    def uuid_label(self) -> str:
        """The label that names the device."""
        return self.holder_labels[0]

    @property
    def holder_labels(self) -> tuple[str, ...]:
        # Queries and decoders take labels from one declaration, so that they cannot differ.
        return tuple(field.encode_name for field in msgspec.structs.fields(self.holder))

    @property
    def device_labels(self) -> tuple[str, ...]:
        return tuple(field.encode_name for field in msgspec.structs.fields(self.device))


PLAIN = LabelScheme(HolderLabels, DeviceLabels, TargetHolder)
EXPORTED = LabelScheme(ExportedHolder, ExportedDevice, ExportedTargetHolder)
OLD = LabelScheme(OldHolder, OldDevice, OldTargetHolder)


def workload(holder: HolderLabels, target_pods: Pods | None = None) -> tuple[str, str, str]:
    """Return (namespace, pod, container) of the workload; all empty where there is none.

    `target_pods` are the pods that are scraped themselves; None: not known, their name decides.
    """
    if not holder.pod:
        return "", "", ""
    # Only plain labels can be those of the exporter's own pod.
    if not isinstance(holder, ExportedHolder):
        own = (
            _EXPORTER.search(holder.pod) is not None
            if target_pods is None
            else (holder.namespace, holder.pod) in target_pods
        )
        if own:
            return "", "", ""
    return holder.namespace, holder.pod, holder.container

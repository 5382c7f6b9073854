"""The files that carry out a plan: for mig-parted, and for the device plug-in's ConfigMap.

Formats: NVIDIA/mig-parted `version: v1, mig-configs`; NVIDIA/k8s-device-plugin `version: v1`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from apps.planning.domain.layouts.advice import LayoutSpan, LayoutStep

MIG_LABEL = "nvidia.com/mig.config"
PLUGIN_LABEL = "nvidia.com/device-plugin.config"
_GPU = "nvidia.com/gpu"


class _Dumper(yaml.SafeDumper):
    """Texts of several lines are written as such."""


def _block_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)


_Dumper.add_representer(str, _block_text)


def mig_parted_file(steps: Sequence[LayoutStep]) -> str:
    """Return the mig-parted configuration of the steps' nodes; empty where none changes by MIG."""
    # Nodes that change alike share a name, and so an entry.
    own = {_mig_name(steps, step): _mig_config(step.layout) for step in _of_mig(steps)}
    return _text({"version": "v1", "mig-configs": own}) if own else ""


def plugin_file(steps: Sequence[LayoutStep]) -> str:
    """Return the device plug-in's ConfigMap, with a key for each kind of node; empty for none."""
    data = {_plugin_name(step.layout): _text(_plugin_config(step.layout)) for step in steps}
    if not data:
        return ""
    return _text(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "device-plugin-config"},
            "data": data,
        }
    )


def node_labels(steps: Sequence[LayoutStep], step: LayoutStep) -> dict[str, str]:
    """Return the labels that make the node of a step take its parts of the files."""
    found = {}
    if step in _of_mig(steps):
        found[MIG_LABEL] = _mig_name(steps, step)
    return {**found, PLUGIN_LABEL: _plugin_name(step.layout)}


def _of_mig(steps: Iterable[LayoutStep]) -> list[LayoutStep]:
    """Return the steps of nodes that have MIG devices before or after."""
    return [step for step in steps if step.had_mig or any(span.layout.mig for span in step.layout)]


def _mig_name(steps: Sequence[LayoutStep], step: LayoutStep) -> str:
    """Return the name of a configuration: those of alike nodes are one."""
    known = list(dict.fromkeys(one.layout for one in _of_mig(steps)))
    return f"portal-{known.index(step.layout) + 1}"


def _mig_config(layout: Sequence[LayoutSpan]) -> list[dict[str, Any]]:
    found = []
    for span in layout:
        one: dict[str, Any] = {"devices": "all" if len(layout) == 1 else list(span.gpus)}
        one["mig-enabled"] = bool(span.layout.mig)
        if span.layout.mig:
            one["mig-devices"] = dict(span.layout.mig)
        found.append(one)
    return found


def _plugin_name(layout: Sequence[LayoutSpan]) -> str:
    """Return the key of a node's device plug-in configuration."""
    # A node has one strategy: that of its MIG devices, where any GPU has some.
    first = next((span.layout for span in layout if span.layout.mig), layout[0].layout)
    if first.replicas > 1:
        # Renamed replicas are another resource, so their nodes need another configuration.
        return f"{first.strategy}-{first.replicas}{'-renamed' * first.renamed}"
    return f"mig-{first.strategy}" if first.mig else "whole"


def _plugin_config(layout: Sequence[LayoutSpan]) -> Mapping[str, Any]:
    first = next((span.layout for span in layout if span.layout.mig), layout[0].layout)
    strategy = first.strategy if first.mig else "none"
    found: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": strategy}}
    if first.replicas > 1:
        resources = [{"name": _GPU, "replicas": first.replicas}]
        kind = "mps" if first.strategy == "mps" else "timeSlicing"
        found["sharing"] = {kind: {"renameByDefault": first.renamed, "resources": resources}}
    return found


def _text(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False)

"""Layout advice of `campus` tried on the simulator: what it promises is what the scheduler does.

Whole A100 and their MIG devices, and GPUs shared by replicas, without queues and quotas: unmet,
allocated, unallocated and stranded GPU-hours within a tenth, with the layout of now and with the
advised one. How that scheduler chooses nodes is found
out from what it did, as the backtest finds it out: in a pool that is nearly full, work that is
packed instead leaves a third less unmet.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.window import Window
from apps.clusters.services import TierHistory
from apps.planning.domain.cluster_replay.backtest import (
    RecordedSpan,
    WorkTimes,
    nearest_packing,
)
from apps.planning.domain.cluster_replay.inputs import (
    Packing,
    RecordedWork,
    ReplayCluster,
    ReplayNode,
)
from apps.planning.domain.layouts.advice import (
    HeldGpus,
    LayoutAdvice,
    advised_nodes,
    layout_advice,
)
from apps.planning.domain.layouts.figures import DemandWindow
from apps.planning.domain.layouts.options import layout_choices
from apps.planning.domain.recorded.constraints import TAINTS
from apps.planning.selectors import RecordedDemand, recorded_demand
from simulator.fleet import DAY
from simulator.scheduler.placing import Scheduler
from simulator.scheduler.store import Store
from tests.planning.recorded_scenario import record_scenario
from tests.served_lab import scenario_of
from tests.shared_rows import remembered
from tests.simulator.truths import NOW

pytestmark = [pytest.mark.django_db, pytest.mark.long]
END = NOW // DAY * DAY
RESOURCES = {
    "whole-a100": "nvidia.com/gpu",
    "mig-3g": "nvidia.com/mig-3g.40gb",
    "mig-1g": "nvidia.com/mig-1g.10gb",
    "shared-t4": "nvidia.com/gpu",
    "shared-l4": "nvidia.com/gpu.shared",
}
BY_MIG = ("whole-a100", "mig-3g", "mig-1g")
BY_REPLICAS = ("shared-t4", "shared-l4")
TOLERANCE = 0.1


@pytest.mark.parametrize("days", [4, pytest.param(14, marks=pytest.mark.exhaustive)])
def test_the_simulated_scheduler_measures_what_the_advice_promises(days: int) -> None:
    demand = demand_of(recorded_campus(days), BY_MIG)
    found = tried(demand, {}, Packing.FIRST)
    assert found.after.unmet_gpu_hours < found.before.unmet_gpu_hours
    assert found.after.stranded_gpu_hours > 0


def test_it_measures_what_more_replicas_are_promised_to_do() -> None:
    """Of each kind one node is there, so that some of the demand for its replicas is unmet."""
    whole = demand_of(recorded_campus(4), BY_REPLICAS)
    few = tuple(node for node in whole.cluster.nodes if node.name.endswith("-01"))
    assert len(few) == len(BY_REPLICAS)
    demand = replace(whole, cluster=ReplayCluster(few))
    # Two such pods leave a GPU as little active as that: as many again have room on it.
    found = tried(demand, dict.fromkeys(BY_REPLICAS, 0.3), None)
    assert {span.layout.replicas for step in found.steps for span in step.layout} == {8}
    assert found.after.unmet_gpu_hours < found.before.unmet_gpu_hours
    assert found.after.stranded_gpu_hours == found.before.stranded_gpu_hours == 0.0


@remembered
def recorded_campus(days: int) -> RecordedDemand:
    start = END - days * DAY
    cluster = record_scenario(scenario_of("campus", NOW), start=start, end=END)
    window = Window(datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(END, UTC))
    return recorded_demand(cluster.name, window, visibility=EVERYTHING)


def tried(
    demand: DemandWindow, activity: Mapping[str, float], packing: Packing | None
) -> LayoutAdvice:
    """Return the advice after the simulated scheduler has measured what it promises.

    `packing` is how it is found to choose nodes; None where there is no choice.
    """
    rules = TierHistory.load().at(END - 1)
    choices = layout_choices(demand.cluster.nodes, rules, activity, end=demand.end)
    trial = Trial(demand, demand.cluster.nodes)
    trial.run()
    nearest = nearest_packing(
        RecordedSpan(demand.works, trial.happened(demand), demand.cluster, demand.start, demand.end)
    )
    assert nearest is packing
    held = HeldGpus(demand.start, {})
    found = layout_advice(demand, choices, held, packing or Packing.FIRST)
    assert found.steps
    changed = Trial(demand, advised_nodes(demand.cluster.nodes, found.steps))
    changed.run()
    for one, promised in ((trial, found.before), (changed, found.after)):
        measured = one.gpu_hours(demand)
        allocated = sum(own.allocated_gpu_hours for own in promised.tiers.values())
        assert measured.unmet == pytest.approx(promised.unmet_gpu_hours, rel=TOLERANCE)
        assert measured.allocated == pytest.approx(allocated, rel=TOLERANCE)
        assert measured.idle == pytest.approx(promised.unallocated_gpu_hours, rel=TOLERANCE)
        assert measured.stranded == pytest.approx(promised.stranded_gpu_hours, rel=TOLERANCE)
    return found


class Measured(NamedTuple):
    """GPU-hours of a trial: `idle` is capacity that nothing held, `stranded` in no MIG device."""

    unmet: float
    allocated: float
    idle: float
    stranded: float


def demand_of(found: RecordedDemand, tiers: Collection[str]) -> DemandWindow:
    """Return the demand for these tiers, without queues and quotas."""
    start = found.window.start_seconds
    pairs = [
        (replace(work, queue="", namespace=""), life.times)
        for work, life in zip(found.works, found.lives, strict=True)
        if work.tier in tiers and work.pods == 1 and work.asked_at < END
    ]
    nodes = tuple(
        node
        for node in found.cluster.nodes
        if {device.tier for device in node.devices} <= set(tiers)
        and not any(span.end < END or span.start > start for span in node.closed)
        and not node.missing
    )
    works, times = [work for work, _ in pairs], [life for _, life in pairs]
    return DemandWindow(works, times, ReplayCluster(nodes), float(start), float(END))


class Trial:
    """A control plane with these nodes, in which works arrive and end as they are recorded."""

    def __init__(self, demand: DemandWindow, nodes: Sequence[ReplayNode]) -> None:
        self._works, self._nodes = demand.works, nodes
        self._start = int(demand.start)
        self._store = Store("trial", 0, self._start)
        self.started: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self._on: dict[int, str] = {}
        for node in nodes:
            self._store.create("nodes", node_object(node))
        self._room: dict[tuple[str, str], float] = defaultdict(float)
        for node in nodes:
            for device in node.devices:
                self._room[node.name, RESOURCES[device.tier]] += device.units
        self._waiting: dict[str, int] = {}

    def happened(self, demand: DemandWindow) -> list[WorkTimes]:
        """Return how each work went."""
        return [
            was._replace(started_at=self.started.get(number), ended_at=self.ended.get(number))
            for number, was in enumerate(demand.happened)
        ]

    def gpu_hours(self, demand: DemandWindow) -> Measured:
        """Return what was unmet, allocated, idle and stranded, by the objects of the API."""
        unmet = allocated = 0.0
        for number, (work, was) in enumerate(zip(demand.works, self.happened(demand), strict=True)):
            over = END if was.ended_at is None else was.ended_at
            asked = demand.start if work.running else max(demand.start, work.asked_at)
            # What ran before and has no room is pending, as anything else.
            begun = over if was.started_at is None else was.started_at
            unmet += was.gpus * max(0.0, begun - asked)
            if was.started_at is not None:
                size = work.units * self._unit(self._on[number], RESOURCES[work.tier])
                allocated += size * max(0.0, over - was.started_at)
        hours = (END - demand.start) / 3600
        open_nodes = [node.name for node in self._nodes if not node.closed]
        offered = {name: self._offered(name) for name in open_nodes}
        stranded = sum(
            float(self._object(name)["metadata"]["labels"]["nvidia.com/gpu.count"]) - gpus
            for name, gpus in offered.items()
            if any("mig-" in resource for resource in self._amounts(name))
        )
        held = allocated / 3600
        return Measured(unmet / 3600, held, sum(offered.values()) * hours - held, stranded * hours)

    def _object(self, name: str) -> Any:
        return self._store.get("nodes", "", name)

    def _amounts(self, name: str) -> dict[str, float]:
        """Return what a node offers of each GPU resource."""
        amounts = self._object(name)["status"]["allocatable"].items()
        return {key: float(amount) for key, amount in amounts if key in RESOURCES.values()}

    def _offered(self, name: str) -> float:
        return sum(
            units * self._unit(name, resource) for resource, units in self._amounts(name).items()
        )

    def _unit(self, name: str, resource: str) -> float:
        """Return which part of a GPU a unit on a node is."""
        _, is_mig, profile = resource.partition("mig-")
        if is_mig:
            return int(profile.partition("g")[0]) / 7
        labels = self._object(name)["metadata"]["labels"]
        # Nodes with MIG devices have 0, also once some of their GPUs are whole again.
        return 1 / (int(labels.get("nvidia.com/gpu.replicas", 1)) or 1)

    def run(self) -> None:
        events: list[tuple[float, int, int]] = []
        for number, work in enumerate(self._works):
            arrives = max(self._start, work.asked_at + work.delay_seconds)
            begins = self._start if work.running else arrives
            heapq.heappush(events, (begins, 2, number))
            for leaves_at in (work.leaves_at, work.ends_at):
                # A service that is scaled down takes its pending pods with it.
                if leaves_at is not None and not work.running:
                    heapq.heappush(events, (max(self._start, leaves_at), 1, number))
        while events and events[0][0] < END:
            at = events[0][0]
            while events and events[0][0] == at:
                _, kind, number = heapq.heappop(events)
                self._happen(at, kind, number)
            self._store.now = int(at)
            Scheduler(self._store).run()
            for number in self._bound(at):
                ends = self._end_of(number, at)
                if ends is not None:
                    heapq.heappush(events, (max(at, ends), 0, number))

    def _happen(self, at: float, kind: int, number: int) -> None:
        if kind == 2:
            self._store.create("pods", self._pod(number))
            self._waiting[f"pod-{number}"] = number
        elif kind == 0 or number not in self.started:
            pod = self._store.get("pods", "trial", f"pod-{number}")
            if pod is not None:
                self._store.remove("pods", pod)
            self._waiting.pop(f"pod-{number}", None)
            self.ended[number] = at

    def _bound(self, at: float) -> Iterator[int]:
        for name, number in list(self._waiting.items()):
            pod = self._store.get("pods", "trial", name)
            if pod is not None and pod["spec"].get("nodeName"):
                del self._waiting[name]
                self._on[number] = pod["spec"]["nodeName"]
                self.started[number] = at
                yield number

    def _end_of(self, number: int, at: float) -> float | None:
        work = self._works[number]
        if work.ends_at is not None:
            return work.ends_at
        return None if work.runs_seconds is None else at + work.runs_seconds

    def _takes(self, work: RecordedWork) -> bool:
        """Say whether what ran before still has room where it ran."""
        key = (work.nodes[0], RESOURCES[work.tier])
        has_room = self._room[key] >= work.units
        self._room[key] -= work.units if has_room else 0
        return has_room

    def _only_nodes(self, taints: Collection[str], tier: str) -> dict[str, object]:
        """Return the affinity to nodes with one of these taints, where demand is recorded for them.

        A toleration alone draws no pod to a node that is kept for its like. Two tiers may have one
        resource, and nodes of their own.
        """
        names = [
            node.name
            for node in self._nodes
            if node.labels[TAINTS] in taints and any(one.tier == tier for one in node.devices)
        ]
        fields = [{"key": "metadata.name", "operator": "In", "values": names}]
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": fields}]
            }
        }

    def _pod(self, number: int) -> dict[str, object]:
        work = self._works[number]
        selector = {key: value for key, value in work.requires if key != TAINTS}
        required = dict(work.requires).get(TAINTS)
        # T4 nodes have no taint: their work requires none.
        taints = ("", "nvidia.com/gpu=present") if required is None else (required,)
        keys = [one.partition("=")[0] for each in taints for one in each.split(",") if one]
        resources = {"requests": {RESOURCES[work.tier]: f"{work.units:g}"}}
        spec: dict[str, object] = {
            "containers": [{"name": "main", "resources": resources}],
            "nodeSelector": selector,
            "tolerations": [{"key": key, "operator": "Exists"} for key in keys],
            "affinity": {"nodeAffinity": self._only_nodes(taints, work.tier)},
            "priority": work.priority,
            "preemptionPolicy": "Never",
            "schedulerName": "default-scheduler",
        }
        if work.running and work.nodes and self._takes(work):
            spec["nodeName"] = work.nodes[0]
        meta = {"name": f"pod-{number}", "namespace": "trial"}
        return {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def node_object(node: ReplayNode) -> dict[str, object]:
    """Return a Node that offers the devices of a replayed one."""
    counts: Counter[str] = Counter()
    for device in node.devices:
        counts[RESOURCES[device.tier]] += int(device.units)
    taints = [one.partition("=") for one in node.labels[TAINTS].split(",") if one]
    return {
        "metadata": {
            "name": node.name,
            "labels": {key: value for key, value in node.labels.items() if key != TAINTS},
        },
        "spec": {
            "unschedulable": bool(node.closed),
            "taints": [
                {"key": key, "value": value, "effect": "NoSchedule"} for key, _, value in taints
            ],
        },
        "status": {
            "allocatable": {
                "cpu": "9999", "memory": "9999Gi", "pods": "999",
                **{resource: str(count) for resource, count in counts.items()},
            },
        },
    }  # fmt: skip

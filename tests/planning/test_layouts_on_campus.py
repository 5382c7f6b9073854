"""Layout advice of `campus` tried on the simulator: what it promises is what the scheduler does.

Whole A100 and their MIG devices, without queues and quotas: unmet and allocated GPU-hours within a
tenth, with the layout of now and with the advised one. How that scheduler chooses nodes is found
out from what it did, as the backtest finds it out: in a pool that is nearly full, work that is
packed instead leaves a third less unmet.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

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
from apps.planning.domain.layouts.advice import HeldGpus, advised_nodes, layout_advice
from apps.planning.domain.layouts.figures import DemandWindow
from apps.planning.domain.layouts.options import layout_choices
from apps.planning.domain.recorded.constraints import TAINTS
from apps.planning.selectors import RecordedDemand, recorded_demand
from simulator.fleet import DAY
from simulator.scheduler.placing import Scheduler
from simulator.scheduler.store import Store
from tests.planning.recorded_scenario import record_scenario
from tests.served_lab import scenario_of
from tests.simulator.truths import NOW

pytestmark = [pytest.mark.django_db, pytest.mark.long]
END = NOW // DAY * DAY
RESOURCES = {
    "whole-a100": "nvidia.com/gpu",
    "mig-3g": "nvidia.com/mig-3g.40gb",
    "mig-1g": "nvidia.com/mig-1g.10gb",
}
TOLERANCE = 0.1


@pytest.mark.parametrize("days", [4, pytest.param(14, marks=pytest.mark.exhaustive)])
def test_the_simulated_scheduler_measures_what_the_advice_promises(days: int) -> None:
    start = END - days * DAY
    cluster = record_scenario(scenario_of("campus", NOW), start=start, end=END)
    window = Window(datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(END, UTC))
    demand = demand_of(recorded_demand(cluster.name, window, visibility=EVERYTHING), start)
    rules = TierHistory.load().at(END - 1)
    choices = layout_choices(demand.cluster.nodes, rules, {}, end=demand.end)
    trial = Trial(demand, demand.cluster.nodes)
    trial.run()
    packing = nearest_packing(
        RecordedSpan(demand.works, trial.happened(demand), demand.cluster, demand.start, demand.end)
    )
    assert packing is Packing.FIRST
    found = layout_advice(demand, choices, HeldGpus(demand.start, {}), packing)
    assert found.steps
    assert found.after.unmet_gpu_hours < found.before.unmet_gpu_hours
    changed = Trial(demand, advised_nodes(demand.cluster.nodes, found.steps))
    changed.run()
    for one, promised in ((trial, found.before), (changed, found.after)):
        unmet, allocated = one.gpu_hours(demand)
        assert unmet == pytest.approx(promised.unmet_gpu_hours, rel=TOLERANCE)
        held = sum(one.allocated_gpu_hours for one in promised.tiers.values())
        assert allocated == pytest.approx(held, rel=TOLERANCE)


def demand_of(found: RecordedDemand, start: int) -> DemandWindow:
    """Return the demand for whole A100 and their MIG devices, without queues and quotas."""
    pairs = [
        (replace(work, queue="", namespace=""), life.times)
        for work, life in zip(found.works, found.lives, strict=True)
        if work.tier in RESOURCES and work.pods == 1 and work.asked_at < END
    ]
    nodes = tuple(
        node
        for node in found.cluster.nodes
        if {device.tier for device in node.devices} <= set(RESOURCES)
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

    def gpu_hours(self, demand: DemandWindow) -> tuple[float, float]:
        """Return the GPU-hours that were unmet and allocated."""
        unmet = allocated = 0.0
        for work, was in zip(demand.works, self.happened(demand), strict=True):
            over = END if was.ended_at is None else was.ended_at
            asked = demand.start if work.running else max(demand.start, work.asked_at)
            if not work.running:
                begun = over if was.started_at is None else was.started_at
                unmet += was.gpus * max(0.0, begun - asked)
            if was.started_at is not None:
                allocated += was.gpus * max(0.0, over - was.started_at)
        return unmet / 3600, allocated / 3600

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

    def _only_nodes(self, taints: str) -> dict[str, object]:
        """Return the affinity to nodes with just these taints, where demand is recorded for them.

        A toleration alone draws no pod to a node that is kept for its like.
        """
        names = [node.name for node in self._nodes if node.labels[TAINTS] == taints]
        fields = [{"key": "metadata.name", "operator": "In", "values": names}]
        return {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": fields}]
            }
        }

    def _pod(self, number: int) -> dict[str, object]:
        work = self._works[number]
        selector = {key: value for key, value in work.requires if key != TAINTS}
        taints = dict(work.requires).get(TAINTS, "nvidia.com/gpu=present")
        keys = [one.partition("=")[0] for one in taints.split(",") if one]
        resources = {"requests": {RESOURCES[work.tier]: f"{work.units:g}"}}
        spec: dict[str, object] = {
            "containers": [{"name": "main", "resources": resources}],
            "nodeSelector": selector,
            "tolerations": [{"key": key, "operator": "Exists"} for key in keys],
            "affinity": {"nodeAffinity": self._only_nodes(taints)},
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
    counts = Counter(RESOURCES[device.tier] for device in node.devices)
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

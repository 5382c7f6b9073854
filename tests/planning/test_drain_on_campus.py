"""A drain plan of `campus` tried on the simulator: pods go as it says, and a gang of 8 starts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster
from apps.clusters.services import snapshot_cluster
from apps.operations.services import load_catalog
from apps.planning.domain.topology.drain_plan import OpenedSlot
from apps.planning.selectors import TierFilters
from apps.planning.services import TierDrainPlan, drain_plans
from simulator.catalog import catalog_yaml
from simulator.scenarios.campus.pools import WHOLE
from simulator.scheduler.gangs import GROUP, SCHEDULER, Volcano
from simulator.scheduler.placing import Scheduler
from simulator.scheduler.store import Store
from tests.served_lab import scenario_of, served_lab

pytestmark = [pytest.mark.django_db, pytest.mark.long]
NOW = datetime(2026, 11, 21, 8, 20, tzinfo=UTC)
SIZE = 8


@pytest.fixture
def trial() -> tuple[TierDrainPlan, Store]:
    """Return the plan for whole A100, and a control plane with the cluster's nodes and pods."""
    scenario = scenario_of("campus", NOW.timestamp())
    with served_lab(scenario, NOW.timestamp()) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=NOW, dry_run=False)
        cluster = Cluster.objects.get(name="lab")
        snapshot_cluster(cluster.name, now=NOW)
        source = cluster_source(cluster)
        assert source is not None
        try:
            store = Store("trial", 0, int(NOW.timestamp()))
            for node in source.list("/api/v1/nodes").items:
                store.create("nodes", dict(node))
            for pod in source.list("/api/v1/pods").items:
                store.create("pods", dict(pod))
        finally:
            source.close()
    (plan,) = drain_plans(SIZE, now=NOW, visibility=EVERYTHING, filters=TierFilters(tier=(WHOLE,)))
    return plan, store


def test_pods_go_as_the_plan_says_and_the_gang_starts_there(
    trial: tuple[TierDrainPlan, Store],
) -> None:
    plan, store = trial
    assert plan.plan.is_complete
    assert len(plan.plan.opened) >= 1
    for number, slot in enumerate(plan.plan.opened):
        gang = make_gang(store, f"gang-{number}", slot)
        assert started(store, gang) == []
        moved = delete_as_told(store, slot)
        # Each controller makes its pod anew, and the scheduler finds another host for each.
        assert len(moved) == len(slot.moves)
        assert {one["spec"]["nodeName"] for one in moved}.isdisjoint({slot.host})
        assert started(store, gang) == [slot.host] * SIZE


def test_only_who_runs_the_cluster_sees_a_plan() -> None:
    lead = Visibility(everything=False)
    assert drain_plans(SIZE, now=NOW, visibility=lead) == []


def delete_as_told(store: Store, slot: OpenedSlot) -> list[Mapping[str, Any]]:
    """Cordon the host, delete its pods, let them start elsewhere, and lift the cordon."""
    cordon(store, slot.host, on=True)
    made = []
    for move in slot.moves:
        pod = store.get("pods", move.pod.namespace, move.pod.name)
        assert pod is not None
        assert pod["spec"]["nodeName"] == slot.host == move.source
        store.remove("pods", pod)
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        meta = {key: pod["metadata"].get(key) for key in ("name", "namespace", "labels")}
        fresh = {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}
        made.append(store.create("pods", fresh)["metadata"])
    Scheduler(store).run()
    cordon(store, slot.host, on=False)
    found = [store.get("pods", meta["namespace"], meta["name"]) for meta in made]
    return [one for one in found if one is not None and one["spec"]["nodeName"]]


def cordon(store: Store, host: str, *, on: bool) -> None:
    node = store.get("nodes", "", host)
    assert node is not None
    store.change("nodes", node, lambda item: item["spec"].update(unschedulable=on))


def make_gang(store: Store, name: str, slot: OpenedSlot) -> str:
    """Make a PodGroup of eight pods with a GPU each, which are to run on one host."""
    move = slot.moves[0].pod
    like = store.get("pods", move.namespace, move.name)
    assert like is not None
    spec = {key: value for key, value in like["spec"].items() if key != "nodeName"}
    container = dict(spec["containers"][0]) | {
        "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}
    }
    spec |= {
        "schedulerName": SCHEDULER,
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": slot.host},
    }
    meta = {"namespace": move.namespace, "annotations": {GROUP: name}}
    for number in range(SIZE):
        pod = {"metadata": meta | {"name": f"{name}-{number}"}, "spec": spec}
        store.create("pods", pod | {"status": {"phase": "Pending"}})
    group = {"metadata": {"name": name, "namespace": move.namespace}, "spec": {"minMember": SIZE}}
    store.create("podgroups", group | {"status": {"phase": "Pending"}})
    return name


def started(store: Store, gang: str) -> list[str]:
    """Let the gang scheduler run; return the hosts of the gang's pods that are bound."""
    Volcano(store).run()
    return [
        pod["spec"]["nodeName"]
        for pod in store.all("pods")
        if pod["metadata"].get("annotations", {}).get(GROUP) == gang and pod["spec"].get("nodeName")
    ]

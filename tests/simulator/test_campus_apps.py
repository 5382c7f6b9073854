"""The apps nodes of `campus`: what runs there follows the day, and everything agrees about it."""

from collections import defaultdict
from datetime import UTC, datetime

import pytest

from apps.clusters.domain.observed.autoscaling import (
    autoscaler_snapshot,
    is_of_group,
    provisioning_snapshot,
)
from apps.clusters.domain.observed.extract import node_pool_snapshot
from simulator.fleet import DAY, GPU, NODE_POOL_LABEL, Pod
from simulator.kubernetes.entities import collections
from simulator.scenarios.base import Scenario
from tests.simulator.conftest import NOW
from tests.simulator.scenario_truth import doings, holdings

MONDAY = int(datetime(2026, 11, 16, tzinfo=UTC).timestamp())
HOUR = 3600


def of_apps(scenario: Scenario, at: int) -> dict[str, list[Pod]]:
    """Return the pods of the apps nodes that run at a time, by the name of what made them."""
    epoch = scenario.epoch_at(at)
    assert epoch is not None
    found = defaultdict(list)
    for pod in epoch.pods:
        if pod.node.startswith("apps-") and pod.started <= at < pod.finished:
            top = pod.owner.parent or pod.owner
            found[top.name].append(pod)
    return found


def activity(scenario: Scenario, start: int, end: int) -> dict[str, float]:
    """Return the mean activity of the devices of each workload of the apps nodes while it runs."""
    busy: dict[str, float] = defaultdict(float)
    ran: dict[str, float] = defaultdict(float)
    names = {
        pod.uid: name
        for at in (start, end - 1)
        for name, pods in of_apps(scenario, at).items()
        for pod in pods
    }
    for one in doings(scenario, start, end):
        for uid in one.parts:
            if uid in names:
                busy[names[uid]] += one.activity * (one.end - one.start)
                ran[names[uid]] += one.end - one.start
    return {name: busy[name] / ran[name] for name in ran}


def test_services_follow_the_working_day_and_rest_at_weekends(campus: Scenario) -> None:
    noon = activity(campus, MONDAY + 12 * HOUR, MONDAY + 13 * HOUR)
    night = activity(campus, MONDAY + 2 * HOUR, MONDAY + 3 * HOUR)
    sunday = activity(campus, MONDAY - 12 * HOUR, MONDAY - 11 * HOUR)

    for name in ("segment-serve", "whisper-live"):
        assert noon[name] > 0.5 > 0.1 > night[name] > 0
        assert sunday[name] < 0.1
    for found in (noon, night, sunday):
        assert found["pretrain-foundation"] == pytest.approx(0.96)
        assert found["tts-legacy"] == 0.0


def test_a_job_loads_works_and_then_holds_its_gpus_for_nothing(campus: Scenario) -> None:
    start = MONDAY + 18 * HOUR
    hours = [activity(campus, start + h * HOUR, start + (h + 1) * HOUR) for h in range(12)]
    told = [hour["finetune-voices"] for hour in hours]

    assert told[0] < 0.3
    assert all(value == pytest.approx(0.91) for value in told[1:5])
    assert told[6:] == [0.0] * 6
    assert "finetune-voices" not in of_apps(campus, start + 12 * HOUR + 600)


def test_a_gang_is_on_two_hosts_where_one_has_room_for_it(campus: Scenario) -> None:
    found = of_apps(campus, NOW)["pretrain-foundation"]
    assert {pod.owner.kind for pod in found} == {"PyTorchJob"}
    assert [(pod.node, pod.devices) for pod in found] == [
        ("apps-01", (0, 1, 2, 3)),
        ("apps-04", (4, 5, 6, 7)),
    ]
    assert len({pod.uid for pod in found}) == 2


def test_no_device_of_the_apps_nodes_has_two_pods(campus: Scenario) -> None:
    for hour in range(7 * 24):
        at = MONDAY + hour * HOUR + 600
        held = [
            (pod.node, device)
            for pods in of_apps(campus, at).values()
            for pod in pods
            for device in pod.devices
        ]
        assert len(held) == len(set(held)), hour


def test_a_workshop_leaves_its_gpus_empty_at_night_and_at_weekends(campus: Scenario) -> None:
    taken = {
        hour
        for hour in range(7 * 24)
        if "workshop" in of_apps(campus, MONDAY - 7 * DAY + hour * HOUR + 600)
    }

    assert taken == {24 * day + hour for day in range(5) for hour in range(7, 17)}


def test_a_pod_is_one_pod_whatever_it_does(campus: Scenario) -> None:
    held = [h for h in holdings(campus, MONDAY, MONDAY + DAY) if h.node.name == "apps-02"]

    assert len(held) == len({h.pod.uid for h in held}) == 8
    assert {h.gpu_hours for h in held} == {24.0}


def test_a_team_holds_far_less_than_its_quota_allows(campus: Scenario) -> None:
    epoch = campus.epoch_at(NOW)
    assert epoch is not None
    used = epoch.used_of("search-apps", "nvidia.com/gpu")
    week = [used.at(NOW - hours * HOUR) for hours in range(7 * 24)]

    assert 0 < max(week) <= 8
    assert epoch.hard["search-apps"].at(NOW) == 16


def test_nodes_are_owned_reserved_spot_or_paid_on_demand(campus: Scenario) -> None:
    gpus: dict[str, int] = defaultdict(int)
    for node in campus.nodes:
        gpus[node.labels.get("karpenter.sh/capacity-type", "")] += len(node.devices)
    (bought,) = (rate.owned for rate in campus.rates if rate.owned is not None)

    assert set(gpus) == {"", "reserved", "spot", "on-demand"}
    assert gpus[""] == bought.gpus


def test_spot_nodes_of_whole_gpus_are_of_a_node_pool_with_a_limit(campus: Scenario) -> None:
    served = next(one for one in collections(campus) if one.plural == "nodepools")
    (pool,) = served.source(campus, campus.begins, campus.begins)
    found = node_pool_snapshot(pool.render(campus.begins))
    nodes = [one for one in campus.nodes if one.labels.get(NODE_POOL_LABEL) == pool.name]
    assert {one.labels["karpenter.sh/capacity-type"] for one in nodes} == {"spot"}
    assert found.used == {GPU: float(sum(len(one.devices) for one in nodes))} == {GPU: 16.0}
    assert (found.limits, found.consolidation, found.after) == ({GPU: 24.0}, "WhenEmpty", "10m")


def test_cluster_autoscaler_writes_the_groups_of_nodes_each_hour(campus: Scenario) -> None:
    served = next(one for one in collections(campus) if one.plural == "configmaps")
    (status,) = served.source(campus, NOW - 2 * HOUR, NOW)
    assert [at for at in status.changes if at > NOW - 2 * HOUR] != []
    found = autoscaler_snapshot(status.render(NOW))
    assert found.hour == NOW // HOUR * HOUR
    assert found.groups is not None
    nodes = {
        group.name: sum(is_of_group(group.name, one.name, one.labels) for one in campus.nodes)
        for group in found.groups
    }
    assert {one.name: (one.ready, one.target) for one in found.groups} == {
        name: (count, count) for name, count in nodes.items()
    }
    assert sorted(nodes.values()) == [0, 4, 6]


def test_provisioning_requests_have_every_outcome(campus: Scenario) -> None:
    served = next(one for one in collections(campus) if one.plural == "provisioningrequests")
    found = [provisioning_snapshot(one.render(NOW)) for one in served.source(campus, NOW, NOW)]
    assert [one.state for one in found] == ["pending", "provisioned", "failed"]
    spaces = {one.name for one in campus.namespaces}
    assert {one.namespace for one in served.source(campus, NOW, NOW)} <= spaces

"""`campus`: every way to share a GPU, nothing held twice, and what is out of order."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from simulator.catalog import catalog_yaml
from simulator.clock import PinnedClock
from simulator.fleet import DAY
from simulator.kubernetes.api import KubernetesApi
from simulator.prometheus.api import PrometheusApi
from simulator.prometheus.signals import Signals
from simulator.responses import Response
from simulator.scenarios.base import Scenario
from simulator.scenarios.campus.pools import PARKED_CLAIM, RECUT, STRAY, STUCK, UNHEALTHY
from simulator.scenarios.registry import load
from tests.simulator.conftest import NOW
from tests.simulator.scenario_truth import doings, holdings

pytestmark = pytest.mark.long

MIDNIGHT = NOW // DAY * DAY
DRA = "/apis/resource.k8s.io/v1"


def items(scenario: Scenario, path: str, at: int = NOW) -> list[dict[str, Any]]:
    answer = KubernetesApi(scenario, PinnedClock(at * 1000)).answer(path, {})
    assert isinstance(answer, Response)
    assert answer.status == 200
    found: list[dict[str, Any]] = json.loads(answer.body)["items"]
    return found


def node_of(scenario: Scenario, name: str) -> dict[str, Any]:
    return next(n for n in items(scenario, "/api/v1/nodes") if n["metadata"]["name"] == name)


def test_it_has_every_kind_of_tier_and_16_teams(campus: Scenario) -> None:
    kinds = {tier.sharing for tier in campus.tiers}

    assert kinds == {"exclusive", "mig", "time-sliced", "mps", "dra"}
    assert len(campus.teams) == 16
    assert campus.begins == MIDNIGHT - 36 * DAY
    assert sum(len(node.devices) for node in campus.nodes) == 240 + 32 + 36 + 2


def test_no_gpu_or_instance_is_held_more_than_once_over(campus: Scenario) -> None:
    changes: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
    gpus: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for one in holdings(campus, campus.begins, NOW):
        step = one.units / one.node.replicas
        changes[one.device.uuid, one.instance] += [(one.start, step), (one.end, -step)]
        gpus[one.device.uuid] += [(one.start, one.gpus), (one.end, -one.gpus)]
    for steps in (*changes.values(), *gpus.values()):
        held = 0.0
        for _, step in sorted(steps):
            held += step
            assert held <= 1.0 + 1e-9


def test_no_quota_is_used_beyond_its_limit(campus: Scenario) -> None:
    over = []
    for epoch in campus.epochs(campus.begins, NOW + 40 * DAY):
        for quota in campus.quotas:
            for key in quota.keys:
                steps = dict(quota.counts(epoch, key))
                used = max(steps["used"].values, default=0) if "used" in steps else 0
                if used > max(steps["hard"].values, default=used):
                    over.append((quota.namespace, key, used))
    assert over == []


def test_no_two_pods_of_a_name_are_there_at_once(campus: Scenario) -> None:
    lives: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for epoch in campus.epochs(campus.begins, NOW + 40 * DAY):
        for pod in epoch.pods:
            lives[pod.namespace, pod.name].append((pod.created, pod.deleted))
    twice = {
        name
        for name, spans in lives.items()
        if any(end > start for (_, end), (start, _) in pairwise(sorted(spans)))
    }
    assert twice == set()


def test_pools_are_as_busy_as_they_should_be(campus: Scenario) -> None:
    held: dict[str, float] = defaultdict(float)
    for one in holdings(campus, campus.begins, MIDNIGHT):
        held[one.node.labels["node-pool"]] += one.gpu_hours
    gpus: dict[str, int] = defaultdict(int)
    for node in campus.nodes:
        if node.labels["node-pool"] not in {"a10", "claims"}:  # where things are made to wait
            gpus[node.labels["node-pool"]] += len(node.devices)
    shares = {pool: held[pool] / (gpus[pool] * 36 * 24) for pool in gpus}

    assert 0.85 < shares["a100"] < 0.98
    assert all(0.4 < share < 0.98 for share in shares.values()), shares


def test_the_same_seed_and_time_give_the_same_bytes(campus: Scenario) -> None:
    query = {
        "query": ["sum by (UUID, exported_pod) (sum_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[30m]))"]
    }

    clock = PinnedClock(NOW * 1000)

    def shown(scenario: Scenario) -> list[bytes]:
        kube = KubernetesApi(scenario, clock)
        answers = (
            kube.answer("/api/v1/pods", {}),
            kube.answer(f"{DRA}/resourceclaims", {}),
            PrometheusApi(Signals(scenario), clock).answer("/api/v1/query", query),
        )
        return [answer.body for answer in answers if isinstance(answer, Response)]

    again = load("campus", now=NOW)

    first = shown(campus)
    assert len(first) == 3
    assert first == shown(again)
    assert catalog_yaml(campus, url="http://x") == catalog_yaml(again, url="http://x")


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nodes", pytest.param("/api/v1/pods", marks=pytest.mark.exhaustive)],
)
def test_another_seed_gives_other_objects(path: str, campus: Scenario) -> None:
    assert items(campus, path) != items(load("campus", now=NOW, seed=2), path)


# ---------------------------------------------------------------- as the API shows it


@pytest.mark.parametrize(
    ("node", "amounts", "labels"),
    [
        pytest.param("a100-01", {"nvidia.com/gpu": "8"},
                     {"gpu.product": "NVIDIA-A100-SXM4-80GB", "gpu.replicas": "1"}, id="whole"),
        pytest.param("mig-01", {"nvidia.com/mig-3g.40gb": "12", "nvidia.com/mig-1g.10gb": "14"},
                     {"mig.strategy": "mixed", "gpu.replicas": "0", "mig-3g.40gb.count": "12"},
                     id="MIG mixed"),
        pytest.param("a30-01", {"nvidia.com/gpu": "8"},
                     {"mig.strategy": "single", "gpu.product": "NVIDIA-A30-MIG-2g.12gb",
                      "gpu.count": "8"}, id="MIG single"),
        pytest.param("l4-01", {"nvidia.com/gpu.shared": "16"},
                     {"gpu.product": "NVIDIA-L4", "gpu.replicas": "4", "gpu.count": "4",
                      "gpu.sharing-strategy": "time-slicing"}, id="renamed"),
        pytest.param("t4-01", {"nvidia.com/gpu": "16"},
                     {"gpu.product": "Tesla-T4-SHARED", "gpu.sharing-strategy": "time-slicing"},
                     id="not renamed"),
        pytest.param("l40s-01", {"nvidia.com/gpu": "16"},
                     {"gpu.sharing-strategy": "mps", "mps.capable": "true"}, id="MPS"),
        pytest.param("dra-01", {}, {"gpu.product": "NVIDIA-H100-80GB-HBM3"}, id="DRA"),
    ],
)  # fmt: skip
def test_nodes_offer_and_say_what_they_share(
    campus: Scenario, node: str, amounts: dict[str, str], labels: dict[str, str]
) -> None:
    found = node_of(campus, node)
    capacity = found["status"]["capacity"]

    assert {name: n for name, n in capacity.items() if name.startswith("nvidia.com/")} == amounts
    assert {key: found["metadata"]["labels"][f"nvidia.com/{key}"] for key in labels} == labels


def test_an_unhealthy_gpu_is_not_allocatable(campus: Scenario) -> None:
    status = node_of(campus, UNHEALTHY[0])["status"]

    assert status["capacity"]["nvidia.com/gpu"] == "8"
    assert status["allocatable"]["nvidia.com/gpu"] == "7"


def test_a_node_is_being_cut_anew(campus: Scenario) -> None:
    node = node_of(campus, RECUT)

    assert node["spec"]["unschedulable"] is True
    assert node["metadata"]["labels"]["nvidia.com/mig.config.state"] == "pending"


def test_a_quota_without_the_prefix_is_counted_by_nobody(campus: Scenario) -> None:
    quotas = {q["metadata"]["namespace"]: q for q in items(campus, "/api/v1/resourcequotas")}
    status = quotas["chemistry"]["status"]

    assert status["hard"]["nvidia.com/gpu"] == "10"
    assert "nvidia.com/gpu" not in status["used"]
    assert int(status["used"]["requests.nvidia.com/gpu"]) >= 0
    assert "games-dev" not in quotas


def test_a_quota_counts_the_devices_that_claims_ask_for(campus: Scenario) -> None:
    key = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
    status = next(
        q["status"]
        for q in items(campus, "/api/v1/resourcequotas")
        if q["metadata"]["namespace"] == "climate"
    )
    asked = [
        claim["spec"]["devices"]["requests"]
        for claim in items(campus, f"{DRA}/resourceclaims")
        if claim["metadata"]["namespace"] == "climate"
    ]

    assert int(status["hard"][key]) == 12
    assert int(status["used"][key]) == sum(r["exactly"]["count"] for (r,) in asked) > 0


def test_claims_hold_devices_that_slices_offer(campus: Scenario) -> None:
    offered = {
        (s["spec"]["pool"]["name"], device["name"])
        for s in items(campus, f"{DRA}/resourceslices")
        for device in s["spec"]["devices"]
    }
    claims = {c["metadata"]["name"]: c for c in items(campus, f"{DRA}/resourceclaims")}
    given = [
        (result["pool"], result["device"])
        for one in claims.values()
        for result in one["status"].get("allocation", {}).get("devices", {}).get("results", [])
    ]

    assert len(offered) == 2 * (6 + 2 * 2) + 2
    assert len(given) == len(set(given))
    assert set(given) <= offered
    assert len(claims["eval-gpu"]["status"]["reservedFor"]) == 3
    assert "reservedFor" not in claims["parked-gpu"]["status"]
    assert (PARKED_CLAIM[0], f"gpu-{PARKED_CLAIM[1]}") in given


def test_pods_name_the_claims_that_were_made_for_them(campus: Scenario) -> None:
    claims = {c["metadata"]["name"] for c in items(campus, f"{DRA}/resourceclaims")}
    pods = [p for p in items(campus, "/api/v1/pods") if "resourceClaims" in p["spec"]]
    running = [p for p in pods if p["status"]["phase"] == "Running"]

    assert len(running) > 5
    for pod in running:
        (status,) = pod["status"]["resourceClaimStatuses"]
        assert status["resourceClaimName"] in claims
        assert "limits" not in pod["spec"]["containers"][0]["resources"]


# ---------------------------------------------------------------- what is out of order


def test_somebody_uses_a_gpu_that_nobody_holds(campus: Scenario) -> None:
    busy = [d for d in doings(campus, NOW - 60, NOW) if (d.node.name, d.device.index) == STRAY]
    held = [h for h in holdings(campus, 0, NOW) if (h.node.name, h.device.index) == STRAY]

    assert [d.activity for d in busy] == [0.87]
    assert held == []


def test_one_gpu_has_stuck_counters_and_works(campus: Scenario) -> None:
    found = [
        (d.end - d.start, d.activity)
        for d in doings(campus, MIDNIGHT - 14 * DAY, MIDNIGHT)
        if (d.node.name, d.device.index) == STUCK
    ]

    assert [d.stuck for n in campus.nodes if n.name == STUCK[0] for d in n.devices].count(True) == 1
    assert any(activity > 0.5 for _, activity in found)


def test_exporters_differ_by_pool(campus: Scenario) -> None:
    setups = {
        (e.version, e.honor_labels, e.virtual_gpus) for n in campus.nodes for e in n.exporters
    }

    assert len(setups) >= 6
    assert {setup[0] for setup in setups} >= {(3, 5, 0), (4, 4, 0), (4, 8, 1), (4, 8, 3)}

"""Preflight in a portal: who may ask, tier and size, quotas, prices, queue times, alternatives."""

from typing import Any

import pytest
import yaml
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from apps.clusters.domain.observed.objects import (
    NAMESPACE_NAME,
    ClusterQueueSnapshot,
    Expression,
    FlavorQuota,
    LocalQueueSnapshot,
    ObservedKind,
    PodSnapshot,
)
from apps.clusters.domain.observed.places import AutoscalerSnapshot, NodeGroup, NodePoolSnapshot
from apps.clusters.models import ObservedObject, TierRule
from apps.clusters.services import TierHistory
from apps.costs.models import Price
from apps.pending.services import current_state
from apps.pending.services.cluster_state import holders, ledger_pods
from apps.planning.models import QueueForecast
from apps.usage.models import WorkloadDay
from tests.api.conftest import client_of
from tests.factories import (
    H100,
    Portal,
    make_pod,
    make_workload,
)
from tests.pending.pending_portal import at_most
from tests.pending.rows import see
from tests.planning.preflight_portal import (
    GPU,
    MIG,
    add_slices,
    job,
    make_runs,
    watched_portal,
)

pytestmark = pytest.mark.django_db
URL = "/api/v1/preflight"


@pytest.fixture
def watched() -> Portal:
    return watched_portal()


def asked(client: Client, manifest: str, namespace: str = "vision", cluster: str = "west") -> Any:
    body = {"cluster": cluster, "namespace": namespace, "manifest": manifest}
    response = client.post(URL, body, content_type="application/json")
    return response.json() | {"status": response.status_code}


def result(portal: Portal, manifest: str) -> dict[str, Any]:
    (found,) = asked(client_of(portal.ada), manifest)["results"]
    return dict(found)


def test_what_fits_starts_with_its_tier_quota_price_and_queue_time(watched: Portal) -> None:
    found = result(watched, job(2))
    assert (found["verdict"], found["cause"], found["could_start"]) == ("starts", "", 1)
    assert (found["tier"], found["gpu_equivalents"]) == ("gold", 2.0)
    assert found["cost_per_hour"] == "5.00"
    assert found["currency"] == "USD"
    assert found["expected_wait_seconds"] == {
        "p10": 60.0,
        "p50": 300.0,
        "p90": 540.0,
        "basis": "history",
        "starts_now": None,
    }
    (quota,) = found["quotas"]
    assert (quota["hard"], quota["used"], quota["left"], quota["needs"]) == (20.0, 4.0, 16.0, 2.0)
    assert (found["change"], found["alternatives"]) == (None, [])
    # Its pods of this portal never ended, and whole GPUs of it were never measured.
    assert found["family"]["runs"] == 0
    assert found["cost_per_run"] is None


def test_what_finds_no_room_waits_and_is_told_what_starts_now(watched: Portal) -> None:
    found = result(watched, job(4))
    assert (found["verdict"], found["cause"], found["detail"]) == ("waits", "capacity", "none free")
    assert "most free on one is 3" in found["explanation"]
    assert found["change"]["action"] == "free"
    assert [(one["units"], one["cost_per_hour"]) for one in found["alternatives"]] == [
        (2.0, "5.00"),
        (1.0, "2.50"),
    ]


def test_of_several_pods_it_tells_how_many_start(watched: Portal) -> None:
    found = result(watched, job(2, pods=2))
    assert (found["verdict"], found["pods"], found["could_start"]) == ("waits", 2, 1)
    assert found["gpu_equivalents"] == 4.0


def test_pods_that_a_quota_lets_in_are_made_before_it_refuses_the_others(watched: Portal) -> None:
    found = result(watched, job(1, pods=18))
    assert (found["cause"], found["pods"], found["could_start"]) == ("quota", 18, 3)
    assert found["explanation"].startswith("2 of 18 pods refused")
    assert "20 of 20 used" in found["explanation"]


@pytest.mark.parametrize(
    ("manifest", "verdict", "cause", "action"),
    [
        pytest.param(job(9), "never", "capacity", "request", id="larger than any node"),
        pytest.param(job(1, 17), "waits", "quota", "raise_quota", id="more pods than quota left"),
        pytest.param(job(21), "never", "quota", "raise_quota", id="more than the quota"),
        pytest.param(job(17), "never", "quota", "raise_quota", id="quota, and no such node"),
        pytest.param(
            job(1, nodeSelector={"pool": "h200"}), "never", "affinity", "select", id="no such node"
        ),
        pytest.param(
            job(1, schedulerName="typo"), "never", "scheduler", "set_scheduler", id="no scheduler"
        ),
        pytest.param(
            job(1, schedulingGates=[{"name": "x/y"}]), "waits", "queue", "ungate", id="gated"
        ),
    ],
)
def test_a_verdict_has_the_cause_and_the_change_of_pending_work(
    manifest: str, verdict: str, cause: str, action: str, watched: Portal
) -> None:
    found = result(watched, manifest)
    assert (found["verdict"], found["cause"]) == (verdict, cause)
    assert found["change"]["action"] == action
    assert found["explanation"]
    assert (found["expected_wait_seconds"] is None) is (verdict == "never" or cause == "affinity")


def test_what_is_not_read_of_a_cluster_is_named(watched: Portal) -> None:
    affinity: dict[str, Any] = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}
    }
    claims = [{"name": "x", "persistentVolumeClaim": {"claimName": "data"}}]
    found = result(watched, job(1, affinity=affinity, volumes=claims))
    assert found["unchecked"] == [
        "Affinity between pods is not checked.",
        "Volumes are not checked.",
    ]


def test_what_kueue_and_gang_schedulers_do_beyond_quotas_is_named(watched: Portal) -> None:
    manifest = yaml.safe_load(job(1))
    manifest["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    manifest["spec"]["template"]["metadata"] = {
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"},
        "labels": {"scheduling.x-k8s.io/pod-group": "both"},
    }
    assert result(watched, yaml.safe_dump(manifest))["unchecked"] == [
        "Kueue's placement by topology is not checked.",
        "Partial admission by Kueue is not assumed.",
        "Its pod group is not checked: it may start only together with its other pods.",
    ]
    group = {"kueue.x-k8s.io/pod-group-name": "both"}
    pod = yaml.safe_load(job(1))["spec"]["template"]["spec"]
    manifest = {"kind": "Pod", "metadata": {"name": "x", "labels": group}, "spec": pod}
    assert result(watched, yaml.safe_dump(manifest))["unchecked"] == []


@pytest.mark.parametrize("by", ["node pool", "node group", "full group", "nothing"])
def test_nodes_that_an_autoscaler_may_add_are_named(by: str, watched: Portal) -> None:
    west, now = watched.clusters[0], timezone.now()
    groups = {"node group": (NodeGroup("a", most=4),), "full group": (NodeGroup("a", 0, 1, 1, 1),)}
    if by == "node pool":
        pool = NodePoolSnapshot()
        see(west, ObservedKind.NODE_POOL, "pool", pool, at=now, namespace="", name="gpus")
    status = AutoscalerSnapshot(groups.get(by, ()))
    see(west, ObservedKind.AUTOSCALER_STATUS, "status", status, at=now, name="status")
    named = ["Nodes that an autoscaler may add are not counted."]
    told = named if by in ("node pool", "node group") else []
    assert result(watched, job(9))["unchecked"] == told
    assert result(watched, job(1, 17))["unchecked"] == []
    assert result(watched, job(1))["unchecked"] == []


def test_a_scheduler_that_was_not_seen_may_be_there_all_the_same(watched: Portal) -> None:
    assert result(watched, job(1, schedulerName="packer"))["unchecked"] == [
        "Which scheduler placed the running pods is not recorded."
    ]


def test_suspended_work_is_to_be_submitted_otherwise(watched: Portal) -> None:
    spec = yaml.safe_load(job(1))["spec"]
    cron = {"kind": "CronJob", "metadata": {"name": "nightly"}}
    cron["spec"] = {"suspend": True, "jobTemplate": {"spec": spec}}
    found = result(watched, yaml.safe_dump(cron))
    assert (found["verdict"], found["cause"], found["detail"]) == (
        "never",
        "admission",
        "suspended",
    )
    assert found["change"]["text"] == "Submit the CronJob with suspend: false."


def test_a_train_job_whose_runtime_tells_its_requests_is_said(watched: Portal) -> None:
    trainer: dict[str, Any] = {"numNodes": 2}
    job = {"kind": "TrainJob", "spec": {"runtimeRef": {"name": "torch"}, "trainer": trainer}}
    assert result(watched, yaml.safe_dump(job))["unchecked"] == [
        "The runtime of a TrainJob is not in the manifest; its requests are not counted."
    ]
    trainer["resourcesPerNode"] = {"limits": {GPU: 1}}
    assert result(watched, yaml.safe_dump(job))["unchecked"] == []


def test_what_a_workflow_tells_only_when_it_runs_is_named(watched: Portal) -> None:
    container = {"resources": {"limits": {GPU: 2}}}
    call = {"name": "each", "template": "fit", "withParam": "{{steps.list.outputs.result}}"}
    templates = [
        {"name": "main", "steps": [[call]]},
        {"name": "fit", "container": container, "podSpecPatch": "{{inputs.parameters.patch}}"},
    ]
    spec = {"entrypoint": "main", "templates": templates}
    found = result(watched, yaml.safe_dump({"kind": "Workflow", "spec": spec}))
    assert (found["verdict"], found["pods"], found["units"]) == ("starts", 1, 2.0)
    assert found["unchecked"] == [
        "How often fit runs at once is known only when it runs: it is counted once.",
        "The patch of fit has a parameter that is known only when it runs: it is not counted.",
    ]


@pytest.mark.parametrize(
    ("selected", "verdict", "unchecked"),
    [
        pytest.param(Expression(NAMESPACE_NAME, "In", ("vision",)), "starts", [], id="taken"),
        pytest.param(Expression(NAMESPACE_NAME, "In", ("audio",)), "never", [], id="not taken"),
        pytest.param(Expression(NAMESPACE_NAME, "NotIn", ("vision",)), "never", [], id="left out"),
        pytest.param(
            Expression("team", "Exists"),
            "starts",
            ["Labels of the namespace are not checked; its queue selects by them."],
            id="by another label",
        ),
    ],
)
def test_a_queue_takes_work_of_the_namespaces_that_it_selects(
    selected: Expression, verdict: str, unchecked: list[str], watched: Portal
) -> None:
    west, at = watched.clusters[0], timezone.now()
    queue = ClusterQueueSnapshot(
        quotas=(FlavorQuota("any", GPU, 8.0),), namespaces=(selected,), strategy="BestEffortFIFO"
    )
    see(west, ObservedKind.CLUSTER_QUEUE, "cq", queue, at=at, namespace="", name="cq")
    see(west, ObservedKind.LOCAL_QUEUE, "lq", LocalQueueSnapshot("cq"), at=at, name="main")
    manifest = yaml.safe_load(job(1))
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "main"}
    found = result(watched, yaml.safe_dump(manifest))
    assert (found["verdict"], found["unchecked"]) == (verdict, unchecked)
    assert found["detail"] == ("queue-misconfigured" if verdict == "never" else "")


@pytest.mark.parametrize("limits", [{}, {GPU: 0}])
def test_pods_that_request_nothing_start(limits: dict[str, int], watched: Portal) -> None:
    pod = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
    service = {"kind": "Deployment", "spec": {"replicas": 3, "template": pod}}
    found = result(watched, yaml.safe_dump(service))
    assert (found["verdict"], found["could_start"], found["tier"]) == ("starts", 3, "")


def test_pods_that_are_not_to_be_made_need_no_quota(watched: Portal) -> None:
    west, at = watched.clusters[0], timezone.now()
    queue = ClusterQueueSnapshot(
        quotas=(FlavorQuota("any", GPU, 2.0),),
        namespaces=(Expression(NAMESPACE_NAME, "In", ("vision",)),),
        strategy="BestEffortFIFO",
    )
    see(west, ObservedKind.CLUSTER_QUEUE, "cq", queue, at=at, namespace="", name="cq")
    see(west, ObservedKind.LOCAL_QUEUE, "lq", LocalQueueSnapshot("cq"), at=at, name="default")
    template = yaml.safe_load(job(2))["spec"]["template"]
    head = {"template": {"spec": {"containers": [{"name": "head"}]}}}
    groups = [
        {"groupName": name, "replicas": replicas, "template": template}
        for name, replicas in (("now", 1), ("later", 0))
    ]
    spec = {"headGroupSpec": head, "workerGroupSpecs": groups}
    manifest = yaml.safe_dump({"kind": "RayCluster", "metadata": {"name": "ray"}, "spec": spec})
    now, later = asked(client_of(watched.ada), manifest)["results"]
    assert (now["verdict"], now["cause"]) == ("starts", "")
    assert (now["gpu_equivalents"], later["gpu_equivalents"]) == (2.0, 0.0)
    needs = {quota["source"]: quota["needs"] for quota in now["quotas"]}
    assert needs == {"ResourceQuota": 2.0, "ClusterQueue": 2.0}


def test_pods_without_a_free_node_are_told_their_position(watched: Portal) -> None:
    west, now = watched.clusters[0], timezone.now()
    other = PodSnapshot(created=0.0, requests={GPU: 4.0}, priority=7, phase="Pending")
    see(west, ObservedKind.POD, "other", other, at=now, namespace="speech", name="other")
    assert result(watched, job(4))["position"] == {"place": 2, "of": 2, "queue": ""}
    assert result(watched, job(2))["position"] is None
    assert result(watched, job(9))["position"] is None


def test_a_run_costs_what_half_of_the_earlier_runs_of_its_family_took_at_most(
    watched: Portal,
) -> None:
    make_runs(watched)
    found = result(watched, job(2))
    assert found["family"] == {
        "name": "train-*",
        "workloads": 4,
        "runs": 3,
        "run_seconds": 4 * 3600.0,
        "gpu_model": H100,
        "measured_days": 8,
        "memory_peak_mib": 4000.0,
        "p95_activity": 0.1,
    }
    assert (found["cost_per_hour"], found["cost_per_run"]) == ("5.00", "20.00")


def test_what_was_never_seen_has_no_run_and_no_cost_of_one(watched: Portal) -> None:
    make_runs(watched)
    found = result(watched, job(2).replace("name: train", "name: evaluate"))
    assert (found["family"], found["cost_per_run"]) == (None, None)


def test_a_cheaper_tier_that_holds_what_was_measured_is_offered_with_its_wait(
    watched: Portal,
) -> None:
    make_runs(watched)
    add_slices(watched)
    (found,) = result(watched, job(1))["alternatives"]
    assert (found["tier"], found["resource"], found["units"]) == ("slices", MIG, 1.0)
    assert (found["basis"], found["verdict"]) == ("measured_use", "waits")
    assert found["node_selector"] == {"pool": "slices"}
    assert found["cost_per_hour"] == "0.36"
    assert found["expected_wait_seconds"] is None


@pytest.mark.parametrize(
    "why", ["few days", "another team's", "more memory", "two GPUs", "not cheaper"]
)
def test_no_cheaper_tier_is_offered_where_it_is_not_known_to_do(why: str, watched: Portal) -> None:
    make_runs(watched, days=6 if why == "few days" else 8)
    add_slices(watched)
    if why == "another team's":
        TierRule.objects.filter(tier__name="slices").update(allowed_teams=["speech"])
    if why == "more memory":
        WorkloadDay.objects.update(memory_peak_mib=9000.0)
    if why == "not cheaper":
        Price.objects.update(currency="EUR", gpu_model="NVIDIA-L4")
    assert result(watched, job(2 if why == "two GPUs" else 1))["alternatives"] == []


def test_a_value_of_a_priority_class_that_is_not_known_is_said(watched: Portal) -> None:
    found = result(watched, job(1, priorityClassName="high"))
    assert found["unchecked"] == [
        "Preemption is not assumed.",
        "The value of the priority class is not known; 0 is assumed.",
    ]
    found = result(watched, job(1, priorityClassName="high", priority=9))
    assert found["unchecked"] == ["Preemption is not assumed."]


def test_a_value_of_a_priority_class_is_that_of_pods_with_it(watched: Portal) -> None:
    west, now = watched.clusters[0], timezone.now()
    other = PodSnapshot(created=0.0, requests={GPU: 4.0}, priority=7, phase="Pending")
    see(west, ObservedKind.POD, "other", other, at=now, namespace="speech", name="other")
    train = make_workload(west, "speech", "important")
    make_pod(
        train, created_at=now, node_gpus=watched.node_gpus[0], priority_class="high", priority=9
    )
    found = result(watched, job(4, priorityClassName="high"))
    assert found["position"] == {"place": 1, "of": 2, "queue": ""}
    assert found["unchecked"] == ["Preemption is not assumed."]
    assert result(watched, job(4))["position"]["place"] == 2


def test_names_that_no_database_takes_are_answered_all_the_same(watched: Portal) -> None:
    strange = job(1, priorityClassName="a\0b").replace("name: train", 'name: "tr\\0ain"')
    assert asked(client_of(watched.ada), strange)["status"] in {200, 400}


def test_who_does_not_see_a_namespace_is_not_answered(watched: Portal) -> None:
    dan, cleo = client_of(watched.dan), client_of(watched.cleo)
    assert asked(dan, job(1))["status"] == 404
    assert asked(dan, job(1))["detail"] == asked(dan, job(1), "none")["detail"].replace(
        "none", "vision"
    )
    assert asked(cleo, job(1))["status"] == 200
    assert asked(cleo, job(1), cluster="north")["status"] == 404


def test_a_cluster_without_a_watch_is_not_answered_for(watched: Portal) -> None:
    found = asked(client_of(watched.cleo), job(1), "stray", "east")
    assert (found["status"], "No watch follows east" in found["detail"]) == (422, True)


def test_a_manifest_of_another_namespace_is_refused(watched: Portal) -> None:
    manifest = yaml.safe_dump(yaml.safe_load(job(1)) | {"metadata": {"namespace": "speech"}})
    found = asked(client_of(watched.ada), manifest)
    assert (found["status"], "speech, not vision" in found["detail"]) == (422, True)


def test_a_bad_manifest_is_a_problem_with_line_and_field(watched: Portal) -> None:
    found = asked(client_of(watched.ada), "kind: Pod\nspec: [")
    assert found["status"] == 400
    assert "manifest: Line 3, spec[0]: " in found["detail"]


def test_the_holders_of_a_cluster_are_those_that_a_refresh_reads(watched: Portal) -> None:
    west, now = watched.clusters[0], timezone.now()
    read = current_state(west.pk, now=now, catalog=TierHistory.load()).holders
    assert list(read) == holders(ledger_pods(west.pk, Q(ended_at=None)))
    assert read


def test_an_answer_takes_few_queries_whatever_the_manifest(watched: Portal) -> None:
    client = client_of(watched.ada)
    asked(client, job(1))
    many = "---\n".join(job(gpus, pods) for gpus in (1, 2, 4) for pods in (1, 2))
    with at_most(45):
        assert len(asked(client, many)["results"]) == 6


def test_alternatives_have_the_queue_time_of_a_fresh_forecast_too(watched: Portal) -> None:
    make_runs(watched)
    add_slices(watched)
    times = {"queued": [60, 600, 6000], "any": [0, 0, 600], "starts_now": 0.8}
    QueueForecast.objects.create(
        cluster=watched.clusters[0],
        at=timezone.now(),
        rows=[{"tier": tier, "queue": "", "units": 4.0, **times} for tier in ("gold", "slices")],
    )
    expected = {"basis": "replay", "starts_now": 0.8}
    (cheaper,) = result(watched, job(1))["alternatives"]
    assert cheaper["verdict"] == "waits"
    assert cheaper["expected_wait_seconds"] == {"p10": 60, "p50": 600, "p90": 6000, **expected}
    smaller = result(watched, job(4))["alternatives"][0]
    assert smaller["verdict"] == "starts"
    assert smaller["expected_wait_seconds"] == {"p10": 0, "p50": 0, "p90": 600, **expected}


def test_a_fresh_forecast_takes_the_place_of_history(watched: Portal) -> None:
    times = {"queued": [60, 600, 6000], "any": [0, 0, 600], "starts_now": 0.8}
    QueueForecast.objects.create(
        cluster=watched.clusters[0],
        at=timezone.now(),
        rows=[{"tier": "gold", "queue": "", "units": 4.0, **times}],
    )
    expected = {"basis": "replay", "starts_now": 0.8}
    starts = result(watched, job(2))
    assert starts["verdict"] == "starts"
    assert starts["expected_wait_seconds"] == {"p10": 0, "p50": 0, "p90": 600, **expected}


def test_work_without_pods_requests_nothing(watched: Portal) -> None:
    limits = {"limits": {GPU: 99}}
    template = {"spec": {"containers": [{"name": "main", "resources": limits}]}}
    spec = {"replicas": 0, "template": template}
    item = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}
    found = result(watched, yaml.safe_dump(item))
    assert (found["verdict"], found["cause"], found["pods"]) == ("starts", "", 0)
    assert found["explanation"] == "It makes no pods, so it requests nothing."
    assert (found["gpu_equivalents"], found["quotas"]) == (0.0, [])
    assert (found["expected_wait_seconds"], found["alternatives"]) == (None, [])


def test_a_claim_takes_the_first_alternative_that_starts(watched: Portal) -> None:
    west = watched.clusters[0]
    row = ObservedObject.objects.get(cluster=west, name="west-1")
    free = {"mig.nvidia.com": 4}
    body = {**row.body, "devices": free, "free_devices": free}
    ObservedObject.objects.filter(pk=row.pk).update(body=body)
    others = [
        {"name": "whole", "deviceClassName": "gpu.nvidia.com"},
        {"name": "part", "deviceClassName": "mig.nvidia.com", "count": 2},
    ]
    requests = [{"name": "either", "firstAvailable": others}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {
            "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        },
    }
    found = result(watched, yaml.safe_dump_all([template, pod]))
    assert (found["verdict"], found["resource"], found["units"]) == ("starts", "mig.nvidia.com", 2)
    others.reverse()
    assert result(watched, yaml.safe_dump_all([template, pod]))["resource"] == "mig.nvidia.com"


def test_of_a_daemon_set_nodes_without_room_are_pending(watched: Portal) -> None:
    row = ObservedObject.objects.get(cluster=watched.clusters[0], name="west-1")
    for number, used in enumerate((0.0, 8.0), 2):
        row.pk, row.uid, row.name = None, f"node-{number}", f"west-{number}"
        row.body = {**row.body, "used": {GPU: used}}
        row.save(force_insert=True)
    container = {"name": "main", "resources": {"limits": {GPU: 2}}}
    template = {"spec": {"nodeSelector": {"pool": "gold"}, "containers": [container]}}
    item = {"kind": "DaemonSet", "metadata": {"name": "x"}, "spec": {"template": template}}
    found = result(watched, yaml.safe_dump(item))
    assert (found["pods"], found["could_start"]) == (3, 2)
    assert (found["verdict"], found["cause"]) == ("waits", "capacity")

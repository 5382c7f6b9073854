"""Pods that Kueue admits one by one, and pods of several kinds that start together."""

from typing import Any

import pytest
import yaml

from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorQuota,
    FlavorSnapshot,
    FlavorUse,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    QuotaSnapshot,
    VolcanoQueueSnapshot,
)
from apps.pending.domain.diagnosis import Cause, ClusterState
from apps.pending.domain.submission import PlannedStart, SubmissionDiagnoser
from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.planned import SubmissionReader
from tests.pending.cluster_states import GPU, seen, world

KEY = f"requests.{GPU}"


def node(name: str, gpus: float, **labels: str) -> ObservedObject:
    body = NodeSnapshot(labels, allocatable={GPU: gpus, "cpu": 99.0, "pods": 99.0})
    return seen(ObservedKind.NODE, name, body, namespace="")


def queue(*quotas: FlavorQuota, reserved: tuple[FlavorUse, ...] = ()) -> list[ObservedObject]:
    body = ClusterQueueSnapshot(quotas=quotas, strategy="BestEffortFIFO", reserved=reserved)
    flavors = {one.flavor for one in quotas}
    return [
        seen(ObservedKind.CLUSTER_QUEUE, "cq", body, namespace=""),
        seen(ObservedKind.LOCAL_QUEUE, "main", LocalQueueSnapshot("cq")),
        *(
            seen(ObservedKind.RESOURCE_FLAVOR, one, FlavorSnapshot({"pool": one}), namespace="")
            for one in sorted(flavors)
        ),
    ]


def told(state: ClusterState, kind: str, spec: dict[str, Any], **item: Any) -> list[PlannedStart]:
    """Return what is said of an object in the queue `main`."""
    metadata = {"name": "x", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    whole = {"kind": kind, "metadata": metadata, "spec": spec, **item}
    manifest = read_manifest(yaml.safe_dump(whole))
    asked = SubmissionReader(manifest, state, "team", ()).pods()
    ((_, work),) = asked.works
    return SubmissionDiagnoser(asked.state).starts(work)


def template(gpus: int, **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"resources": {"limits": {GPU: gpus}}}], **spec}}


def deployment(replicas: int, gpus: int = 1) -> dict[str, Any]:
    return {"replicas": replicas, "template": template(gpus)}


def test_pods_of_a_deployment_are_admitted_one_by_one() -> None:
    state = world(node("n1", 16, pool="a"), *queue(FlavorQuota("a", GPU, 8.0)))
    (found,) = told(state, "Deployment", deployment(10))
    assert (found.count, found.could, found.flavor) == (10, 8, "a")
    assert found.why is not None
    assert (found.why.cause, found.why.detail) == (Cause.QUEUE, "waiting-for-quota")
    assert "8 of 8" in found.why.explanation
    (found,) = told(state, "Deployment", deployment(8))
    assert (found.why, found.could) == (None, 8)


@pytest.mark.parametrize(("kind", "could"), [("StatefulSet", 0), ("ReplicaSet", 8)])
def test_a_stateful_set_is_admitted_as_one(kind: str, could: int) -> None:
    state = world(node("n1", 16, pool="a"), *queue(FlavorQuota("a", GPU, 8.0)))
    (found,) = told(state, kind, deployment(10))
    assert found.could == could


def test_pods_that_are_admitted_one_by_one_take_flavors_in_their_order() -> None:
    quotas = (FlavorQuota("a", GPU, 4.0), FlavorQuota("b", GPU, 3.0))
    state = world(node("n1", 16, pool="a"), node("n2", 16, pool="b"), *queue(*quotas))
    (found,) = told(state, "Deployment", deployment(9))
    assert (found.could, found.count) == (7, 9)
    assert told(state, "Deployment", deployment(7))[0].why is None


def test_a_pod_that_is_larger_than_its_queue_is_never_admitted() -> None:
    state = world(node("n1", 16, pool="a"), *queue(FlavorQuota("a", GPU, 8.0)))
    (found,) = told(state, "Deployment", deployment(2, gpus=9))
    assert found.why is not None
    assert (found.could, found.why.detail) == (0, "exceeds-max-quota")


def test_pods_that_are_admitted_need_nodes_and_quotas_all_the_same() -> None:
    quotas = queue(FlavorQuota("a", GPU, 8.0))
    (found,) = told(world(node("n1", 3, pool="a"), *quotas), "Deployment", deployment(5))
    assert found.why is not None
    assert (found.why.cause, found.could) == (Cause.CAPACITY, 3)
    limit = seen(ObservedKind.RESOURCE_QUOTA, "q", QuotaSnapshot({KEY: 2.0}, {KEY: 2.0}, {KEY: 0}))
    (found,) = told(world(node("n1", 8, pool="a"), *quotas, limit), "Deployment", deployment(5))
    assert found.why is not None
    assert (found.why.cause, found.could) == (Cause.QUOTA, 2)


def test_what_a_queue_has_reserved_counts_for_pods_admitted_one_by_one() -> None:
    reserved = (FlavorUse("a", GPU, 6.0),)
    state = world(
        node("n1", 16, pool="a"),
        *queue(FlavorQuota("a", GPU, 8.0), FlavorQuota("a", "cpu", 1.5), reserved=reserved),
    )
    (found,) = told(state, "Deployment", deployment(4))
    assert found.could == 2


def test_steps_of_a_workflow_are_admitted_one_after_the_other() -> None:
    state = world(node("n1", 8, pool="a"), *queue(FlavorQuota("a", GPU, 8.0)))
    container = template(8)["spec"]["containers"][0]
    templates = [{"name": name, "container": container} for name in ("load", "train")]
    found = told(state, "Workflow", {"templates": templates})
    assert [(one.why, one.could) for one in found] == [(None, 1), (None, 1)]


def torch(workers: int, least: int | None, gpus: int = 8) -> dict[str, Any]:
    roles = {
        "Master": {"replicas": 1, "template": template(gpus)},
        "Worker": {"replicas": workers, "template": template(gpus)},
    }
    policy = {} if least is None else {"schedulingPolicy": {"minAvailable": least}}
    return {"pytorchReplicaSpecs": roles, "runPolicy": policy}


@pytest.mark.parametrize(
    ("least", "could"), [(4, [0, 0]), (3, [1, 2]), (2, [1, 2])], ids=["all", "3 of 4", "2 of 4"]
)
def test_a_job_of_kubeflow_starts_with_as_many_pods_as_it_says(
    least: int, could: list[int]
) -> None:
    found = told(world(*(node(f"n{at}", 8) for at in range(3))), "PyTorchJob", torch(3, least))
    assert [one.could for one in found] == could
    master, worker = found
    assert worker.why is not None
    if least == 4:
        assert master.why is not None
        assert (master.why.cause, master.why.detail) == (Cause.GANG, "not all can start")
    else:
        assert (master.why, worker.why.cause) == (None, Cause.CAPACITY)


def test_fewer_pods_than_have_to_start_together_start_none() -> None:
    found = told(world(node("n1", 8), node("n2", 8)), "PyTorchJob", torch(3, 3))
    assert [one.could for one in found] == [0, 0]
    for one in found:
        assert one.why is not None
        assert one.why.cause is Cause.GANG
        assert one.why.explanation.startswith(
            "Starts only when 3 pods can start together: requests 32 nvidia.com/gpu,"
            " 2 pods could start now."
        )
        assert one.why.suggestions


def test_tasks_of_volcano_start_together() -> None:
    tasks = [
        {"name": name, "replicas": replicas, "template": template(8)}
        for name, replicas in (("main", 1), ("work", 2))
    ]
    volcano = seen(ObservedKind.VOLCANO_QUEUE, "default", VolcanoQueueSnapshot(), namespace="")
    state = world(node("n1", 8), node("n2", 8), volcano)
    own = {"apiVersion": "batch.volcano.sh/v1alpha1", "metadata": {"name": "x"}}
    main, work = told(state, "Job", {"tasks": tasks}, **own)
    assert (main.could, work.could) == (0, 0)
    assert main.why is not None
    assert main.why.cause is Cause.GANG
    main, work = told(state, "Job", {"tasks": tasks, "minAvailable": 2}, **own)
    assert (main.could, work.could) == (1, 1)


def test_a_capability_of_volcano_has_to_hold_what_starts_together() -> None:
    capability = VolcanoQueueSnapshot(state="Open", capability={GPU: 16.0})
    state = world(
        *(node(f"n{at}", 8) for at in range(4)),
        seen(ObservedKind.VOLCANO_QUEUE, "gpus", capability, namespace=""),
    )
    tasks = [{"name": "work", "replicas": 4, "template": template(8)}]
    own = {"apiVersion": "batch.volcano.sh/v1alpha1", "metadata": {"name": "x"}}
    spec = {"tasks": tasks, "queue": "gpus"}
    (found,) = told(state, "Job", spec, **own)
    assert found.why is not None
    assert found.why.detail == "queue-over-capability"
    (found,) = told(state, "Job", spec | {"minAvailable": 2}, **own)
    assert found.why is None


@pytest.mark.parametrize(
    ("rooms", "could"), [(3, 0), (4, 4), (6, 4), (8, 8)], ids=["none", "one", "and a half", "both"]
)
def test_hosts_of_a_slice_of_ray_start_together(rooms: int, could: int) -> None:
    group = {"groupName": "w", "replicas": 2, "numOfHosts": 4, "template": template(8)}
    head: dict[str, Any] = {"template": {"spec": {"containers": [{}]}}}
    spec = {"headGroupSpec": head, "workerGroupSpecs": [group]}
    state = world(*(node(f"n{at}", 8) for at in range(rooms)))
    _, found = told(state, "RayCluster", spec)
    assert (found.count, found.could) == (8, could)
    assert (found.why is None) is (could == 8)
    if not could:
        assert found.why is not None
        assert found.why.cause is Cause.GANG


def test_an_elastic_job_takes_what_there_is_beyond_its_least() -> None:
    spec = torch(4, None) | {"elasticPolicy": {"minReplicas": 2}}
    spec["pytorchReplicaSpecs"].pop("Master")
    (found,) = told(world(*(node(f"n{at}", 8) for at in range(3))), "PyTorchJob", spec)
    assert (found.count, found.could) == (4, 3)

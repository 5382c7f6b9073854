"""Top controllers, found through the API server in as few requests as can be."""

from collections.abc import Mapping
from typing import Any

from apps.clusters.domain.pods.ledger import Owner
from apps.clusters.models import Pod
from apps.clusters.ports import SourceRejected, SourceUnavailable
from apps.clusters.services.watch.collections import PODS
from apps.clusters.services.watch.follow import snapshot
from apps.clusters.services.watch.owner_lookup import LIST_FROM, OwnerLookup
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import at, controller, owner, pod
from tests.factories import ensure_builtin, make_cluster

RS, JOBS = "/apis/apps/v1/replicasets", "/apis/batch/v1/jobs"
DEPLOYMENTS, JOBSETS = "/apis/apps/v1/deployments", "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
BATCH, JOBSET = "batch/v1", "jobset.x-k8s.io/v1alpha2"


def _of_deployment(uid: str, name: str = "web") -> dict[str, Any]:
    labels = {"pod-template-hash": "7d9f"}
    return pod(uid, owner=owner("ReplicaSet", f"{name}-7d9f"), labels=labels)


def _deployment(
    source: FakeCluster, name: str = "web", above: Mapping[str, Any] | None = None
) -> None:
    above_set = owner("Deployment", name)
    source.put(RS, controller("ReplicaSet", f"{name}-7d9f", above=above_set))
    source.put(DEPLOYMENTS, controller("Deployment", name, above=above))


def _gets(source: FakeCluster) -> list[str]:
    return [path for verb, path in source.calls if verb == "get"]


def test_a_chain_is_followed_to_a_custom_kind_by_discovery() -> None:
    source = FakeCluster()
    above = owner("JobSet", "sweep", api_version=JOBSET)
    source.put(JOBS, controller("Job", "sweep-0", above=above))
    source.put(JOBSETS, controller("JobSet", "sweep"))
    discovery = {
        "metadata": {"uid": "d", "name": "v1alpha2"},
        "resources": [
            {"name": "jobsets/status", "kind": "JobSet", "namespaced": True},
            {"name": "jobsets", "kind": "JobSet", "namespaced": True},
        ],
    }
    source.put("/apis/jobset.x-k8s.io", discovery)
    found = OwnerLookup(source).top_owners(
        [pod("a", owner=owner("Job", "sweep-0", api_version=BATCH))]
    )
    assert found == {"a": Owner("JobSet", "sweep")}
    assert _gets(source)[-1] == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/vision/jobsets/sweep"


def test_an_unknown_custom_kind_is_the_top_that_is_known() -> None:
    source = FakeCluster()
    above = owner("Workflow", "sweep", api_version="acme.com/v1")
    source.put(JOBS, controller("Job", "sweep-0", above=above))
    found = OwnerLookup(source).top_owners(
        [pod("a", owner=owner("Job", "sweep-0", api_version=BATCH))]
    )
    assert found == {"a": Owner("Workflow", "sweep")}


def test_owners_are_remembered() -> None:
    source = FakeCluster()
    _deployment(source)
    lookup = OwnerLookup(source)
    lookup.top_owners([_of_deployment("a"), _of_deployment("b")])
    asked = len(source.calls)
    assert lookup.top_owners([_of_deployment("c")]) == {"c": Owner("Deployment", "web")}
    assert len(source.calls) == asked == 2
    lookup.forget()
    lookup.top_owners([_of_deployment("c")])
    assert len(source.calls) == 2 * asked


def test_many_owners_of_one_kind_are_read_as_one_list() -> None:
    source = FakeCluster()
    pods = []
    for n in range(LIST_FROM + 5):
        _deployment(source, f"web-{n}")
        pods.append(_of_deployment(f"uid-{n}", f"web-{n}"))
    found = OwnerLookup(source).top_owners(pods)
    assert found == {f"uid-{n}": Owner("Deployment", f"web-{n}") for n in range(len(pods))}
    assert source.calls == [("list", RS), ("list", DEPLOYMENTS)]


def test_many_owners_that_may_not_be_listed_are_read_one_by_one() -> None:
    source = FakeCluster()
    source.fail("list", SourceRejected("HTTP 403"))
    pods = []
    for n in range(LIST_FROM + 5):
        above = owner("CronJob", "nightly", api_version=BATCH)
        source.put(JOBS, controller("Job", f"nightly-{n}", above=above))
        pods.append(pod(f"uid-{n}", owner=owner("Job", f"nightly-{n}", api_version=BATCH)))
    found = OwnerLookup(source).top_owners(pods)
    assert set(found.values()) == {Owner("CronJob", "nightly")}
    assert [verb for verb, _ in source.calls].count("list") == 1


def test_an_owner_that_may_not_be_read_leaves_the_nearest_one_and_is_asked_for_once() -> None:
    source = FakeCluster()
    source.fail("get", SourceRejected("HTTP 403"))
    lookup = OwnerLookup(source)
    assert lookup.top_owners([_of_deployment("a")]) == {"a": Owner("Deployment", "web")}
    assert lookup.top_owners([_of_deployment("b")]) == {"b": Owner("Deployment", "web")}
    assert len(source.calls) == 1


def test_an_owner_that_cannot_be_read_now_is_asked_for_again() -> None:
    source = FakeCluster()
    source.fail("get", SourceUnavailable("HTTP 503"))
    source.put(JOBS, controller("Job", "n-1", above=owner("CronJob", "n", api_version=BATCH)))
    lookup = OwnerLookup(source)
    one = pod("a", owner=owner("Job", "n-1", api_version=BATCH))
    assert lookup.top_owners([one]) == {"a": Owner("Job", "n-1")}
    assert lookup.top_owners([one]) == {"a": Owner("CronJob", "n")}


def test_an_owner_of_the_same_name_and_another_life_is_not_the_owner() -> None:
    source = FakeCluster()
    namesake = controller("Job", "n-1", above=owner("CronJob", "other", api_version=BATCH))
    namesake["metadata"]["uid"] = "another"
    source.put(JOBS, namesake)
    one = pod("a", owner=owner("Job", "n-1", api_version=BATCH))
    assert OwnerLookup(source).top_owners([one]) == {"a": Owner("Job", "n-1")}


def test_owners_that_own_each_other_come_to_an_end() -> None:
    source = FakeCluster()
    source.put(JOBS, controller("Job", "a", above=owner("Job", "b", api_version=BATCH)))
    source.put(JOBS, controller("Job", "b", above=owner("Job", "a", api_version=BATCH)))
    found = OwnerLookup(source).top_owners([pod("x", owner=owner("Job", "a", api_version=BATCH))])
    assert found["x"].kind == "Job"


def test_owners_are_forgotten_when_they_become_too_many() -> None:
    source = FakeCluster()
    lookup = OwnerLookup(source, most=10)
    for n in range(12):
        _deployment(source, f"web-{n}")
        lookup.top_owners([_of_deployment(f"uid-{n}", f"web-{n}")])
    asked = len(source.calls)
    assert lookup.top_owners([_of_deployment("b", "web-0")]) == {"b": Owner("Deployment", "web-0")}
    assert len(source.calls) == asked + 2


def test_pods_belong_to_the_top_of_their_chain(db: None) -> None:
    ensure_builtin()
    cluster = make_cluster()
    source = FakeCluster()
    source.put(RS, controller("ReplicaSet", "web-7d9f", above=owner("Deployment", "web")))
    source.put(DEPLOYMENTS, controller("Deployment", "web"))
    cron = owner("CronJob", "nightly", api_version="batch/v1")
    source.put(JOBS, controller("Job", "nightly-1", above=cron))
    source.put("/apis/batch/v1/cronjobs", controller("CronJob", "nightly"))
    source.put(PODS, pod("uid-1", owner=owner("ReplicaSet", "web-7d9f")))
    source.put(PODS, pod("uid-2", owner=owner("Job", "nightly-1", api_version="batch/v1")))
    source.put(PODS, pod("uid-3", name="solo"))
    snapshot(cluster, source, at(0))
    rows = Pod.objects.order_by("uid").values_list("workload__kind", "workload__name")
    assert list(rows) == [("Deployment", "web"), ("CronJob", "nightly"), ("Pod", "solo")]

"""What explains waiting, as `watch` follows it: streams, restarts, refusals, history, events."""

import itertools
import threading
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.clusters.domain.observed.objects import (
    ControllerSnapshot,
    EventSnapshot,
    NodeSnapshot,
    ObservedKind,
    ObservedObject,
    PodSnapshot,
)
from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster, Pod, WatchCoverage, WatchIssue
from apps.clusters.models import ObservedObject as ObservedObjectRow
from apps.clusters.ports import Listing, ObjectChange, SourceRejected, SourceUnavailable
from apps.clusters.services.retention import forget_objects
from apps.clusters.services.watch.collections import (
    EVENTS,
    EVERYWHERE,
    NODES,
    PODS,
    Item,
    Relisted,
    Sources,
    WatchClosed,
    WatchEvent,
    WatchSilent,
)
from apps.clusters.services.watch.follow import DISCOVER_SECONDS, snapshot
from apps.clusters.services.watch.informer import Informer
from apps.clusters.services.watch.object_rows import observed_objects
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.kube_factories import (
    GPU,
    T0,
    at,
    container,
    node,
    offset,
    owner,
    pod,
    rfc3339,
    run_pod,
    running,
    status,
)
from tests.clusters.test_watch_follow import Driver

pytestmark = pytest.mark.django_db

QUOTAS, JOBS = "/api/v1/resourcequotas", "/apis/batch/v1/jobs"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
QUEUES = f"{KUEUE}/clusterqueues"
SOURCES = Sources({**EVERYWHERE, QUEUES: ObservedKind.CLUSTER_QUEUE})


def quota(hard: int = 8, used: int = 0) -> dict[str, Any]:
    key = f"requests.{GPU}"
    return {
        "metadata": {"uid": "uid-quota", "name": "gpus", "namespace": "vision"},
        "spec": {"hard": {key: str(hard)}},
        "status": {"hard": {key: str(hard)}, "used": {key: str(used)}},
    }


def event(
    uid: str = "e", about: str = "uid-1", *, last: float = 0, reason: str = "FailedScheduling"
) -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "vision"},
        "involvedObject": {"kind": "Pod", "name": "p", "uid": about},
        "reason": reason,
        "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        "lastTimestamp": rfc3339(T0 + last),
        "count": 3,
    }


def job(wanted: int = 2, active: int = 0, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"uid": "uid-job", "name": "sweep", "namespace": "vision"},
        "spec": {
            "parallelism": wanted,
            "template": {"spec": {"containers": [container()]}},
            **spec,
        },
        "status": {"active": active},
    }


class World:
    """A informer that follows streams, and what the table has after each batch."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.informer = Informer(cluster.pk, FakeCluster(), sources=SOURCES)

    def apply(self, *items: Item) -> None:
        self.informer.apply(items)
        self.informer.write()

    def lists(self, when: float = 0, **kinds: list[dict[str, Any]]) -> None:
        there = {NODES: kinds.get("nodes", [node()]), PODS: kinds.get("pods", [])}
        there |= {QUOTAS: kinds.get("quotas", []), JOBS: kinds.get("jobs", [])}
        there |= {EVENTS: kinds.get("events", [])}
        self.apply(*(Relisted(path, items, T0 + when) for path, items in there.items()))

    def see(self, path: str, item: dict[str, Any], when: float, kind: str = "MODIFIED") -> None:
        self.apply(WatchEvent(path, ObjectChange(kind, item), T0 + when, T0 + 1))

    def there(self, *kinds: ObservedKind) -> list[ObservedObject]:
        return observed_objects(self.cluster.pk, kinds or list(ObservedKind))

    def only(self, kind: ObservedKind) -> Any:
        (one,) = self.there(kind)
        return one.body

    def again(self) -> "World":
        """Return what a process started anew knows."""
        return World(self.cluster)


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


# ---------------------------------------------------------------- pods


def test_a_pod_is_seen_while_it_waits_and_gone_when_it_runs(world: World) -> None:
    world.lists(pods=[pod()])
    seen = world.only(ObservedKind.POD)
    assert isinstance(seen, PodSnapshot)
    assert (seen.requests, seen.node, seen.created) == ({GPU: 1}, "", T0)
    world.see(PODS, pod(bound=5, statuses=[status(state={"waiting": {"reason": "Pull"}})]), 6)
    bound = world.only(ObservedKind.POD)
    assert isinstance(bound, PodSnapshot)
    assert (bound.bound, bound.waiting[0].reason) == (T0 + 5, "Pull")
    world.see(PODS, run_pod(), 10)
    assert world.there(ObservedKind.POD) == []
    row = ObservedObjectRow.objects.get(kind="Pod")
    assert (offset(row.first_at), offset(row.changed_at), offset(row.gone_at)) == (0, 6, 10)


def test_a_pod_that_waits_again_is_the_same_object(world: World) -> None:
    world.lists(pods=[pod()])
    world.see(PODS, run_pod(), 10)
    crashed = status(state={"waiting": {"reason": "CrashLoopBackOff"}}, last=running(9))
    world.see(PODS, run_pod(statuses=[crashed]), 30)
    (again,) = world.there(ObservedKind.POD)
    assert (again.first - T0, again.changed - T0) == (0, 30)
    assert ObservedObjectRow.objects.filter(kind="Pod").count() == 1


def test_a_pod_that_goes_is_gone(world: World) -> None:
    world.lists(pods=[pod()])
    world.see(PODS, pod(), 20, "DELETED")
    assert world.there(ObservedKind.POD) == []
    (gone,) = observed_objects(world.cluster.pk, [ObservedKind.POD], gone_since=at(0))
    assert gone.gone == T0 + 20


def test_pods_without_gpu_are_not_seen_but_use_the_node(world: World) -> None:
    plain = pod("cpu", bound=1, containers=[container(units=0)])
    world.lists(pods=[plain, run_pod()])
    assert world.there(ObservedKind.POD) == []
    seen = world.only(ObservedKind.NODE)
    assert isinstance(seen, NodeSnapshot)
    assert seen.used == {"cpu": 1, GPU: 1, "pods": 2}
    world.see(PODS, plain, 20, "DELETED")
    used = world.only(ObservedKind.NODE)
    assert isinstance(used, NodeSnapshot)
    assert used.used == {GPU: 1, "pods": 1}


def test_a_node_made_anew_is_another_one(world: World) -> None:
    world.lists()
    anew = {**node(), "metadata": {**node()["metadata"], "uid": "uid-other"}}
    world.see(NODES, anew, 10, "ADDED")
    (one,) = world.there(ObservedKind.NODE)
    assert one.uid == "uid-other"
    world.see(NODES, anew, 20, "DELETED")
    assert world.there(ObservedKind.NODE) == []


# ---------------------------------------------------------------- controllers


def test_a_job_is_seen_as_long_as_it_wants_pods(world: World) -> None:
    world.lists(jobs=[job()])
    seen = world.only(ObservedKind.JOB)
    assert isinstance(seen, ControllerSnapshot)
    assert (seen.wanted, seen.pods, seen.requests) == (2, 0, {GPU: 1})
    over = {**job(), "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    world.see(JOBS, over, 10)
    assert world.there(ObservedKind.JOB) == []


def test_a_controller_belongs_to_the_top_of_its_chain(cluster: Cluster) -> None:
    source = FakeCluster()
    sets = "/apis/jobset.x-k8s.io/v1alpha2"
    document = {"name": "v1alpha2", "uid": "v1alpha2"}
    resources = [{"name": "jobsets", "kind": "JobSet", "namespaced": True}]
    source.put("/apis/jobset.x-k8s.io", {"metadata": document, "resources": resources})
    above = owner("JobSet", "big", api_version="jobset.x-k8s.io/v1alpha2")
    source.put(f"{sets}/jobsets", {"metadata": {"name": "big", "uid": above["uid"]}})
    mine = job()
    mine["metadata"]["ownerReferences"] = [above]
    source.put(JOBS, mine)
    snapshot(cluster, source, at(0))
    (found,) = observed_objects(cluster.pk, [ObservedKind.JOB])
    assert isinstance(found.body, ControllerSnapshot)
    assert (found.body.owner_kind, found.body.owner) == ("JobSet", "big")


# ---------------------------------------------------------------- history


def test_a_quota_has_a_row_for_each_setting_and_none_for_its_use(world: World) -> None:
    world.lists(quotas=[quota(8)])
    world.see(QUOTAS, quota(8, used=3), 10)
    world.see(QUOTAS, quota(12, used=3), 20)
    world.see(QUOTAS, quota(12, used=5), 30)
    world.see(QUOTAS, quota(12, used=5), 40, "DELETED")
    rows = ObservedObjectRow.objects.filter(kind="ResourceQuota").order_by("first_at")
    assert [(offset(row.first_at), offset(row.gone_at)) for row in rows] == [(0, 20), (20, 40)]
    uses = [row.body["used"][f"requests.{GPU}"] for row in rows]
    assert uses == [3, 5]


def test_a_setting_that_comes_back_is_a_setting_of_its_own(world: World) -> None:
    world.lists(quotas=[quota(8)])
    world.see(QUOTAS, quota(12), 20)
    world.see(QUOTAS, quota(8), 30)
    rows = ObservedObjectRow.objects.filter(kind="ResourceQuota").order_by("first_at")
    assert [(offset(row.first_at), offset(row.gone_at)) for row in rows] == [
        (0, 20),
        (20, 30),
        (30, None),
    ]


# ---------------------------------------------------------------- events


def test_an_event_may_come_before_what_it_is_about(world: World) -> None:
    world.lists(events=[event()])
    assert world.there(ObservedKind.EVENT) == []
    world.see(PODS, pod(), 10, "ADDED")
    seen = world.only(ObservedKind.EVENT)
    assert isinstance(seen, EventSnapshot)
    assert (seen.about_uid, seen.count, seen.last) == ("uid-1", 3, T0)


def test_events_about_what_nobody_waits_for_are_not_kept(world: World) -> None:
    world.lists(pods=[pod()], events=[event(about="other"), event("e2", reason="Scheduled")])
    assert world.there(ObservedKind.EVENT) == []


def test_an_event_about_a_pod_that_runs_is_kept(world: World) -> None:
    world.lists(pods=[run_pod()], events=[event(reason="Preempted")])
    assert len(world.there(ObservedKind.EVENT)) == 1


def test_an_event_outlives_the_server_s_hour_while_its_pod_waits(world: World) -> None:
    world.lists(pods=[pod()], events=[event()])
    world.see(EVENTS, event(), 3600, "DELETED")
    world.lists(7300, pods=[pod()])
    assert len(world.there(ObservedKind.EVENT)) == 1


def test_an_event_goes_an_hour_after_what_it_is_about(world: World) -> None:
    world.lists(pods=[pod()], events=[event()])
    world.see(PODS, pod(), 5000, "DELETED")
    world.lists(5000 + 3500)
    assert len(world.there(ObservedKind.EVENT)) == 1
    world.lists(5000 + 3700)
    assert world.there(ObservedKind.EVENT) == []
    # The server may still have it: it is not taken up again.
    world.lists(5000 + 3800, events=[event()])
    assert world.there(ObservedKind.EVENT) == []


# ---------------------------------------------------------------- restarts, writers, queries


def test_a_process_started_anew_goes_on_with_the_same_rows(world: World) -> None:
    things: dict[str, Any] = {
        "pods": [pod()],
        "quotas": [quota()],
        "jobs": [job()],
        "events": [event()],
    }
    world.lists(**things)
    before = list(ObservedObjectRow.objects.order_by("pk").values())
    world.again().lists(100, **things)
    assert list(ObservedObjectRow.objects.order_by("pk").values()) == before


def test_what_went_while_nobody_watched_is_gone(world: World) -> None:
    world.lists(pods=[pod("a"), pod("b")], quotas=[quota()], jobs=[job()])
    world.again().lists(100, pods=[pod("b")])
    assert [
        one.uid
        for one in world.there(ObservedKind.POD, ObservedKind.JOB, ObservedKind.RESOURCE_QUOTA)
    ] == ["b"]


def test_kinds_that_the_server_no_longer_has_are_gone(world: World) -> None:
    queue = {"metadata": {"uid": "q", "name": "cq"}, "spec": {"cohortName": "all"}}
    world.apply(Relisted(QUEUES, [queue], T0))
    assert len(world.there(ObservedKind.CLUSTER_QUEUE)) == 1
    informer = Informer(world.cluster.pk, FakeCluster(), sources=Sources(EVERYWHERE))
    informer.apply([Relisted(NODES, [node()], T0 + 50)])
    informer.write()
    assert world.there(ObservedKind.CLUSTER_QUEUE) == []


@pytest.mark.parametrize("late", [0.0, 0.4, 30.0], ids=["at once", "a little", "much"])
def test_two_processes_write_one_row_for_each_thing(world: World, late: float) -> None:
    other = world.again()
    for one, delay in ((world, 0.0), (other, late)):
        one.lists(delay, pods=[pod()], quotas=[quota()])
    for one, delay in ((world, 0.0), (other, late)):
        one.see(QUOTAS, quota(12), 60 + delay)
        one.see(PODS, run_pod(), 61 + delay)
    assert ObservedObjectRow.objects.filter(kind="Pod").count() == 1
    rows = ObservedObjectRow.objects.filter(kind="ResourceQuota").order_by("first_at")
    assert [row.body["hard"][f"requests.{GPU}"] for row in rows] == [8, 12]
    assert [row.gone_at is None for row in rows] == [False, True]
    assert rows[0].gone_at == rows[1].first_at


def test_nothing_new_costs_no_query(world: World) -> None:
    world.lists(pods=[pod()], quotas=[quota()])
    world.informer.apply([WatchEvent(QUOTAS, ObjectChange("MODIFIED", quota()), T0 + 5, T0 + 1)])
    with CaptureQueriesContext(connection) as queries:
        world.informer.write()
    assert len(queries) == 0


def test_many_things_cost_few_queries(world: World) -> None:
    pods = [pod(f"uid-{n}") for n in range(900)]
    events = [event(f"e-{n}", f"uid-{n}") for n in range(900)]
    world.informer.apply(
        [Relisted(PODS, pods, T0), Relisted(NODES, [node()], T0), Relisted(EVENTS, events, T0)]
    )
    with CaptureQueriesContext(connection) as queries:
        world.informer._write_objects()
    # 1801 rows in four parts: each is locked, read and written in one short transaction, which
    # SQLite does a hundred rows at a time.
    assert len(queries) <= 4 * 10
    assert ObservedObjectRow.objects.count() == 1801


def test_what_no_database_takes_does_not_stop_the_ledger(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    # The database lets nothing be gone before it was first seen.
    strange = ObservedObject(
        ObservedKind.JOB, "u", "", "j", ControllerSnapshot(0.0), T0, T0, T0 - 10
    )
    world.informer._objects.store.changed[ObservedKind.JOB, "u", None] = strange
    world.apply(Relisted(PODS, [pod()], T0), Relisted(NODES, [node()], T0))
    assert "Job u is not written" in caplog.text
    assert Pod.objects.count() == 1
    assert [one.uid for one in world.there(ObservedKind.POD)] == ["uid-1"]


# ---------------------------------------------------------------- the whole watch


class _Refusing(FakeCluster):
    """A server that lets nobody list some collections, or breaks while it lists them."""

    def __init__(self, error: Exception, *paths: str) -> None:
        super().__init__(patience=0.02)
        self.error, self.paths = error, paths

    def list(self, path: str) -> Listing:
        if path in self.paths:
            raise self.error
        return super().list(path)


def test_a_right_that_is_missing_is_noted_and_the_watch_goes_on(cluster: Cluster) -> None:
    source = _Refusing(SourceRejected("the account lacks the verb list on events."), EVENTS)
    source.put(NODES, node())

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        source.put(PODS, pod())
        driver.delivered(PODS)
        driver.until(lambda: ("list", "/apis/batch/v1/jobs") in source.calls)

    Driver(source).follow(cluster, play)
    assert [one.kind for one in observed_objects(cluster.pk, [ObservedKind.POD])] == [
        ObservedKind.POD
    ]
    assert "autoscalers" in WatchIssue.objects.get(subject="waiting:events").text
    assert WatchCoverage.objects.count() == 1


def test_a_collection_that_breaks_does_not_hold_up_the_span(cluster: Cluster) -> None:
    source = _Refusing(SourceUnavailable("connection reset"), EVENTS, QUOTAS)
    source.put(NODES, node())
    Driver(source).follow(cluster, lambda driver: driver.delivered(PODS))
    assert WatchCoverage.objects.count() == 1
    found = snapshot(cluster, source, at(500))
    assert found.nodes == 1


def _kueue(source: FakeCluster) -> None:
    """Have the server serve the queues of Kueue."""
    versions = [{"version": "v1beta2"}]
    group = {"metadata": {"name": "kueue.x-k8s.io", "uid": "g"}, "versions": versions}
    source.put("/apis", group)
    names = [{"name": "clusterqueues"}, {"name": "clusterqueues/status"}]
    served = {"metadata": {"name": "v1beta2", "uid": "v"}, "resources": names}
    source.put("/apis/kueue.x-k8s.io", served)


def test_queues_that_come_later_are_followed_and_pods_meanwhile(cluster: Cluster) -> None:
    source = FakeCluster(patience=0.02)
    source.put(NODES, node())

    def play(driver: Driver) -> None:
        driver.delivered(PODS)
        source.put(QUEUES, {"metadata": {"uid": "q", "name": "cq"}, "spec": {}})
        _kueue(source)
        driver._seconds = itertools.count(T0 + 200 + DISCOVER_SECONDS, 0.01)
        driver.delivered(QUEUES)
        source.remove("/apis", "g")
        driver._seconds = itertools.count(T0 + 300 + 2 * DISCOVER_SECONDS, 0.01)
        driver.until(lambda: not any(QUEUES in one.name for one in threading.enumerate()))
        driver.delivered(PODS)

    Driver(source).follow(cluster, play)
    assert not observed_objects(cluster.pk, [ObservedKind.CLUSTER_QUEUE])
    assert ObservedObjectRow.objects.get(kind=ObservedKind.CLUSTER_QUEUE.value).gone_at is not None
    # The pods were listed once: their stream went on.
    assert source.calls.count(("list", PODS)) == 1
    assert source.calls.count(("list", QUEUES)) == 1


def test_streams_bring_what_explains_pending(cluster: Cluster) -> None:
    source = FakeCluster(patience=0.02)
    source.put(NODES, node())
    _kueue(source)

    def play(driver: Driver) -> None:
        driver.delivered(QUEUES)
        source.put(QUEUES, {"metadata": {"uid": "q", "name": "cq"}, "spec": {}})
        source.put(QUOTAS, quota())
        source.put(PODS, pod())
        source.put(EVENTS, event())
        source.put(EVENTS, event("e2", reason="Pulling"))
        for path in (QUEUES, QUOTAS, PODS, EVENTS):
            driver.delivered(path)

    Driver(source).follow(cluster, play)
    kinds = {one.kind for one in observed_objects(cluster.pk, list(ObservedKind))}
    assert kinds == {
        ObservedKind.NODE,
        ObservedKind.POD,
        ObservedKind.CLUSTER_QUEUE,
        ObservedKind.RESOURCE_QUOTA,
        ObservedKind.EVENT,
    }
    assert ObservedObjectRow.objects.filter(kind="Event").count() == 1


# ---------------------------------------------------------------- forgetting


def test_what_went_is_forgotten_after_two_days_but_settings_are_kept(world: World) -> None:
    world.lists(pods=[pod("old"), pod("new")], quotas=[quota(8)])
    world.see(QUOTAS, quota(12), 10)
    world.see(PODS, pod("old"), 20, "DELETED")
    world.see(PODS, pod("new"), 90_000, "DELETED")
    now = from_seconds(T0 + 20 + 48 * 3600 + 1)
    assert forget_objects(now=now, history_before=at(-1)) == 1
    assert [row.uid for row in ObservedObjectRow.objects.filter(kind="Pod")] == ["new"]
    assert ObservedObjectRow.objects.filter(kind="ResourceQuota").count() == 2
    assert forget_objects(now=now, history_before=at(11)) == 1


def test_a_collection_that_is_not_answered_is_told_of_until_it_is(cluster: Cluster) -> None:
    world = World(cluster)
    world.lists(quotas=[quota(8)])
    world.apply(WatchSilent(QUOTAS, T0 + 100, "list of resourcequotas: HTTP 503."))
    (note,) = WatchIssue.objects.filter(cluster=cluster)
    assert note.subject == "waiting:resourcequotas"
    assert note.text.startswith("list of resourcequotas: HTTP 503. Until the API server answers")
    assert ObservedObjectRow.objects.filter(kind=ObservedKind.RESOURCE_QUOTA).count() == 1

    world.apply(WatchClosed(QUOTAS, T0 + 130, T0 + 101))
    assert not WatchIssue.objects.filter(cluster=cluster).exists()


def test_what_is_not_answered_does_not_move_the_span_watched(cluster: Cluster) -> None:
    world = World(cluster)
    world.lists()
    before = list(WatchCoverage.objects.values_list("start", "end"))
    world.apply(WatchSilent(PODS, T0 + 100, "list of pods: HTTP 503."))
    assert list(WatchCoverage.objects.values_list("start", "end")) == before

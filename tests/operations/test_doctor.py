"""The doctor as a whole: small clusters in the database, their sources behind fake ports."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from msgspec import field

from apps.accounts.domain.structs import replace
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Pod, TierRule, WatchCoverage
from apps.clusters.ports import SourceHealth, SourceRejected, SourceUnavailable
from apps.clusters.services.catalog import tier_rules_at
from apps.operations.adapters import metric_queries
from apps.operations.domain.observations import Right, needed
from apps.operations.services import UnknownCluster, run_doctor
from apps.operations.services.doctor.source_checks import newest_slot
from apps.usage.models import CollectionWindow
from tests import factories
from tests.clusters.fakes.fake_cluster import FakeCluster
from tests.clusters.fakes.fake_metrics import FakeMetrics
from tests.operations.doctor_portal import (
    KEY,
    SLOT,
    AskedCluster,
    Planted,
    World,
    codes,
    deny,
    examined,
    interval,
    make_clusters,
    plant,
    rows,
    see_quotas,
    world_of,
)
from tests.operations.doctor_sources import NOW
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db


_clusters = shared(make_clusters)
world = copy_of("_clusters", world_of)


def test_nothing_is_found_where_all_is_well(world: World) -> None:
    found = examined(world)
    assert found.findings == ()
    assert [(one.cluster, one.devices) for one in found.clusters] == [("east", 8), ("west", 8)]


def answer(world: World, question: str, series: list[tuple[dict[str, str], float]]) -> None:
    world["west"].metrics.replies[question] = series


def label(world: World, **labels: str) -> None:
    """Label the node in the Kubernetes API."""
    api = world["west"].api
    assert api is not None
    given = {f"nvidia.com/{key.replace('__', '.')}": value for key, value in labels.items()}
    api.put("/api/v1/nodes", {"metadata": {"uid": "n1", "name": "west-1", "labels": given}})


def _skewed(world: World) -> None:
    answer(world, metric_queries.TIME, [({}, 4e9)])


FAULTS = [
    pytest.param(
        lambda w: plant(w, failure=SourceUnavailable("Prometheus cannot be reached")),
        "prometheus-unavailable",
        id="prometheus-down",
    ),
    pytest.param(
        lambda w: plant(w, failure=SourceRejected("answers with HTTP 403")),
        "prometheus-rejected",
        id="prometheus-forbids",
    ),
    pytest.param(
        lambda w: w["west"].api.fail("health", SourceUnavailable("timed out")),
        "api-unavailable",
        id="api-down",
    ),
    pytest.param(
        lambda w: w["west"].api.fail("may", SourceRejected("HTTP 401: Unauthorized")),
        "api-rejected",
        id="token-expired",
    ),
    pytest.param(lambda w: deny(w, ("watch", "", "pods")), "rbac-missing", id="no-watch-pods"),
    pytest.param(
        lambda w: deny(w, ("get", "apps", "replicasets")), "owners-unreadable", id="no-replicasets"
    ),
    pytest.param(
        lambda w: deny(w, ("watch", "", "events")), "waiting-unreadable", id="no-watch-events"
    ),
    pytest.param(lambda w: WatchCoverage.objects.all().delete(), "watch-not-running",
    id="no-watch"),
    pytest.param(
        lambda w: WatchCoverage.objects.update(end=NOW - timedelta(hours=1)), "watch-behind",
        id="late" ),
    pytest.param(
        lambda w: factories.note_collection(
            w["west"].cluster,
            NOW.replace(minute=0) - timedelta(hours=3),
            "failed",
            error="HTTP 500",
        ),
        "hours-failed",
        id="an-hour-failed",
    ),
    pytest.param(
        lambda w: factories.note_collection(
            w["west"].cluster, NOW.replace(minute=0) - timedelta(hours=3), "partial"
        ),
        "hours-partial",
        id="an-hour-is-partial",
    ),
    pytest.param(
        lambda w: CollectionWindow.objects.filter(
            cluster=w["west"].cluster, hour__gte=NOW - timedelta(hours=9)
        ).delete(),
        "collection-behind",
        id="nine-hours-missing",
    ),
    pytest.param(
        lambda w: plant(w, scrape_interval_seconds=60.0), "interval-differs", id="every-minute"
    ),
    pytest.param(lambda w: plant(w, device_slots=()), "no-device-metrics", id="no-exporter"),
    pytest.param(
        lambda w: plant(w, device_slots=rows("west-1", activity_sum=None)),
        "no-activity-metric",
        id="no-activity",
    ),
    pytest.param(
        lambda w: plant(w, device_slots=rows("west-1", memory_used_peak_mib=None)),
        "no-memory-metric",
        id="no-memory",
    ),
    pytest.param(
        lambda w: plant(w, device_slots=rows("west-1", energy_wh=None)),
        "no-energy-metric",
        id="no-energy",
    ),
    pytest.param(
        lambda w: plant(w, device_slots=rows("west-1", pod="", namespace="")),
        "no-pod-labels",
        id="no-pod-labels",
    ),
    pytest.param(
        lambda w: plant(w, findings={"stuck_counter": 2}), "stuck-counter", id="stuck-counter"
    ),
    pytest.param(
        lambda w: plant(w, nodes=(), pods=(), away=(SLOT,)), "kube-state-missing", id="no-ksm"
    ),
    pytest.param(
        lambda w: plant(w, nodes=[replace(interval("west-1"), labels={})]),
        "node-labels-missing",
        id="no-node-labels",
    ),
    pytest.param(
        lambda w: answer(w, metric_queries.KUBE_STATE_COPIES, [({}, 3.0)]),
        "kube-state-duplicated",
        id="three-ksm",
    ),
    pytest.param(
        lambda w: answer(w, metric_queries.CLUSTERS, [({}, 2.0)]),
        "series-of-several-clusters",
        id="two-clusters",
    ),
    pytest.param(
        lambda w: answer(w, metric_queries.TWICE, [({}, 8.0)]), "scraped-twice", id="two-exporters"
    ),
    pytest.param(_skewed, "clock-skew", id="clock-of-the-future"),
    pytest.param(
        lambda w: answer(w, metric_queries.TAINTED, []), "nodes-without-taint", id="no-taint"
    ),
    pytest.param(
        lambda w: see_quotas(w["west"].cluster, **{KEY: 8.0, "nvidia.com/gpu": 10.0}),
        "quota-counts-nothing",
        id="inert-quota",
    ),
    pytest.param(
        lambda w: see_quotas(w["west"].cluster), "namespaces-without-quota", id="no-quota"
    ),
    pytest.param(
        lambda w: label(w, mig__config__state="failed"), "mig-failed", id="mig-config-failed"
    ),
    pytest.param(
        lambda w: label(w, mig__config__state="pending"), "mig-reconfiguring", id="mig-pending"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "code"), FAULTS)
def test_a_fault_of_one_cluster_is_found_and_nothing_else(
    world: World, fault: Planted, code: str
) -> None:
    fault(world)
    assert codes(examined(world)) == [("west", code)]


def test_namespaces_of_nobody_are_found_with_their_hours(world: World) -> None:
    node_gpus = factories.make_gpus(world["west"].cluster, "west-1", factories.make_tier("spare"))
    workload = factories.make_workload(world["west"].cluster, "stray", "bare", "Pod")
    factories.make_pod(workload, created_at=NOW - timedelta(hours=2), node_gpus=node_gpus)
    found = {f.code: f for f in examined(world).findings}
    assert found["namespaces-unassigned"].places == ("stray",)


def test_a_team_on_a_tier_that_is_not_for_it_is_found(world: World) -> None:
    TierRule.objects.update(allowed_teams=["speech"])
    found = [f for f in examined(world).findings if f.cluster == "west"]
    assert [f.code for f in found] == ["team-not-allowed"]
    assert found[0].gpu_hours == pytest.approx(26 * 8)


def test_free_gpus_without_cpu_are_found(world: World) -> None:
    world["west"].metrics.replies[metric_queries.REQUESTED % "cpu"] = [({"node": "west-1"}, 63.5)]
    Pod.objects.filter(name="train-west-1-0").update(ended_at=NOW, finished_at=NOW)
    (found,) = examined(world).findings
    assert (found.code, found.places) == ("free-unreachable", ("west-1",))
    assert "1 GPU is free" in found.what


def test_a_cluster_that_is_down_does_not_hide_the_other(world: World) -> None:
    plant(world, failure=SourceUnavailable("Prometheus cannot be reached"))
    world["east"].metrics.findings = {(SLOT, "stuck_counter"): 1}
    assert codes(examined(world)) == [
        ("west", "prometheus-unavailable"),
        ("east", "stuck-counter"),
    ]


class Hung(FakeMetrics):
    """A source that does not answer until it is let go."""

    go: threading.Event = field(default_factory=threading.Event)

    def health(self) -> SourceHealth:
        self.go.wait(30.0)
        return SourceHealth("late")


@pytest.fixture
def hung() -> Iterator[Hung]:
    source = Hung()
    yield source
    source.go.set()


def test_a_source_that_hangs_is_given_up_at_the_deadline(world: World, hung: Hung) -> None:
    clients = ClusterClients(
        metrics=lambda c: hung if c.name == "west" else world[c.name].metrics,
        kubernetes=world.clients.kubernetes,
    )
    found = run_doctor(NOW, clients=clients, deadline_seconds=0.2)
    assert codes(found) == [("west", "prometheus-unavailable")]
    assert "No answer within 0.2 s" in found.findings[0].what


def test_what_cannot_be_read_is_told_and_hides_nothing(world: World) -> None:
    plant(world, failure=KeyError("metric"))
    found = examined(world)
    assert codes(found) == [("west", "prometheus-rejected")]
    assert "KeyError" in found.findings[0].what


def test_a_source_that_takes_no_questions_leaves_these_out_and_says_so(world: World) -> None:
    west = world["west"].metrics
    plain = FakeMetrics(
        device_slots=west.device_slots,
        pods=west.pods,
        nodes=west.nodes,
        quota_slots=west.quota_slots,
        profile=west.profile,
    )
    clients = ClusterClients(metrics=lambda _: plain, kubernetes=lambda _: FakeCluster())
    found = run_doctor(NOW, cluster="west", clients=clients)
    assert found.findings == ()
    assert found.clusters[0].unasked == (
        "taints, clocks, copies and room on nodes",
        "Topology Manager of 1 multi-GPU node (no NodeResourceTopology names its policy)",
    )


def test_without_kube_state_metrics_quotas_are_those_that_the_watch_lists(world: World) -> None:
    plant(world, quota_slots=())
    see_quotas(world["west"].cluster, **{KEY: 8.0, "nvidia.com/gpu": 10.0})
    found = [one for one in codes(examined(world)) if "quota" in one[1]]
    assert found == [("west", "quota-counts-nothing")]


def test_quotas_that_nobody_answers_are_not_read_as_none(world: World) -> None:
    world["east"].metrics.quota_slots = ()
    found = examined(world)
    assert not [one for one in codes(found) if "quota" in one[1]]
    unread = {one.cluster: "quotas of namespaces" in one.unasked for one in found.clusters}
    assert unread == {"east": True, "west": False}


def test_a_question_that_a_server_refuses_is_told_as_not_examined(world: World) -> None:
    del world["west"].metrics.replies[metric_queries.TAINTED]
    found = examined(world, cluster="west")
    assert found.findings == ()
    assert "taints of nodes" in found.clusters[0].unasked


def test_rights_are_tried_where_the_server_cannot_be_asked(world: World) -> None:
    class Forbidding(FakeCluster):
        def get(self, path: str) -> None:
            self._call("get", path)
            if "/pods/" in path:
                raise SourceRejected(f"get {path}: HTTP 403: pods is forbidden")

    api = Forbidding()
    clients = ClusterClients(metrics=world.clients.metrics, kubernetes=lambda _: api)
    found = run_doctor(NOW, cluster="west", clients=clients)
    assert codes(found) == [("west", "rbac-missing")]
    assert ("get", "/apis/apps/v1/namespaces/default/replicasets/gpuportal-doctor") in api.calls
    assert ("get", "/api/v1/nodes/gpuportal-doctor") in api.calls


def test_rights_are_tried_where_the_server_refuses_to_review_them(world: World) -> None:
    class Unreviewing(AskedCluster):
        def may(
            self, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
        ) -> bool:
            raise SourceRejected("HTTP 404: the server could not find the requested resource")

    api = Unreviewing()
    clients = ClusterClients(metrics=world.clients.metrics, kubernetes=lambda _: api)
    assert run_doctor(NOW, cluster="west", clients=clients).findings == ()
    assert ("get", "/api/v1/nodes/gpuportal-doctor") in api.calls


def test_an_account_that_is_not_known_is_no_missing_right(world: World) -> None:
    class Unknowing(FakeCluster):
        def get(self, path: str) -> None:
            raise SourceRejected(f"get {path}: HTTP 401: Unauthorized")

    clients = ClusterClients(metrics=world.clients.metrics, kubernetes=lambda _: Unknowing())
    assert codes(run_doctor(NOW, cluster="west", clients=clients)) == [("west", "api-rejected")]


def test_a_connection_is_given_back(world: World) -> None:
    examined(world)
    assert world["west"].api is not None
    assert world["west"].api._closed


def test_a_cluster_that_nobody_loaded_is_refused(world: World) -> None:
    with pytest.raises(UnknownCluster, match="'north'"):
        examined(world, cluster="north")


def test_an_empty_catalog_is_an_error(db: None) -> None:
    found = run_doctor(NOW, clients=ClusterClients())
    assert codes(found) == [("", "catalog-empty")]
    assert found.errors == 1


def test_the_newest_slot_is_one_that_is_over() -> None:
    assert newest_slot(NOW).slots() == [SLOT]
    assert newest_slot(NOW.replace(minute=0)).slots() == [SLOT]


def test_rights_on_claims_are_needed_only_where_a_tier_is_of_claims(world: World) -> None:
    rules = tier_rules_at(NOW)
    right = Right("watch", "resource.k8s.io", "resourceslices")
    assert right not in set(needed(rules))
    assert right in set(needed([replace(rules[0], device_classes=("gpu.nvidia.com",))]))

"""The doctor as a whole: small clusters in the database, their sources behind fake ports."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.template.loader import render_to_string
from rich.console import Console

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.devices.exporter_profile import VirtualGpus, WorkloadLabels
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster, Pod, TierRule, WatchCoverage
from apps.clusters.ports import SourceHealth, SourceRejected, SourceUnavailable
from apps.clusters.services.catalog import tier_rules_at
from apps.operations.adapters import questions
from apps.operations.domain.findings import KINDS
from apps.operations.domain.observations import Right
from apps.operations.domain.rights import LIMITS, changing, needed
from apps.operations.management import diagnosis as words
from apps.operations.models import DoctorFinding
from apps.operations.selectors import open_findings, verdicts
from apps.operations.services import Diagnosis, UnknownCluster, run_doctor
from apps.operations.services.source_checks import newest_slot
from apps.operations.tasks import run_doctor as task
from apps.quota_requests.models import AuditCheck
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
    changed_profile,
    interval,
    make_world,
    rows,
    see_quotas,
)
from tests.operations.doctor_worlds import NOW, with_job

pytestmark = pytest.mark.django_db

# Clusters, rules, who may use tiers, the audit; then a savepoint, when it was, what is open, and
# its release.
QUERIES = 8
# How its exporters were, and what the database has; with an API also its nodes, pods and quotas.
QUERIES_OF_A_CLUSTER, WITH_API = 11, 5
VIEWER = Visibility(everything=False)


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def examined(world: World, now: datetime = NOW, cluster: str | None = None) -> Diagnosis:
    return run_doctor(now, cluster=cluster, clients=world.clients)


def codes(found: Diagnosis) -> list[tuple[str, str]]:
    return [(finding.cluster, finding.code) for finding in found.findings]


def test_nothing_is_found_where_all_is_well(world: World) -> None:
    found = examined(world)
    assert found.findings == ()
    assert [(one.cluster, one.devices) for one in found.clusters] == [("east", 8), ("west", 8)]


# ---------------------------------------------------------------- planted faults


def plant(world: World, **values: object) -> None:
    found = values.get("findings")
    if isinstance(found, dict):
        values["findings"] = {(SLOT, name): count for name, count in found.items()}
    for name, value in values.items():
        setattr(world["west"].metrics, name, value)


def answer(world: World, question: str, series: list[tuple[dict[str, str], float]]) -> None:
    world["west"].metrics.replies[question] = series


def deny(world: World, *rights: tuple[str, str, str]) -> None:
    world["west"].api = AskedCluster(rights)


def label(world: World, **labels: str) -> None:
    """Label the node in the Kubernetes API."""
    api = world["west"].api
    assert api is not None
    given = {f"nvidia.com/{key.replace('__', '.')}": value for key, value in labels.items()}
    api.put("/api/v1/nodes", {"metadata": {"uid": "n1", "name": "west-1", "labels": given}})


def _skewed(world: World) -> None:
    answer(world, questions.TIME, [({}, 4e9)])


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
        lambda w: answer(w, questions.KUBE_STATE_COPIES, [({}, 3.0)]),
        "kube-state-duplicated",
        id="three-ksm",
    ),
    pytest.param(
        lambda w: answer(w, questions.TWICE, [({}, 8.0)]), "scraped-twice", id="two-exporters"
    ),
    pytest.param(_skewed, "clock-skew", id="clock-of-the-future"),
    pytest.param(
        lambda w: answer(w, questions.TAINTED, []), "nodes-without-taint", id="no-taint"
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
    cards = factories.make_cards(world["west"].cluster, "west-1", factories.make_tier("spare"))
    workload = factories.make_workload(world["west"].cluster, "stray", "bare", "Pod")
    factories.make_pod(workload, created_at=NOW - timedelta(hours=2), cards=cards)
    found = {f.code: f for f in examined(world).findings}
    assert found["namespaces-unassigned"].places == ("stray",)


def test_a_team_on_a_tier_that_is_not_for_it_is_found(world: World) -> None:
    TierRule.objects.update(allowed_teams=["speech"])
    found = [f for f in examined(world).findings if f.cluster == "west"]
    assert [f.code for f in found] == ["team-not-allowed"]
    assert found[0].gpu_hours == pytest.approx(26 * 8)


def test_free_gpus_without_cpu_are_found(world: World) -> None:
    world["west"].metrics.replies[questions.REQUESTED % "cpu"] = [({"node": "west-1"}, 63.5)]
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

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

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
    assert found.clusters[0].unasked == ("taints, clocks, copies and room on nodes",)


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
    del world["west"].metrics.replies[questions.TAINTED]
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
        def may(self, verb: str, group: str, resource: str) -> bool:
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


# ---------------------------------------------------------------- what is kept


def test_findings_are_kept_from_when_they_were_first_seen_until_they_are_gone(
    world: World,
) -> None:
    plant(world, findings={"stuck_counter": 1})
    examined(world)
    plant(world, findings={"stuck_counter": 3})
    examined(world, NOW + timedelta(minutes=2))
    (row,) = open_findings(visibility=EVERYTHING)
    assert (row.since, row.seen_at) == (NOW, NOW + timedelta(minutes=2))
    assert row.what.startswith("3 times")
    plant(world, findings={})
    examined(world, NOW + timedelta(minutes=4))
    assert open_findings(visibility=EVERYTHING) == []
    (kept,) = DoctorFinding.objects.all()
    assert kept.resolved_at == NOW + timedelta(minutes=4)


def test_what_cannot_be_seen_now_is_not_taken_for_mended(world: World) -> None:
    plant(world, findings={"stuck_counter": 1})
    examined(world)
    plant(world, failure=SourceUnavailable("Prometheus cannot be reached"))
    examined(world, NOW + timedelta(minutes=2))
    kept = {row.code for row in open_findings(visibility=EVERYTHING)}
    assert kept == {"stuck-counter", "prometheus-unavailable"}


def test_examining_one_cluster_leaves_findings_of_others(world: World) -> None:
    plant(world, findings={"stuck_counter": 1})
    examined(world)
    examined(world, NOW + timedelta(minutes=2), cluster="east")
    assert [row.cluster for row in open_findings(visibility=EVERYTHING)] == ["west"]


def test_an_exporter_that_shows_itself_otherwise_is_a_dated_finding_for_a_week(
    world: World,
) -> None:
    examined(world)
    changed_profile(world, "west", with_job(workload_labels=WorkloadLabels.PLAIN))
    (found,) = examined(world, NOW + timedelta(minutes=3)).findings
    assert (found.code, found.since) == ("exporter-changed", NOW + timedelta(minutes=3))
    assert "pods are named by pod, before by exported_pod" in found.what
    (later,) = examined(world, NOW + timedelta(minutes=6)).findings
    assert later.since == found.since


def test_a_night_without_shared_cards_is_no_change(world: World) -> None:
    changed_profile(world, "west", with_job(virtual_gpus=VirtualGpus.BY_PROCESS))
    examined(world)
    changed_profile(world, "west", with_job())
    assert examined(world, NOW + timedelta(minutes=3)).findings == ()


def test_an_account_without_credentials_is_not_told_to_get_rights(world: World) -> None:
    """With an empty token file each request is anonymous: no role is missing a verb."""

    class Anonymous(AskedCluster):
        def may(self, verb: str, group: str, resource: str) -> bool:
            raise SourceRejected('HTTP 403: User "system:anonymous" cannot create resource')

    found = run_doctor(
        NOW,
        cluster="west",
        clients=ClusterClients(
            metrics=lambda _: world["west"].metrics, kubernetes=lambda _: Anonymous()
        ),
    )
    assert codes(found) == [("west", "api-rejected")]


def test_each_check_is_noted_with_its_time(world: World) -> None:
    assert {one.checked_at for one in verdicts()} == {None}
    examined(world, cluster="west")
    assert {one.name: one.checked_at for one in verdicts()} == {
        "east": None, "west": NOW, "silver": None,
    }  # fmt: skip
    later = NOW + timedelta(minutes=1)
    examined(world, later)
    assert {(one.checked_at, one.errors, one.warnings) for one in verdicts()} == {(later, 0, 0)}


def test_an_audit_that_does_not_hold_is_a_finding(world: World) -> None:
    values = {"at": NOW, "holds": False, "words": "Line 7 was changed."}
    AuditCheck.objects.create(**values)
    found = examined(world)
    assert codes(found) == [("", "audit-broken")]
    assert found.findings[0].what == "Line 7 was changed."
    AuditCheck.objects.update(holds=True)
    assert examined(world).findings == ()


# ---------------------------------------------------------------- who sees what


def test_who_does_not_run_the_portal_sees_no_servers_namespaces_or_nodes(world: World) -> None:
    plant(
        world,
        findings={"stuck_counter": 1},
        device_slots=rows("west-1", energy_wh=None),
        nodes=[replace(interval("west-1"), labels={})],
    )
    see_quotas(world["west"].cluster, **{"nvidia.com/gpu": 10.0})
    examined(world)
    every = {row.code for row in open_findings(visibility=EVERYTHING)}
    seen = open_findings(visibility=VIEWER)
    assert every - {row.code for row in seen} == {
        "quota-counts-nothing",
        "namespaces-without-quota",
    }
    assert all(row.places == () for row in seen)
    assert not any("west-1" in f"{row.what} {row.fix} {row.subject}" for row in seen)
    assert any(row.places for row in open_findings(visibility=EVERYTHING))


def test_examining_a_cluster_takes_a_known_number_of_queries(
    world: World, django_assert_num_queries: object
) -> None:
    examined(world)
    assert callable(django_assert_num_queries)
    with django_assert_num_queries(QUERIES + 2 * QUERIES_OF_A_CLUSTER + WITH_API):
        examined(world)
    # Whether there is a cluster of that name and what tiers the others have are two more, and the
    # audit is of no cluster.
    with django_assert_num_queries(QUERIES + 1 + QUERIES_OF_A_CLUSTER + WITH_API):
        examined(world, cluster="west")


def test_open_findings_take_one_query(world: World, django_assert_num_queries: object) -> None:
    plant(world, findings={"stuck_counter": 1}, scrape_interval_seconds=60.0)
    examined(world)
    assert callable(django_assert_num_queries)
    with django_assert_num_queries(1):
        assert len(open_findings(visibility=EVERYTHING)) == 2


def test_findings_of_a_cluster_that_left_the_catalog_are_not_shown(world: World) -> None:
    plant(world, findings={"stuck_counter": 1})
    examined(world)
    Cluster.objects.filter(name="west").update(active=False)
    assert open_findings(visibility=EVERYTHING) == []
    assert open_findings(visibility=EVERYTHING, clusters=["east"]) == []


def test_the_fragment_of_the_page_shows_each_finding_with_its_fix(world: World) -> None:
    plant(world, findings={"stuck_counter": 1}, scrape_interval_seconds=60.0)
    examined(world)
    found = open_findings(visibility=EVERYTHING)
    html = render_to_string("health/_findings.html", {"findings": found})
    for row in found:
        assert row.title in html
    assert "dcgmi profile --resume" in html
    never = render_to_string("health/_findings.html", {"findings": []})
    assert "Not checked yet" in never
    assert "were examined" not in never
    checked = {"findings": [], "summary": {"checked_at": NOW}}
    assert "were examined" in render_to_string("health/_findings.html", checked)


# ---------------------------------------------------------------- the command


def printed(found: Diagnosis) -> str:
    page = StringIO()
    words.show(found, Console(file=page, width=100))
    return page.getvalue()


def test_the_text_has_the_worst_first_and_each_fix_in_full(world: World) -> None:
    plant(world, findings={"stuck_counter": 1}, scrape_interval_seconds=60.0)
    deny(world, ("watch", "", "pods"))
    text = printed(examined(world))
    heads = [text.index(word) for word in ("Errors:", "Warnings:", "Notes:")]
    assert heads == sorted(heads)
    fix = "kubectl delete pod --namespace NAMESPACE --selector app=dcgm-exporter --field-selector"
    assert fix in text
    assert "1 error, 1 warning, 1 note" in text


def test_the_text_says_clearly_that_nothing_was_found(world: World) -> None:
    assert "Nothing found: everything that was looked at is right." in printed(examined(world))


def test_the_document_keeps_its_shape(world: World) -> None:
    plant(world, findings={"stuck_counter": 1})
    made = json.loads(json.dumps(words.document(examined(world))))
    assert made.keys() == {"at", "clusters", "counts", "findings"}
    assert made["counts"] == {"error": 0, "warning": 1, "note": 0}
    assert made["clusters"][1] == {
        "cluster": "west",
        "prometheus_version": "fake",
        "kubernetes_version": "v0.0.0-fake",
        "devices": 8,
        "not_examined": ["the server's clock"],
    }
    (finding,) = made["findings"]
    assert {key: finding[key] for key in ("code", "severity", "group", "cluster", "cost")} == {
        "code": "stuck-counter",
        "severity": "warning",
        "group": "data",
        "cluster": "west",
        "cost": {"pods": None, "gpu_hours": None},
    }
    assert finding.keys() >= {"title", "subject", "what", "fix", "places", "since", "more"}


def test_the_command_ends_with_1_when_there_is_an_error(db: None) -> None:
    out = StringIO()
    with pytest.raises(CommandError) as ended:
        call_command("doctor", stdout=out)
    assert ended.value.returncode == 1
    assert "No cluster is loaded" in out.getvalue()
    assert "load_catalog catalog.yaml" in out.getvalue()


def test_the_command_prints_json_and_nothing_else_to_its_output(db: None) -> None:
    # An entry without a URL is refused without asking anybody.
    factories.make_cluster("west", prometheus={})
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("doctor", "--json", "--cluster", "west", stdout=out)
    found = json.loads(out.getvalue())["findings"]
    assert [one["code"] for one in found] == ["prometheus-rejected"]


def test_the_command_refuses_a_cluster_that_nobody_loaded(db: None) -> None:
    with pytest.raises(CommandError, match="load_catalog"):
        call_command("doctor", "--cluster", "north")


def test_the_task_keeps_what_the_pages_show(db: None) -> None:
    assert task() == 1
    (row,) = open_findings(visibility=EVERYTHING)
    assert row.code == "catalog-empty"
    assert row.code in KINDS


def test_a_fix_is_never_cut_however_narrow_the_terminal(world: World) -> None:
    plant(world, findings={"stuck_counter": 2})
    diagnosis = examined(world)
    page = StringIO()
    words.show(diagnosis, Console(file=page, width=40))
    shown = [line.strip() for line in page.getvalue().splitlines()]
    (found,) = diagnosis.findings
    assert any(len(line) > 40 for line in found.fix.splitlines())
    assert all(line.strip() in shown for line in found.fix.splitlines())


# ---------------------------------------------------------------- the account that changes quotas

PATCHES = [("patch", *limit) for limit in LIMITS]


def found_of(world: World, *codes_of: str) -> list[tuple[str, str]]:
    diagnosis = run_doctor(NOW, clients=world.clients)
    return [(f.code, f.subject) for f in diagnosis.findings if f.code.startswith(codes_of)]


@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        pytest.param(None, [], id="no-writer"),
        pytest.param(AskedCluster(given=PATCHES), [], id="just-enough"),
        pytest.param(AskedCluster(), [("writer-rights-missing", "")], id="no-patch"),
        pytest.param(
            AskedCluster(given=(*PATCHES, ("delete", "", "resourcequotas"))),
            [("rights-too-many", "writer")],
            id="deletes",
        ),
        pytest.param(
            AskedCluster(given=(*PATCHES, ("get", "", "secrets"))),
            [("rights-too-many", "writer")],
            id="secrets",
        ),
    ],
)
def test_the_account_that_changes_quotas_may_do_that_and_no_more(
    writer: AskedCluster | None, expected: list[tuple[str, str]], world: World
) -> None:
    world["west"].writer = writer
    assert found_of(world, "writer-", "rights-") == expected


def test_an_account_that_is_not_known_is_said_and_hides_nothing_else(world: World) -> None:
    deny(world, ("watch", "", "pods"))
    writer = AskedCluster()
    writer.fail("may", SourceRejected("HTTP 401: Unauthorized"))
    world["west"].writer = writer
    assert sorted(found_of(world, "writer-", "rbac-")) == [
        ("rbac-missing", ""),
        ("writer-rejected", ""),
    ]


def test_a_server_that_does_not_tell_of_rights_is_not_held_against_the_account(
    world: World,
) -> None:
    world["west"].writer = FakeCluster()
    assert found_of(world, "writer-", "rights-") == []


def test_a_reader_that_may_do_everything_is_told_in_one_line(world: World) -> None:
    world["west"].api = AskedCluster(given=(("*", "*", "*"), ("create", "", "pods")))
    diagnosis = run_doctor(NOW, clients=world.clients)
    (finding,) = [f for f in diagnosis.findings if f.code == "rights-too-many"]
    assert finding.subject == "reader"
    assert "may do everything" in finding.what
    assert "rbac-reader.yaml" in finding.fix


def test_rights_to_queues_are_needed_where_the_cluster_has_them() -> None:
    served = ["/api/v1/events", "/apis/kueue.x-k8s.io/v1beta1/clusterqueues"]
    assert {right.words for right in changing(served)} == {
        *("get resourcequotas", "patch resourcequotas"),
        *("get clusterqueues.kueue.x-k8s.io", "patch clusterqueues.kueue.x-k8s.io"),
    }

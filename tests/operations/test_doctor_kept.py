"""What the doctor keeps of its findings, and who sees which of them."""

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from django.template.loader import render_to_string

from apps.accounts.domain.structs import replace
from apps.accounts.models import User
from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.devices.exporter_profile import VirtualGpus, WorkloadLabels
from apps.clusters.gateways import ClusterClients
from apps.clusters.models import Cluster, Tier, TierRule
from apps.clusters.ports import SourceRejected, SourceUnavailable
from apps.costs.models import Export
from apps.operations.models import DoctorFinding
from apps.operations.selectors import open_findings, verdicts
from apps.operations.services import run_doctor
from apps.quota_requests.models import AuditCheck
from apps.usage.models import CollectionWindow
from apps.web.data_quality.issues import quality_issues
from tests.operations.doctor_portal import (
    AskedCluster,
    World,
    changed_profile,
    codes,
    examined,
    interval,
    make_clusters,
    plant,
    rows,
    see_quotas,
    world_of,
)
from tests.operations.doctor_sources import NOW, with_job
from tests.shared_rows import copy_of, shared

WHEN = {"choice": {"zone": ZoneInfo("UTC")}}

pytestmark = pytest.mark.django_db


# Clusters, rules, who may use tiers, the audit, work of three queues; then a savepoint, when it
# was, what is open, and its release.
QUERIES = 11


# How its exporters were, which GPUs are broken by their own word, and what the database has; with
# an API also its nodes, pods, quotas with topologies, and the jobs whose pods came without a group.
QUERIES_OF_A_CLUSTER, WITH_API = 13, 6
VIEWER = Visibility(everything=False)


_clusters = shared(make_clusters)
world = copy_of("_clusters", world_of)


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


def test_a_night_without_shared_gpus_is_no_change(world: World) -> None:
    changed_profile(world, "west", with_job(virtual_gpus=VirtualGpus.BY_PROCESS))
    examined(world)
    changed_profile(world, "west", with_job())
    assert examined(world, NOW + timedelta(minutes=3)).findings == ()


def test_an_account_without_credentials_is_not_told_to_get_rights(world: World) -> None:
    """With an empty token file each request is anonymous: no role is missing a verb."""

    class Anonymous(AskedCluster):
        def may(
            self, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
        ) -> bool:
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


def test_a_finding_counts_for_the_tiers_that_it_is_about(world: World) -> None:
    """Whatever words its subject has: here a tier has the name of the team, and one has blanks."""
    Tier.objects.filter(name="silver").update(name="silver and gold")
    Tier.objects.create(name="vision", position=9)
    TierRule.objects.update(allowed_teams=["speech"])
    # Both clusters have it, with the same tier.
    (found,) = [one for one in examined(world).findings if one.cluster == "west"]
    assert (found.code, found.subject) == ("team-not-allowed", "vision silver and gold")
    assert {one.name: one.notes + one.warnings for one in verdicts() if one.name != "east"} == {
        "west": 1, "silver and gold": 2, "vision": 0,
    }  # fmt: skip
    # A tier that left the catalog has no verdict, and what was found of it stays.
    Tier.objects.filter(name="silver and gold").update(active=False)
    assert {one.name: one.notes + one.warnings for one in verdicts()}["west"] == 1


def test_an_audit_that_does_not_hold_is_a_finding(world: World) -> None:
    values = {"at": NOW, "holds": False, "words": "Line 7 was changed."}
    AuditCheck.objects.create(**values)
    found = examined(world)
    assert codes(found) == [("", "audit-broken")]
    assert found.findings[0].what == "Line 7 was changed."
    AuditCheck.objects.update(holds=True)
    assert examined(world).findings == ()


def test_work_that_no_worker_takes_is_a_finding_of_its_queue(world: World) -> None:
    west = world["west"].cluster
    late = NOW - timedelta(minutes=16)
    hour = NOW.replace(minute=0, second=0, microsecond=0) - timedelta(days=30)
    lease = NOW - timedelta(minutes=9)
    CollectionWindow.objects.create(cluster=west, hour=hour, lease_until=lease)
    export = Export.objects.create(
        asked_by=User.objects.create(username="ada"),
        subject="window",
        format="csv",
        question={},
        asked_at=NOW - timedelta(minutes=9),
    )
    assert examined(world).findings == ()
    CollectionWindow.objects.update(lease_until=late)
    Export.objects.update(asked_at=late, lease_until=NOW + timedelta(minutes=1))
    (found,) = examined(world).findings
    assert (found.code, found.subject, found.since) == ("work-overdue", "collect", late)
    CollectionWindow.objects.update(lease_until=None)
    Export.objects.update(lease_until=late)
    (found,) = examined(world).findings
    assert found.what.startswith("1 export should have been done by now.")
    Export.objects.filter(pk=export.pk).update(ended_at=NOW)
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
    # audit and the queues are of no cluster.
    with django_assert_num_queries(QUERIES - 2 + QUERIES_OF_A_CLUSTER + WITH_API):
        examined(world, cluster="west")


def test_open_findings_take_one_query_and_the_heartbeat_another(
    world: World, django_assert_num_queries: object
) -> None:
    plant(world, findings={"stuck_counter": 1}, scrape_interval_seconds=60.0)
    examined(world)
    assert callable(django_assert_num_queries)
    with django_assert_num_queries(1):
        open_findings(visibility=VIEWER)
    # Who runs the portal reads whether beat stands still: of another table, by the database's
    # clock, and also where there is no finding to join it to.
    with django_assert_num_queries(2):
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
    issues = quality_issues([], found, {}, ())
    html = render_to_string("data_quality/_findings.html", {"issues": issues, **WHEN})
    for row in found:
        assert row.title in html
    assert "dcgmi profile --resume" in html
    never = render_to_string("data_quality/_findings.html", {"issues": [], **WHEN})
    assert "Not checked yet" in never
    assert "were examined" not in never
    checked = {"issues": [], "summary": {"checked_at": NOW}}
    assert "were examined" in render_to_string("data_quality/_findings.html", checked)

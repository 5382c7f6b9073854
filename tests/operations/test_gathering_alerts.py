"""What is gathered from the rooms for alerts: once, with its team, and never what is not known."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings

from apps.accounts.permissions import EVERYTHING
from apps.alerts.domain.alerts import AlertKind
from apps.alerts.models import Alert, IdleAnswer
from apps.alerts.selectors import alert_groups, unread_count
from apps.alerts.services import NewAlert, notify
from apps.clusters.models import Cluster, Pod, WatchCoverage
from apps.fairness.models import QueueTimeObjective
from apps.operations.services import NotGathered, gather_alerts
from apps.operations.services.alerting import (
    SOURCES,
    AlertSource,
    gather_audit,
    gather_budgets,
    gather_gaps,
    gather_idle,
    gather_objectives,
    gather_pending,
    gather_quotas,
    gather_requests,
    gather_rising,
)
from apps.quota_requests import services
from apps.quota_requests.models import AuditCheck
from apps.quotas.models import BudgetAlert
from apps.usage.domain.amounts import NANO
from apps.usage.models import PodHour, ServingHour
from apps.usage.selectors.unused_allocation import IdleNow, idle_workloads
from tests.factories import (
    BEGINNING,
    PodFact,
    Portal,
    collect,
    held,
    make_portal,
    make_report,
    make_workload,
    note_collection,
)
from tests.pending.rows import make_episode, make_looked
from tests.quota_requests.portal import make_portal as make_quota_portal
from tests.quota_requests.portal import served_portal
from tests.quotas.quota_rows import see_quota
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 10, 7, 12, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
LAST = NOW.replace(hour=11, minute=0)
ZONE = ZoneInfo("UTC")


_portal = shared(lambda: make_portal("UTC"))
portal = copy_of("_portal")


def titles() -> list[tuple[str | None, str]]:
    rows = Alert.objects.order_by("pk").values_list("team__name", "title")
    return list(rows)


def watched(cluster: Cluster, until: datetime = NOW) -> None:
    WatchCoverage.objects.create(cluster=cluster, start=NOW - timedelta(days=30), end=until)


# ---------------------------------------------------------------- queue times


def test_a_budget_that_burns_is_said_slow_then_fast_and_once_each(portal: Portal) -> None:
    west, tier = portal.clusters[0], portal.tiers[0]
    watched(west)
    QueueTimeObjective.objects.create(tier=tier, p95_seconds=1800, days=28, valid_from=BEGINNING)
    train = make_workload(west, "vision", "train")

    def waited(count: int, hours: float, ago: float) -> None:
        for _ in range(count):
            until = NOW - ago * HOUR
            make_episode(train, since=until - hours * HOUR, until=until, tier=tier)

    waited(20, 0.1, 3)
    assert gather_objectives(NOW, ZONE) == 0
    waited(3, 1, 3)
    assert gather_objectives(NOW, ZONE) == 1
    assert gather_objectives(NOW + 5 * HOUR / 60, ZONE) == 0
    waited(12, 2, -9 / 60)
    assert gather_objectives(NOW + 10 * HOUR / 60, ZONE) == 1
    assert titles() == [
        (None, f"{tier.name}: the queue-time objective is missed too fast to last"),
        (None, f"{tier.name}: the queue-time objective is missed fast"),
    ]
    slow, fast = Alert.objects.order_by("pk")
    assert (slow.urgent, fast.urgent) == (False, True)
    assert "3 of 23 pieces of work missed 30m in the last 28 days" in slow.text
    assert fast.path == f"/capacity/tiers/{tier.name}/"


def test_queue_times_of_whole_gpus_that_rise_are_said_once(portal: Portal) -> None:
    west, tier = portal.clusters[0], portal.tiers[0]
    watched(west)
    train = make_workload(west, "vision", "train")
    for number in range(10):
        for until, hours in ((NOW - 72 * HOUR, 1), (NOW - number * HOUR - HOUR, 3)):
            make_episode(train, since=until - hours * HOUR, until=until, tier=tier)
    assert gather_rising(NOW, ZONE) == 1
    assert gather_rising(NOW + 5 * HOUR / 60, ZONE) == 0
    # Neither source ends what the other one said.
    assert gather_objectives(NOW, ZONE) == 0
    assert gather_rising(NOW + 10 * HOUR / 60, ZONE) == 0
    (alert,) = Alert.objects.all()
    assert "is 3.0× that of the week before" in alert.text


# ---------------------------------------------------------------- budgets


def test_what_a_budget_came_to_is_told_once(portal: Portal) -> None:
    values = {
        "team": portal.vision,
        "unit": "gpu_hours",
        "period": "month",
        "period_start": datetime(2026, 10, 1, tzinfo=UTC),
        "period_end": datetime(2026, 11, 1, tzinfo=UTC),
        "used": 800.0,
        "allowance": 1000.0,
        "at": NOW - HOUR,
    }
    BudgetAlert.objects.create(kind="used", threshold=0.8, **values)
    soon = {"exhausted_at": datetime(2026, 10, 12, tzinfo=UTC)}
    BudgetAlert.objects.create(kind="projected", threshold=1.0, **values | soon)
    assert gather_budgets(NOW, ZONE) == 2
    assert gather_budgets(NOW + HOUR, ZONE) == 0
    assert sorted(titles()) == [
        ("vision", "vision: 80 % of the budget in GPU-hours is used"),
        ("vision", "vision: the budget in GPU-hours will be used up too soon"),
    ]
    text = Alert.objects.get(title__contains="too soon").text
    assert "used up on 12 Oct; the period ends on 31 Oct" in text


# ---------------------------------------------------------------- quotas, waits


def test_a_quota_that_is_full_is_told_to_the_team_of_its_namespace(portal: Portal) -> None:
    west = portal.clusters[0]
    watched(west)
    see_quota(west, "vision", 4.0, used=4.0, since=NOW - 48 * HOUR)
    assert gather_quotas(NOW, ZONE) == 1
    (alert,) = Alert.objects.all()
    assert (alert.kind, alert.team) == (AlertKind.QUOTA.value, portal.vision)
    assert gather_quotas(NOW + 5 * HOUR / 60, ZONE) == 0


def test_a_quota_that_nobody_watches_is_not_told_of(portal: Portal) -> None:
    west = portal.clusters[0]
    watched(west, until=NOW - 5 * HOUR)
    see_quota(west, "vision", 4.0, used=4.0, since=NOW - 48 * HOUR)
    assert gather_quotas(NOW, ZONE) == 0


def test_work_that_waits_for_long_is_one_alert_for_each_workload(portal: Portal) -> None:
    west = portal.clusters[0]
    watched(west)
    make_looked(west, NOW)
    for name, hours in (("train", 6), ("train", 5), ("sweep", 1)):
        make_episode(make_workload(west, "vision", name), since=NOW - hours * HOUR)
    assert gather_pending(NOW, ZONE) == 1
    assert titles() == [("vision", "vision/train-0 has been pending for 6 hours")]
    assert gather_pending(NOW + HOUR, ZONE) == 0
    # The day after it has reached the next level, unless nobody looks any more.
    assert gather_pending(NOW + 20 * HOUR, ZONE) == 0
    WatchCoverage.objects.update(end=NOW + 20 * HOUR)
    make_looked(west, NOW + 20 * HOUR)
    assert gather_pending(NOW + 20 * HOUR, ZONE) == 1 + 1


# ---------------------------------------------------------------- idle


def held_idle(
    portal: Portal, hours: Sequence[datetime], *, worked: Sequence[datetime] = ()
) -> None:
    """Let train-0 hold 4 GPUs, idle but in the hours `worked`; serve holds one and is busy."""
    train, serve = portal.pods[0], portal.pods[2]
    node_gpus = portal.node_gpus[0]

    def facts(hour: datetime) -> list[PodFact]:
        amounts = held(4.0, busy=4.0) if hour in worked else held(4.0, idle=4.0)
        return [
            PodFact(train, node_gpus, portal.vision, amounts),
            PodFact(serve, node_gpus, portal.vision, held(1.0, busy=1.0)),
        ]

    collect(hours, [node_gpus], facts, zone=portal.zone)


def test_gpus_that_idle_for_long_are_told_with_since_when(portal: Portal) -> None:
    hours = [LAST - n * HOUR for n in range(30)]
    held_idle(portal, hours, worked=[LAST - 13 * HOUR])
    (found,) = idle_workloads(NOW).workloads
    assert (found.name, found.gpus) == ("train", 4.0)
    assert (found.since, found.worked_at) == (LAST - 12 * HOUR, LAST - 12 * HOUR)
    assert found.until == LAST + HOUR
    assert not found.since_at_least
    assert gather_idle(NOW, ZONE) == 1
    assert titles() == [("vision", "vision/train holds 4 GPUs idle for 13 hours")]
    assert gather_idle(NOW, ZONE) == 0


def test_a_service_that_answered_within_seven_days_is_not_told_of(portal: Portal) -> None:
    held_idle(portal, [LAST - n * HOUR for n in range(30)])
    fact = PodHour.objects.get(hour=LAST - 20 * HOUR, allocated=4 * NANO)
    columns = {
        one.attname: getattr(fact, one.attname)
        for one in ServingHour._meta.concrete_fields
        if not one.primary_key and hasattr(fact, one.attname)
    }
    asked = ServingHour.objects.create(**columns, model="llama", engine="vLLM", requests=0)
    assert len(idle_workloads(NOW).workloads) == 1
    ServingHour.objects.filter(pk=asked.pk).update(requests=1)
    assert idle_workloads(NOW).workloads == ()


def test_a_service_that_is_marked_to_stay_is_not_told_of(portal: Portal) -> None:
    held_idle(portal, [LAST - n * HOUR for n in range(30)])
    Pod.objects.filter(name=portal.pods[0].name).update(kept_for_latency=True)
    assert idle_workloads(NOW).workloads == ()
    assert gather_idle(NOW, ZONE) == 0


def test_an_hour_that_was_not_measured_is_not_an_idle_one(portal: Portal) -> None:
    train, node_gpus = portal.pods[0], portal.node_gpus[0]

    def facts(hour: datetime) -> list[PodFact]:
        amounts = held(4.0, unmeasured=4.0) if hour == LAST - 2 * HOUR else held(4.0, idle=4.0)
        return [PodFact(train, node_gpus, portal.vision, amounts)]

    collect([LAST - n * HOUR for n in range(30)], [node_gpus], facts, zone=portal.zone)
    assert [one.since for one in idle_workloads(NOW).workloads] == [LAST - HOUR]
    assert gather_idle(NOW, ZONE) == 0


def test_of_a_cluster_that_is_not_collected_nothing_is_called_idle(portal: Portal) -> None:
    held_idle(portal, [LAST - n * HOUR for n in range(30)])
    assert gather_idle(NOW, ZONE) == 1
    assert idle_workloads(NOW + 12 * HOUR) == IdleNow((), frozenset())
    # What was said of it stands, and is not said again when it is collected again.
    assert gather_idle(NOW + 12 * HOUR, ZONE) == gather_idle(NOW, ZONE) == 0


def test_what_was_answered_for_is_not_told_again_until_its_day(portal: Portal) -> None:
    held_idle(portal, [LAST - n * HOUR for n in range(30)])
    IdleAnswer.objects.create(
        subject="workload:west/vision/Job/train",
        team=portal.vision,
        choice="keep",
        person="ben",
        at=NOW - HOUR,
        reason="the demo",
        until=NOW + HOUR,
    )
    assert gather_idle(NOW, ZONE) == 0
    assert gather_idle(NOW + HOUR, ZONE) == 1


# ---------------------------------------------------------------- gaps


def test_a_cluster_without_data_is_told_to_who_runs_the_portal(portal: Portal) -> None:
    west, east = portal.clusters
    note_collection(west, LAST)
    note_collection(east, LAST - 4 * HOUR)
    note_collection(east, LAST, state="failed")
    watched(west, until=NOW - 26 * HOUR)
    assert gather_gaps(NOW, ZONE) == 2
    assert sorted(titles(), key=str) == [
        (None, "east has not been collected for 4 hours"),
        (None, "west has not been watched for 26 hours"),
    ]
    assert Alert.objects.filter(urgent=True).count() == 2


def test_a_cluster_that_never_had_data_is_none_that_lost_it(portal: Portal) -> None:
    assert portal.clusters
    assert gather_gaps(NOW, ZONE) == 0


def test_a_cluster_that_was_taken_out_is_not_missed(portal: Portal) -> None:
    note_collection(portal.clusters[1], LAST - 48 * HOUR)
    Cluster.objects.update(active=False)
    assert gather_gaps(NOW, ZONE) == 0


# ---------------------------------------------------------------- requests


def test_steps_of_a_request_are_told_once_and_drafts_not_at_all() -> None:
    portal = make_quota_portal(None)
    pk, other = portal.draft(), portal.draft()
    services.comment(pk, "Is this enough?", by=portal.actor("ada"), now=portal.now)
    services.withdraw(other, by=portal.actor("ada"), now=portal.now)
    assert gather_requests(NOW, ZONE) == 0
    services.submit(pk, by=portal.actor("ada"), version=portal.of(pk).version, now=portal.now)
    services.take(pk, by=portal.actor("cleo"), version=portal.of(pk).version, now=portal.now)
    assert gather_requests(NOW, ZONE) == 2
    assert gather_requests(NOW, ZONE) == 0
    assert titles() == [
        ("vision", f"Request {pk} of vision was submitted"),
        ("vision", f"Request {pk} of vision is in review"),
    ]
    alert = Alert.objects.order_by("pk")[0]
    assert (alert.kind, alert.path) == (AlertKind.REQUEST.value, f"/quotas/requests/{pk}/")
    assert "requests.nvidia.com/gpu of team-vision/gpu on west: 6 → 8." in alert.text


def test_a_change_that_is_taken_back_is_told_the_other_way_round() -> None:
    with served_portal() as portal:
        pk = portal.applied()
        gather_requests(NOW, ZONE)
        Alert.objects.all().delete()
        services.revert(pk, by=portal.actor("cleo"), now=portal.now)
        assert portal.carry_out(pk) == "applied"
        assert gather_requests(NOW, ZONE) == 2
        texts = Alert.objects.order_by("pk").values_list("text", flat=True)
        assert [text.partition("\n")[0] for text in texts] == [
            "requests.nvidia.com/gpu of team-vision/gpu on west: 8 → 6."
        ] * 2


def test_what_was_decided_long_before_anybody_was_told_is_no_news() -> None:
    portal = make_quota_portal(None)
    pk = portal.draft()
    services.submit(pk, by=portal.actor("ada"), version=portal.of(pk).version, now=portal.now)
    assert gather_requests(portal.now + timedelta(days=3), ZONE) == 0
    services.take(pk, by=portal.actor("cleo"), version=portal.of(pk).version, now=portal.now)
    assert gather_requests(portal.now + HOUR, ZONE) == 1
    assert titles() == [("vision", f"Request {pk} of vision is in review")]


# ---------------------------------------------------------------- all of it


def test_one_source_that_fails_does_not_hold_up_the_others(portal: Portal) -> None:
    note_collection(portal.clusters[1], LAST - 4 * HOUR)

    def broken(_now: datetime, _zone: ZoneInfo) -> int:
        raise RuntimeError("no answer")

    with pytest.raises(NotGathered, match="broken"):
        gather_alerts(now=NOW, sources={"broken": broken, "gaps": gather_gaps})
    assert Alert.objects.count() == 1


def test_what_stood_before_the_portal_looked_is_listed_and_no_news(portal: Portal) -> None:
    def standing(subject: str) -> AlertSource:
        said = NewAlert(AlertKind.QUOTA, subject, None, f"{subject} is full", "")
        return lambda now, zone: notify([said], now=now, zone=zone)

    def unread() -> tuple[int, list[bool]]:
        rows, _ = alert_groups(portal.cleo, visibility=EVERYTHING)
        return unread_count(portal.cleo, visibility=EVERYTHING), [row.is_unread for row in rows]

    gather_alerts(now=NOW, sources={"quotas": standing("a")})
    gather_alerts(now=NOW + HOUR / 2, sources={"quotas": standing("b"), "gaps": gather_gaps})
    assert unread() == (0, [False, False])
    note_collection(portal.clusters[1], LAST - 9 * HOUR)
    gather_alerts(now=NOW + HOUR / 2, sources={"gaps": gather_gaps})
    assert unread() == (1, [True, False, False]), "what is urgent is always news"
    gather_alerts(now=NOW + HOUR, sources={"quotas": standing("c")})
    assert unread() == (2, [True, True, False, False])


def test_an_audit_that_does_not_hold_is_said_once_to_who_runs_the_platform() -> None:
    assert gather_audit(NOW, ZONE) == 0
    AuditCheck.objects.create(at=NOW, holds=True, words="All 3 entries hold.", number=3)
    assert gather_audit(NOW, ZONE) == 0
    words = "Entry 2 was altered after it was written."
    AuditCheck.objects.update(holds=False, words=words)
    assert [gather_audit(NOW, ZONE), gather_audit(NOW + HOUR, ZONE)] == [1, 0]
    assert titles() == [(None, "Audit was altered")]
    alert = Alert.objects.get()
    assert words in alert.text
    assert (alert.path, alert.urgent) == ("/admin/audit/", True)
    AuditCheck.objects.update(words="Entry 1 is missing: entry 2 comes in its place.")
    assert gather_audit(NOW + HOUR, ZONE) == 1, "something else is wrong now"


def test_all_sources_are_gathered_and_the_task_is_on_the_clock() -> None:
    make_report("UTC")
    assert set(SOURCES) == {
        *("audit", "gaps", "requests", "budgets", "quotas", "pending", "idle"),
        *("objectives", "rising queue times", "person digests", "caps of persons"),
    }
    assert gather_alerts(now=NOW) == 0
    tasks = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert {"operations.gather_alerts", "alerts.deliver", "alerts.prune"} <= tasks

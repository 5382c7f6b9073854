"""Recommended changes replayed on recorded demand, and read with the recommendation."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from apps.accounts.domain.identity import Role
from apps.accounts.models import Team
from apps.clusters.models import (
    Cluster,
    GpuModel,
    Node,
    NodeInterval,
    Pod,
    Tier,
    TierRule,
    WatchCoverage,
)
from apps.costs.domain.recommendations.recommendation import (
    Confidence,
    RecommendationKind,
    RecommendationState,
    ReplayGap,
)
from apps.costs.models import Recommendation
from apps.costs.services.replayed_effects import MOST_REPLAYED
from apps.pending.models import CauseInterval, Episode
from apps.planning.services import replay_recommendations
from apps.usage.models import PodHour
from tests.factories import A100, BEGINNING, make_pod, make_report, make_user, make_workload
from tests.planning.test_recorded_demand import GPU, HOUR, LABELS, START, cluster, observe

__all__ = ["cluster"]
NOW = START + 25 * HOUR
HALF, SEVENTH = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"
pytestmark = pytest.mark.django_db


def make_timeout(cluster: Cluster, *, team: str = "vision", **more: Any) -> Recommendation:
    return Recommendation.objects.create(
        kind=RecommendationKind.IDLE_TIMEOUT.value, cluster=cluster, workload=f"Team/{team}",
        team=Team.objects.get(name=team), tier=Tier.objects.get(name="whole"),
        change="Stop pods after 60 idle minutes.", confidence=Confidence.MEDIUM.value,
        reason="so it was", first_seen=NOW, last_seen=NOW, **more,
    )  # fmt: skip


def make_idle_hours(cluster: Cluster) -> None:
    """Give the pod that ran from 01:00 to 03:00 two hours without activity."""
    pod = Pod.objects.get(uid="uid-one")
    assert pod.tier is not None
    for hour in (1, 2):
        PodHour.objects.create(
            hour=START + hour * HOUR, busy=0, idle=3 * 10**9, allocated=3 * 10**9, pod=pod,
            cluster=cluster, tier=pod.tier, workload=pod.workload,
            namespace=pod.workload.namespace, team=Team.objects.get(name="vision"),
            gpu_model=GpuModel.objects.get_or_create(name="A100")[0], capacity_type="on-demand",
        )  # fmt: skip


def test_an_open_timeout_is_replayed_once_a_day(cluster: Cluster, client: Client) -> None:
    make_idle_hours(cluster)
    row = make_timeout(cluster)
    assert [replay_recommendations(now=NOW), replay_recommendations(now=NOW + HOUR)] == [1, 0]
    row.refresh_from_db()
    assert row.replay is not None
    # Two idle hours of three GPUs, of which the first is within the limit.
    assert row.replay["replayed_freed_gpu_hours"] == pytest.approx(3.0)
    unmet = [row.replay[f"replayed_unmet_{when}_gpu_hours"] for when in ("before", "after")]
    assert unmet[1] <= unmet[0]
    assert row.replay["replayed_days"] > 0
    client.force_login(make_user("cleo", Role.ADMIN))
    (found,) = client.get("/api/v1/recommendations").json()["results"]
    assert found["replay"] == row.replay
    assert "Freed in replay" in client.get(f"/costs/recommendations/{row.pk}/").content.decode()
    WatchCoverage.objects.update(end=START + 3 * timedelta(days=1))
    assert replay_recommendations(now=NOW + timedelta(days=1)) == 1
    assert replay_recommendations(now=NOW + timedelta(days=1, hours=1), anew=True) == 1


def test_what_was_never_replayed_comes_before_what_saves_more(cluster: Cluster) -> None:
    make_idle_hours(cluster)
    rows = [
        make_timeout(cluster, saving_per_month=100 - number, namespace=f"n{number}")
        for number in range(MOST_REPLAYED + 1)
    ]
    assert replay_recommendations(now=NOW) == MOST_REPLAYED
    rows[-1].refresh_from_db()
    assert rows[-1].replay is None
    WatchCoverage.objects.update(end=START + 3 * timedelta(days=1))
    assert replay_recommendations(now=NOW + timedelta(days=1)) == MOST_REPLAYED
    rows[-1].refresh_from_db()
    assert rows[-1].replay is not None


LAYOUT = {"gpus": 1, "now": {"3g.40gb": 1}, "then": {"1g.10gb": 4, "3g.40gb": 1}}


def test_what_a_replay_frees_is_worth_what_is_saved_each_hour(cluster: Cluster) -> None:
    make_idle_hours(cluster)
    row = make_timeout(cluster, evidence={"saved_per_gpu_hour": "2.00"}, currency="USD")
    lowered = make_unused(cluster, 1)
    Recommendation.objects.filter(pk=lowered.pk).update(evidence=row.evidence)
    assert replay_recommendations(now=NOW) == 2
    row.refresh_from_db()
    lowered.refresh_from_db()
    assert row.replay is not None
    freed, days = (row.replay[f"replayed_{name}"] for name in ("freed_gpu_hours", "days"))
    worth = Decimal(row.replay["replayed_saving_per_month"])
    assert worth == pytest.approx(Decimal(freed / days * 730 / 24 * 2), abs=Decimal("0.01"))
    # A lower limit is no cash.
    assert "replayed_saving_per_month" not in lowered.replay


def test_a_team_without_work_on_the_tier_has_no_effects_of_zero(cluster: Cluster) -> None:
    Team.objects.create(name="idle")
    row = make_timeout(cluster, team="idle")
    assert replay_recommendations(now=NOW) == 0
    row.refresh_from_db()
    assert (row.replay, row.replay_gap) == (None, ReplayGap.NO_WORK.value)


@pytest.mark.parametrize(
    ("tier", "workload", "gap"),
    [
        ("", "Job/train", ReplayGap.NOT_OFFERED),
        ("nowhere", "Job/train", ReplayGap.NOT_OFFERED),
        ("whole", "Job/never-seen", ReplayGap.NO_WORK),
    ],
)
def test_another_request_that_cannot_be_replayed_says_why(
    cluster: Cluster, tier: str, workload: str, gap: ReplayGap
) -> None:
    row = make_timeout(cluster, replay={"replayed_days": 14.0})
    request = {"tier": tier, "resource": SEVENTH, "units": 1, "share": 1 / 7, "node_selector": {}}
    kind = RecommendationKind.MIG_PROFILE.value
    Recommendation.objects.update(
        kind=kind, change_values=request, namespace="vision", workload=workload
    )
    assert replay_recommendations(now=NOW) == 0
    row.refresh_from_db()
    assert (row.replay, row.replay_gap) == (None, gap.value)


@pytest.mark.parametrize("model", [A100, "NVIDIA-L4"])
def test_a_pool_is_replayed_by_the_hours_of_the_report_s_week(cluster: Cluster, model: str) -> None:
    assert make_report() == ZoneInfo("Europe/Berlin")
    row = make_timeout(cluster)
    # Tuesday from 00:00 to 02:00: of these days, which end at 01:00 UTC, the last two hours.
    away = [float(hour in (24, 25)) for hour in range(168)]
    pool = {"gpu_model": model, "capacity_type": "unknown", "gpus": away}
    kind = RecommendationKind.EMPTY_HOURS.value
    Recommendation.objects.update(kind=kind, change_values=pool, team=None)
    assert replay_recommendations(now=NOW) == (model == A100)
    row.refresh_from_db()
    if model == A100:
        assert row.replay is not None
        assert row.replay["replayed_freed_gpu_hours"] == pytest.approx(2.0)
    else:
        assert row.replay_gap == ReplayGap.NOT_OFFERED.value


def make_unused(cluster: Cluster, after: int, *, quota: str = "ResourceQuota/gpus") -> Any:
    team, tier = Team.objects.get(name="speech"), Tier.objects.get(name="whole")
    return Recommendation.objects.create(
        kind=RecommendationKind.UNUSED_QUOTA.value, cluster=cluster, workload=quota, team=team,
        namespace="speech", tier=tier, confidence=Confidence.MEDIUM.value, reason="so it was",
        change_values={"key": "requests.nvidia.com/gpu", "before": 2.0, "after": after},
        first_seen=NOW, last_seen=NOW,
    )  # fmt: skip


@pytest.mark.parametrize(("after", "more"), [(1, 0.0), (0, 22.0)])
def test_a_lower_limit_says_what_would_be_pending_for_it(
    cluster: Cluster, after: int, more: float
) -> None:
    row = make_unused(cluster, after)
    other = make_unused(cluster, after, quota="ClusterQueue/vision-cq")
    assert replay_recommendations(now=NOW) == 1
    row.refresh_from_db()
    # A GPU is asked for at 02:00 and has its volume at 03:00; then the limit alone is in its way.
    unmet = [row.replay[f"replayed_unmet_{when}_gpu_hours"] for when in ("before", "after")]
    assert unmet[1] - unmet[0] == pytest.approx(more)
    assert row.replay["replayed_freed_gpu_hours"] == 0.0
    other.refresh_from_db()
    assert other.replay is None, "queues are not recommended to be lowered"


def test_lent_quota_says_what_others_would_have_pending(cluster: Cluster) -> None:
    kind = RecommendationKind.LEND_QUOTA.value
    values = {"key": "requests.nvidia.com/gpu", "hard": 2.0, "lent": 1.0}
    row = make_unused(cluster, 1)
    Recommendation.objects.update(kind=kind, change_values=values)
    # Its first work requests three.
    observe(cluster, "ResourceQuota", "own", {"hard": {f"requests.{GPU}": 2.0}}, "vision")
    assert replay_recommendations(now=NOW) == 1
    row.refresh_from_db()
    before, after = (row.replay[f"replayed_unmet_{at}_gpu_hours"] for at in ("before", "after"))
    assert after < before


def test_one_whose_values_are_not_kept_yet_ends_no_others(cluster: Cluster) -> None:
    make_idle_hours(cluster)
    row = make_unused(cluster, 1)
    Recommendation.objects.update(change_values=None)
    timeout = make_timeout(cluster)
    assert replay_recommendations(now=NOW) == 1
    row.refresh_from_db()
    timeout.refresh_from_db()
    assert row.replay is None
    assert timeout.replay is not None


def make_layout(
    cluster: Cluster, *, values: Mapping[str, Any] | None = LAYOUT, node: str = "m1"
) -> Recommendation:
    """Recommend to cut a GPU that is a half and nothing else; sevenths are pending."""
    for name, resource in (("half", HALF), ("seventh", SEVENTH)):
        tier = Tier.objects.create(name=name, position=1)
        TierRule.objects.create(
            tier=tier, position=1, sharing="mig", resources=[resource], valid_from=BEGINNING
        )
    # A tier that no node offers is in no replay, so another node has one seventh.
    for name, resource in (("m1", HALF), ("m2", SEVENTH)):
        NodeInterval.objects.create(
            node=Node.objects.create(cluster=cluster, name=name), start=START, ready=True,
            schedulable=True, labels=LABELS, capacity={resource: 1.0}, allocatable={resource: 1.0},
        )  # fmt: skip
    sevenths = make_workload(cluster, "vision", "sevenths")
    for number in range(6):
        pod = make_pod(
            sevenths, f"seventh-{number}", created_at=START + HOUR, resource=SEVENTH,
            gpu_equivalents=0.0,
        )  # fmt: skip
        episode = Episode.objects.create(
            cluster=cluster, kind="Pod", uid=pod.uid, name=pod.name, workload=sevenths, tier=tier,
            resource=SEVENTH, units=1.0, gpu_equivalents=1 / 7, counts="pending",
            since=START + HOUR, cause="capacity",
        )  # fmt: skip
        CauseInterval.objects.create(
            episode=episode, cause="capacity", start=START + HOUR, counts="pending", counted=1 / 7
        )
    return Recommendation.objects.create(
        kind=RecommendationKind.MIG_LAYOUT.value, cluster=cluster, node=node,
        change_values=values, confidence=Confidence.MEDIUM.value,
        reason="so it was", first_seen=NOW, last_seen=NOW,
    )  # fmt: skip


def test_a_layout_says_what_it_strands_less_and_what_is_pending_then(cluster: Cluster) -> None:
    row = make_layout(cluster)
    assert replay_recommendations(now=NOW) == 1
    row.refresh_from_db()
    assert row.replay is not None
    days = row.replay["replayed_days"]
    # Four of seven slices are in no device now, all day long.
    assert row.replay["replayed_freed_gpu_hours"] == pytest.approx(4 / 7 * 24 * days)
    before, after = (row.replay[f"replayed_unmet_{at}_gpu_hours"] for at in ("before", "after"))
    # Of six sevenths one starts on the other node, and four more on this one: as the replay
    # begins, at 01:00, when they are asked for.
    assert before - after == pytest.approx(4 / 7 * 24 * days)


@pytest.mark.parametrize(
    ("values", "node"),
    [
        ({"gpus": 1, "now": {"3g.40gb": 2}, "then": {"1g.10gb": 7}}, "m1"),
        (None, "m1"),
        (LAYOUT, "gone"),
    ],
    ids=["cut meanwhile", "values not kept yet", "no such node"],
)
def test_a_layout_of_another_node_than_there_is_is_not_replayed(
    cluster: Cluster, values: Mapping[str, Any] | None, node: str
) -> None:
    row = make_layout(cluster, values=values, node=node)
    assert replay_recommendations(now=NOW) == 0
    row.refresh_from_db()
    assert row.replay is None
    # What is not kept yet is replayed once it is.
    assert row.replay_gap == (ReplayGap.OTHER_LAYOUT.value if values else "")


def test_one_that_is_decided_keeps_what_was_replayed(cluster: Cluster) -> None:
    make_idle_hours(cluster)
    state = RecommendationState.ACCEPTED.value
    row = make_timeout(cluster, state=state, replay={"replayed_days": 1.0})
    assert replay_recommendations(now=NOW) == 0
    row.refresh_from_db()
    assert row.replay == {"replayed_days": 1.0}


def test_without_recorded_days_nothing_is_said_of_effects(cluster: Cluster) -> None:
    row = make_timeout(cluster, replay={"replayed_days": 14.0})
    NodeInterval.objects.all().delete()
    assert replay_recommendations(now=NOW) == 0
    row.refresh_from_db()
    assert row.replay is None, "effects of days that are known no longer are gone"
    assert row.replay_gap == ReplayGap.NOTHING_RECORDED.value

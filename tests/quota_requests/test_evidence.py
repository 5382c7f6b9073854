"""Evidence and preview from what the other rooms know; nothing that is not known is left out."""

from datetime import datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from apps.accounts.domain.audit import canonical
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorQuota,
    LocalQueueSnapshot,
    NodeSnapshot,
    ObservedKind,
)
from apps.clusters.models import Cluster
from apps.costs.models import Price
from apps.fairness.selectors import HourCounts
from apps.quota_requests.domain.quantities import stored
from apps.quota_requests.selectors import request_detail
from apps.quota_requests.services.evidence.snapshot import (
    known_of_team,
    missing_hours_texts,
    share_of,
)
from apps.quotas.models import Budget, QuotaKey, QuotaKeyHour
from tests.factories import (
    BEGINNING,
    H100,
    PodFact,
    collect,
    held,
    make_gpus,
    make_pod,
    make_tier,
    make_workload,
)
from tests.quota_requests.portal import A100, KEY, NOW, Portal, make_portal, make_sighting
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


_portal = shared(lambda: make_portal(None))
portal = copy_of("_portal")


def with_facts(portal: Portal) -> None:
    """Let vision hold 4 GPUs, 1 busy and 2 idle, for the two hours before now."""
    node_gpus = make_gpus(portal.cluster, "node-1", portal.tier)
    workload = make_workload(portal.cluster, "team-vision", "train")
    pod = make_pod(workload, created_at=NOW - 2 * HOUR, node_gpus=node_gpus, units=4.0)

    def facts(hour: datetime) -> list[PodFact]:
        return [PodFact(pod, node_gpus, portal.vision, held(4.0, busy=1.0, idle=2.0))]

    collect([NOW - 2 * HOUR, NOW - HOUR], [node_gpus], facts, zone=ZoneInfo("UTC"))


def test_what_the_team_held_and_left_idle_is_frozen(portal: Portal) -> None:
    with_facts(portal)
    evidence = portal.of(portal.submitted()).evidence
    (usage,) = evidence["usage"]
    assert usage["tier"] == "whole"
    assert (usage["allocated_gpu_hours"], usage["idle_gpu_hours"]) == ("8", "4")
    assert usage["utilization_ratio"] == "0.25"
    assert not any(one.startswith("usage") for one in evidence["missing"])
    (start,) = [one for one in evidence["missing"] if one.startswith("all figures before")]
    assert start.endswith(f"{NOW - 2 * HOUR:%H:%M}, when data of west starts")


def with_facts_elsewhere(portal: Portal) -> None:
    """Let vision hold 8 H100s in another namespace too; the key reaches their tier as well."""
    large = make_tier("large", position=1, model=H100)
    body = NodeSnapshot({"nvidia.com/gpu.product": H100}, allocatable={"nvidia.com/gpu": 8.0})
    make_sighting(portal.cluster, ObservedKind.NODE, "node-2", body)
    hours = [NOW - 2 * HOUR, NOW - HOUR]
    every = []
    for namespace, node, tier, model, units in (
        ("team-vision", "node-1", portal.tier, A100, 4.0),
        ("team-vision-batch", "node-2", large, H100, 8.0),
    ):
        node_gpus = make_gpus(portal.cluster, node, tier, model=model)
        workload = make_workload(portal.cluster, namespace, "train")
        pod = make_pod(workload, created_at=hours[0], node_gpus=node_gpus, units=units)
        every.append(PodFact(pod, node_gpus, portal.vision, held(units, busy=units)))
    collect(hours, [one.node_gpus for one in every], lambda _hour: every, zone=ZoneInfo("UTC"))


def test_evidence_is_of_the_key_and_not_of_what_the_team_holds_elsewhere(portal: Portal) -> None:
    with_facts_elsewhere(portal)
    for model, price in ((A100, "3.06"), (H100, "98.32")):
        Price.objects.create(
            gpu_model=model, capacity_type="unknown", per_gpu_hour=Decimal(price), currency="USD",
            valid_from=BEGINNING,
        )  # fmt: skip
    request = portal.of(portal.submitted())
    assert set(request.tiers) == {"whole", "large"}
    assert [row["tier"] for row in request.evidence["usage"]] == ["whole"]
    assert request.evidence["usage"][0]["allocated_gpu_hours"] == "8"
    preview = request.preview
    assert preview["cost_tiers"] == ["whole"]
    assert preview["cost_per_month_least"] == preview["cost_per_month_most"] == "4467.6"
    # Two people decide by what it may cost at most, in a tier that is not used yet too.
    assert request.ruling["cost_per_month"] == str(Decimal("98.32") * 2 * 730).rstrip("0")


def test_how_full_the_quota_was_is_frozen(portal: Portal) -> None:
    key = QuotaKey.objects.create(
        cluster=portal.cluster,
        source="ResourceQuota",
        namespace="team-vision",
        name="gpu",
        key=KEY,
    )
    for n, used in ((1, 6.0), (2, 3.0)):
        QuotaKeyHour.objects.create(
            key=key,
            cluster=portal.cluster,
            team=portal.vision,
            hour=NOW - n * HOUR,
            seconds=3600.0,
            hard=6.0,
            used=used,
            held=used,
            pending=0.0,
            suppressed=2.0,
        )
    quota = portal.of(portal.submitted()).evidence["quota"]
    assert (quota["hours"], quota["full_hours"]) == (2, "1")
    assert (quota["saturation_mean"], quota["saturation_peak"]) == ("0.75", "1")
    assert (quota["suppressed_unit_hours"], quota["used"]) == ("4", "6")


def test_budgets_of_the_team_are_frozen_and_held_against_the_rule(portal: Portal) -> None:
    Budget.objects.create(team=portal.vision, period="month", gpu_hours=100.0, valid_from=BEGINNING)
    request = portal.of(portal.submitted())
    (budget,) = request.evidence["budgets"]
    assert (budget["unit"], budget["allowance"]) == ("gpu_hours", "100")
    checks = {one["name"]: one for one in request.ruling["checks"]}
    assert "is not known yet" in checks["budget"]["sentence"]
    assert checks["budget"]["holds"] is None


def test_the_preview_has_promises_capacity_and_the_price_of_the_change(portal: Portal) -> None:
    Price.objects.create(
        gpu_model=A100,
        capacity_type="unknown",
        per_gpu_hour=Decimal("3.06"),
        currency="USD",
        valid_from=BEGINNING,
    )
    preview = portal.of(portal.submitted()).preview
    (promised,) = preview["promised"]
    assert (promised["before_units"], promised["after_units"]) == ("6", "8")
    assert (promised["capacity_units"], promised["over"]) == ("8", False)
    assert preview["cost_per_month_most"] == "4467.6"
    assert preview["currency"] == "USD"
    assert preview["tiers"] == ["whole"]
    assert preview["dry_run_passed"] is None
    assert "could not be reached" in preview["dry_run"]


def queue(cluster: Cluster, name: str, nominal: float) -> None:
    quota = FlavorQuota("default", "nvidia.com/gpu", nominal)
    body = ClusterQueueSnapshot(cohort="all", quotas=(quota,))
    make_sighting(cluster, ObservedKind.CLUSTER_QUEUE, name, body)


def test_the_preview_of_a_queue_says_who_loses_room_to_borrow(portal: Portal) -> None:
    queue(portal.cluster, "cq-vision", 6)
    queue(portal.cluster, "cq-speech", 2)
    for team in ("vision", "speech"):
        make_sighting(
            *(portal.cluster, ObservedKind.LOCAL_QUEUE, "main", LocalQueueSnapshot(f"cq-{team}")),
            namespace=f"team-{team}",
        )
    asked = {
        "source": "ClusterQueue",
        "namespace": "",
        "name": "cq-vision",
        "key": "default/nvidia.com/gpu",
    }
    request = portal.of(portal.submitted(**asked, after="3"))
    assert request.team == portal.vision
    (room,) = request.preview["borrowing"]
    assert (room["name"], room["idle_before"], room["idle_after"]) == ("cq-speech", "6", "3")
    assert room["lost"] == "3"
    seen = {who: request_detail(request.pk, portal.actor(who)) for who in ("ada", "cleo")}
    names = [one.preview.borrowing[0].name for one in seen.values() if one and one.preview]
    assert names == ["another queue (1)", "cq-speech"]


def test_what_is_frozen_has_no_floats(portal: Portal) -> None:
    with_facts(portal)
    request = portal.of(portal.submitted())
    for frozen in (request.evidence, request.preview, request.ruling):
        assert canonical(frozen)


def test_a_key_that_reaches_no_tier_tells_nothing_of_what_the_team_held_elsewhere(
    db: None,
) -> None:
    portal = make_portal(None)
    request = portal.of(portal.draft())
    request.tiers = []
    found = stored(known_of_team(request, now=portal.now).evidence)
    assert "usage" not in found
    assert "money" not in found
    for part in ("usage", "money"):
        assert f"{part}: the key reaches no tier that the portal knows" in found["missing"]


def test_a_fair_share_that_one_tier_does_not_know_is_not_known(db: None) -> None:
    """The rule is held against the share of all tiers that the key can reach together."""
    portal = make_portal(None)
    request = portal.of(portal.draft())
    share = known_of_team(request, now=portal.now).evidence.fair_share
    assert share is not None
    assert share.gpus is None
    row: Any = SimpleNamespace(fair_share_gpu_hours=100.0, tier="whole")
    assert share_of([row], {"whole": 10}, ["whole"]) == 10.0
    assert share_of([row], {"whole": 10}, ["whole", "another"]) is None
    assert share_of([row], {"whole": 0}, ["whole"]) is None
    other: Any = SimpleNamespace(fair_share_gpu_hours=30.0, tier="another")
    known = {"whole": 10, "another": 20}
    assert share_of([row, other], known, list(known)) == 11.5
    assert share_of([row], known, list(known)) == 10.0, "nothing was its share of the other"
    assert share_of([], known, list(known)) is None


def test_hours_that_are_in_no_sum_are_named() -> None:
    hours = {
        "gold": HourCounts(known=340, missing=380),
        "silver": HourCounts(known=720, watched=700),
        "bronze": HourCounts(known=720, watched=720),
        "tin": HourCounts(known=720, watched=700),
    }
    assert missing_hours_texts(hours) == [
        "380 of 720 hours of gold: no data",
    ]

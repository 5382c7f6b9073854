from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from apps.accounts.domain.structs import replace
from apps.clusters.domain.tiers import GpuSharing
from apps.costs.domain.recommendations import (
    Confidence,
    Finding,
    Offers,
    RecommendationKind,
    WorkloadEvidence,
    for_workloads,
)
from apps.costs.domain.recommendations.evidence import ModelOffer, SharedTier, SpotPool
from apps.costs.domain.recommendations.recommendation import FollowUpOutcome, Subject, follow_up
from tests.costs.evidence import A100, JOB, ONE_GPU_HOURS

WORKS, FLICKERS, NEVER = 0.99, 0.02, 0.005
FOUR = replace(JOB, units=4, gpu_hours=4 * ONE_GPU_HOURS, owner_kind="Deployment")
SERVICE = replace(
    JOB,
    subject=Subject("west", "nlp", "Deployment/serve", "exclusive-a100"),
    owner_kind="Deployment",
    mean_activity=0.05,
    p95_activity=0.10,
    memory_peak_mib=7_000,
)
NOTEBOOK = replace(
    SERVICE,
    subject=Subject("west", "nlp", "StatefulSet/jupyter-ann", "exclusive-a100"),
    owner_kind="StatefulSet",
    p95_activity=0.9,
    memory_peak_mib=15_000,
    idle_gpu_hours=0.75 * ONE_GPU_HOURS,
)
MIG = Offers(mig_profiles={A100: {"1g.10gb": "mig-1g", "2g.20gb": "mig-2g", "3g.40gb": "mig-3g"}})
SHARED = Offers(
    shared_tiers=[
        SharedTier("shared-2", A100, 1 / 2),
        SharedTier("shared-4", A100, 1 / 4),
        SharedTier("shared-8", A100, 1 / 8),
        SharedTier("shared-t4", "Tesla-T4", 1 / 8),
    ]
)
L4 = ModelOffer("NVIDIA-L4", 23_034, Decimal("0.80"), "USD", "on-demand", "l4")
T4 = ModelOffer("Tesla-T4", 15_360, Decimal("0.35"), "USD", "on-demand")
H100 = ModelOffer("NVIDIA-H100-80GB-HBM3", 81_559, Decimal("6.88"), "USD", "reserved")
MODELS = Offers(models=[L4, T4, H100])
SPOT_POOL = SpotPool(
    "NVIDIA A100 SXM4 80GB", GpuSharing.EXCLUSIVE, Decimal("1.00"), "USD", "spot-a100"
)
SPOT = Offers(spot=[SPOT_POOL])


def only(evidence: WorkloadEvidence, offers: Offers, kind: RecommendationKind) -> Finding | None:
    return next((one for one in for_workloads([evidence], offers) if one.kind is kind), None)


@pytest.mark.parametrize(
    ("gpus", "saving", "change"),
    [
        pytest.param([WORKS] * 4, None, "", id="all of them work"),
        pytest.param([WORKS, FLICKERS, WORKS, WORKS], None, "", id="a little is not never"),
        pytest.param([NEVER] * 4, None, "", id="none works: that is another matter"),
        pytest.param([], None, "", id="they cannot be told apart"),
        pytest.param([WORKS, NEVER, WORKS, NEVER], "4467.60", "2 GPUs per pod", id="two never"),
        pytest.param([WORKS, NEVER, NEVER, NEVER], "6701.40", "1 GPU per pod", id="three never"),
    ],
)
def test_fewer_gpus(gpus: Sequence[float], saving: str | None, change: str) -> None:
    found = only(replace(FOUR, gpus=gpus), Offers(), RecommendationKind.FEWER_GPUS)
    assert (found and str(found.saving_per_month)) == saving
    assert found is None or change in found.change


@pytest.mark.parametrize(
    ("changes", "profile", "saving", "confidence"),
    [
        # 7,000 × 1.2 = 8,400 of the 9,728 MiB; 0.10 × 1.2 = 0.12 of 1/7. 2,233.80 × 6/7.
        pytest.param({}, "1g.10gb", "1914.69", Confidence.MEDIUM, id="the smallest"),
        pytest.param(
            {"p95_activity": 0.05}, "1g.10gb", "1914.69", Confidence.HIGH, id="with much to spare"
        ),
        pytest.param(
            {"memory_peak_mib": 9_000}, "1g.20gb", "1914.69", Confidence.LOW, id="by memory"
        ),
        pytest.param({"p95_activity": 0.2}, "2g.20gb", "1595.57", Confidence.MEDIUM, id="by work"),
        pytest.param(
            {"gpu_memory_mib": None}, "1g.10gb", "1914.69", Confidence.MEDIUM, id="memory by part"
        ),
        pytest.param({"p95_activity": 0.5}, None, None, None, id="only the whole GPU would do"),
        pytest.param({"memory_peak_mib": None}, None, None, None, id="its memory is not known"),
        pytest.param({"units": 2}, None, None, None, id="more than one GPU"),
        pytest.param({"sharing": GpuSharing.MIG}, None, None, None, id="has a part already"),
        pytest.param({"gpu_model": "NVIDIA-L4"}, None, None, None, id="a GPU that cannot be cut"),
    ],
)
def test_a_mig_profile_that_fits(
    changes: dict[str, Any],
    profile: str | None,
    saving: str | None,
    confidence: Confidence | None,
) -> None:
    found = only(replace(SERVICE, **changes), MIG, RecommendationKind.MIG_PROFILE)
    if found is None:
        assert profile is None
        return
    assert found.evidence["profile"] == profile
    assert (str(found.saving_per_month), found.rating.confidence) == (saving, confidence)


@pytest.mark.parametrize(
    ("changes", "tier", "confidence"),
    [
        # 15,000 × 1.2 = 18,000 of 20,480 MiB.
        pytest.param({}, "shared-4", Confidence.MEDIUM, id="the smallest share that holds it"),
        pytest.param({"memory_peak_mib": None}, "shared-8", Confidence.LOW, id="memory unknown"),
        pytest.param({"memory_peak_mib": 60_000}, None, None, id="too much memory"),
        pytest.param({"idle_gpu_hours": 0.4 * ONE_GPU_HOURS}, None, None, id="not bursty"),
        pytest.param({"subject": JOB.subject}, None, None, id="no notebook"),
        pytest.param({"sharing": GpuSharing.TIME_SLICED}, None, None, id="shared already"),
    ],
)
def test_a_shared_tier_for_a_notebook(
    changes: dict[str, Any], tier: str | None, confidence: Confidence | None
) -> None:
    found = only(replace(NOTEBOOK, **changes), SHARED, RecommendationKind.SHARED_TIER)
    assert (found is None) == (tier is None)
    if found is not None:
        assert f"tier {tier} " in found.change
        assert found.rating.confidence is confidence


def test_a_notebook_that_has_been_idle_for_a_day_is_to_be_stopped() -> None:
    found = only(
        replace(NOTEBOOK, idle_hours_now=30.0), Offers(), RecommendationKind.STOP_IDLE_NOTEBOOK
    )
    assert found is not None
    assert found.saving_per_month == Decimal("1675.35")  # 75 % of 2,233.80
    assert (
        only(
            replace(NOTEBOOK, idle_hours_now=23.0), Offers(), RecommendationKind.STOP_IDLE_NOTEBOOK
        )
        is None
    )
    assert (
        only(replace(JOB, idle_hours_now=30.0), Offers(), RecommendationKind.STOP_IDLE_NOTEBOOK)
        is None
    )


@pytest.mark.parametrize(
    ("changes", "model", "saving"),
    [
        # 0.10 × 312 / 65 = 0.48 on a T4; 730 × (3.06 − 0.35).
        pytest.param({}, "Tesla-T4", "1978.30", id="the cheapest that fits"),
        pytest.param({"memory_peak_mib": 15_000}, "NVIDIA-L4", "1649.80", id="by memory"),
        pytest.param({"p95_activity": 0.3}, "NVIDIA-L4", "1649.80", id="by speed"),
        pytest.param({"p95_activity": 0.5}, None, None, id="too busy for any"),
        pytest.param({"memory_peak_mib": None}, None, None, id="memory not known"),
        pytest.param({"gpu_model": "Some-GPU"}, None, None, id="speed not known"),
        pytest.param({"price_per_gpu_hour": None}, None, None, id="nothing to compare with"),
        pytest.param({"price_per_gpu_hour": Decimal("0.30")}, None, None, id="cheaper already"),
        pytest.param({"currency": "JPY"}, None, None, id="priced in another currency"),
    ],
)
def test_a_smaller_model(changes: dict[str, Any], model: str | None, saving: str | None) -> None:
    found = only(replace(SERVICE, **changes), MODELS, RecommendationKind.SMALLER_MODEL)
    assert (found and str(found.saving_per_month)) == saving
    assert found is None or (
        f"to {model}" in found.change and found.rating.confidence != Confidence.HIGH
    )


BATCH = replace(SERVICE, owner_kind="PyTorchJob")
T4_SPOT = replace(T4, price_per_gpu_hour=Decimal("0.10"), capacity_type="spot", tier="spot-t4")


@pytest.mark.parametrize(
    ("one", "models", "change", "saving"),
    [
        pytest.param(SERVICE, [T4_SPOT], None, None, id="nothing for a service"),
        # 730 × (3.06 − 1.1 × 0.10): a part of the work is done again.
        pytest.param(
            BATCH,
            [T4_SPOT],
            "to Tesla-T4 (tier spot-t4, on spot capacity, with checkpoints).",
            "2153.50",
            id="work that can be restarted is told that it is spot",
        ),
        pytest.param(BATCH, [T4, T4_SPOT], "to Tesla-T4.", "1978.30", id="not only as spot"),
        pytest.param(
            replace(BATCH, capacity_type="spot"),
            [T4_SPOT],
            "on spot capacity",
            "2160.80",
            id="from spot to spot nothing more is done again",
        ),
    ],
)
def test_a_smaller_model_that_is_only_there_as_spot(
    one: WorkloadEvidence, models: list[ModelOffer], change: str | None, saving: str | None
) -> None:
    found = only(one, Offers(models=models), RecommendationKind.SMALLER_MODEL)
    assert (found and str(found.saving_per_month)) == saving
    assert found is None or (change or "") in found.change


def test_the_cheapest_spot_pool_is_named_unless_it_is_the_workloads_own() -> None:
    dearer = replace(SPOT_POOL, price_per_gpu_hour=Decimal("1.50"), tier="other")
    found = only(JOB, Offers(spot=[dearer, SPOT_POOL]), RecommendationKind.SPOT)
    assert found is not None
    assert found.change == "Run this Job on spot capacity (tier spot-a100), with checkpoints."
    own = replace(SPOT_POOL, tier=JOB.subject.tier)
    found = only(JOB, Offers(spot=[own]), RecommendationKind.SPOT)
    assert found is not None
    assert found.change == "Run this Job on spot capacity, with checkpoints."


def test_confidence_rests_on_the_days_that_were_measured() -> None:
    found = only(
        replace(SERVICE, measured_days=8, p95_activity=0.05), MIG, RecommendationKind.MIG_PROFILE
    )
    assert found is not None
    assert found.rating.confidence is Confidence.LOW
    assert "8 days" in found.rating.reason


@pytest.mark.parametrize(
    ("changes", "saving", "confidence"),
    [
        # 730 × (3.06 − 1.1 × 1.00)
        pytest.param({}, "1430.80", Confidence.LOW, id="nobody knows whether it can restart"),
        pytest.param(
            {"finished_after_restart": 3}, "1430.80", Confidence.MEDIUM, id="it has done so"
        ),
        pytest.param({"mean_run_hours": 1.0}, "1430.80", Confidence.MEDIUM, id="short runs"),
        pytest.param({"capacity_type": "unknown"}, "1430.80", Confidence.LOW, id="priced so too"),
        pytest.param({"capacity_type": "spot"}, None, None, id="runs there already"),
        pytest.param({"owner_kind": "Deployment"}, None, None, id="a service"),
        pytest.param({"price_per_gpu_hour": Decimal("1.05")}, None, None, id="no cheaper there"),
        pytest.param({"gpu_model": "NVIDIA-L4"}, None, None, id="no spot pool of its model"),
        pytest.param(
            {"sharing": GpuSharing.MIG}, None, None, id="no spot pool shared like its own"
        ),
        pytest.param({"currency": "EUR"}, None, None, id="priced in another currency there"),
        pytest.param({"owned": True}, None, None, id="its GPUs are owned"),
    ],
)
def test_spot_for_work_that_can_be_restarted(
    changes: dict[str, Any], saving: str | None, confidence: Confidence | None
) -> None:
    found = only(replace(JOB, **changes), SPOT, RecommendationKind.SPOT)
    assert (found and str(found.saving_per_month)) == saving
    assert (found and found.rating.confidence) == confidence


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"coverage": 0.89}, id="measured for less than nine tenths"),
        pytest.param({"coverage": None}, id="not measured"),
        pytest.param({"days": 6.9}, id="under seven days"),
        pytest.param({"measured_days": 6}, id="measured on under seven days of thirty"),
        pytest.param({"over": True}, id="ran once, and is over"),
        pytest.param({"gpu_hours": 0.0}, id="held nothing"),
    ],
)
def test_nothing_is_recommended_on_too_little(changes: dict[str, Any]) -> None:
    everything = Offers(MIG.mig_profiles, SHARED.shared_tiers, MODELS.models, SPOT.spot)
    evidence = [
        replace(FOUR, gpus=[WORKS, NEVER, NEVER, NEVER]),
        SERVICE,
        replace(NOTEBOOK, idle_hours_now=100.0),
        JOB,
    ]
    assert len(for_workloads(evidence, everything)) >= 6
    assert for_workloads([replace(one, **changes) for one in evidence], everything) == []


@pytest.mark.parametrize(
    ("days", "coverage", "confidence"),
    [
        (30.0, 1.0, Confidence.HIGH),
        (30.0, 0.95, Confidence.MEDIUM),
        (14.0, 1.0, Confidence.MEDIUM),
        (7.0, 1.0, Confidence.LOW),
    ],
)
def test_confidence_follows_the_evidence_and_says_why(
    days: float, coverage: float, confidence: Confidence
) -> None:
    one = replace(
        FOUR, days=days, coverage=coverage, gpus=[WORKS, NEVER, NEVER, NEVER], gpu_hours=96 * days
    )
    found = only(one, Offers(), RecommendationKind.FEWER_GPUS)
    assert found is not None
    assert found.rating.confidence is confidence
    assert f"{days:.0f} days" in found.rating.reason
    assert found.saving_per_month == Decimal("6701.40")


def test_without_a_price_the_saving_is_not_known_and_not_zero() -> None:
    (found,) = for_workloads([replace(SERVICE, price_per_gpu_hour=None)], MIG)
    assert found.saving_per_month is None


@pytest.mark.parametrize(
    ("after", "days", "verdict", "saved"),
    [
        # Before: 72 a day of 30 days, 2,190 a month; promised 1,000.
        ("360", 10, FollowUpOutcome.CAME, "1095.00"),
        ("580", 10, FollowUpOutcome.PARTLY, "425.83"),
        ("720", 10, FollowUpOutcome.DID_NOT, "0.00"),
        ("900", 10, FollowUpOutcome.DID_NOT, "-547.50"),
        ("0", 6, FollowUpOutcome.TOO_EARLY, None),
    ],
)
def test_whether_the_saving_came(
    after: str, days: int, verdict: FollowUpOutcome, saved: str | None
) -> None:
    found = follow_up(
        promised=Decimal(1000),
        cost_before=Decimal(2160),
        days_before=Decimal(30),
        cost_after=Decimal(after),
        days_after=Decimal(days),
    )
    assert found.verdict is verdict
    assert ((found.saved_per_month is not None and str(found.saved_per_month)) or None) == saved

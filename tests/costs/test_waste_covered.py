"""Waste covered: each GPU-hour once, never more than there is, and why not the rest."""

from collections import defaultdict
from decimal import Decimal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.clusters.domain.names import family_of, stem_of
from apps.clusters.models import Tier
from apps.costs.domain.recommendations import Offers, RecommendationKind, for_workloads
from apps.costs.domain.recommendations.capacity import (
    HoursEvidence,
    LendingEvidence,
    empty_hours,
    lend_quota,
)
from apps.costs.domain.recommendations.evidence import GpuPart, QuotaEvidence
from apps.costs.domain.recommendations.idle_time import (
    ServiceEvidence,
    TimeoutEvidence,
    idle_timeout,
    scale_to_demand,
)
from apps.costs.domain.recommendations.recommendation import (
    RISKS,
    Confidence,
    CoverageGap,
    Finding,
    Rating,
    Saving,
    Subject,
    WasteCell,
    avoided,
    cell_name,
    every_waste,
    together,
)
from apps.costs.models import WasteSum
from apps.costs.services.recommendation_run import Waste, WasteOwner
from tests.costs.evidence import A100, JOB, PRICE

NAMES = st.sampled_from(["ml|Job/a|A100|spot", "ml|Job/b|A100|spot", "||A100|spot"])
CAUSES = st.sampled_from(["idle", "underused", "unallocated"])
WASTE = st.dictionaries(st.builds(WasteCell, NAMES, CAUSES), st.integers(0, 10**14))
FRACTIONS = st.dictionaries(
    NAMES, st.dictionaries(CAUSES, st.floats(-1, 3, allow_nan=False), max_size=3), max_size=3
)


@given(WASTE, st.lists(FRACTIONS, max_size=6))
def test_what_is_covered_is_never_more_than_the_waste_of_any_cause(
    waste: dict[WasteCell, int], found: list[dict[str, dict[str, float]]]
) -> None:
    claims = [avoided(fractions, waste) for fractions in found]
    covered = together(claims)
    assert all(0 < units <= waste[cell] for cell, units in covered.items())
    for cause in ("idle", "underused", "unallocated"):
        of_cause = sum(units for cell, units in covered.items() if cell.cause == cause)
        assert of_cause <= sum(units for cell, units in waste.items() if cell.cause == cause)
    assert together([*claims, *claims]) == covered, "the same twice covers no more"
    assert together(reversed(claims)) == covered


OWNERS = st.builds(
    WasteOwner, st.sampled_from([None, 1, 2]), st.sampled_from([1, 2]), st.just("USD")
)
UNSURE = Rating(Confidence.LOW, "")
FOUND = st.builds(
    replace,
    st.sampled_from(
        [
            Finding(kind, Subject("west"), "", Saving(1.0, PRICE), "USD", UNSURE, {})
            for kind in RecommendationKind
        ]
    ),
    cells=FRACTIONS,
)


@given(st.dictionaries(OWNERS, WASTE), st.lists(st.tuples(OWNERS, FOUND), max_size=8))
def test_no_kind_covers_more_than_the_waste_of_a_team_tier_and_cause(
    wasted: dict[WasteOwner, dict[WasteCell, int]], found: list[tuple[WasteOwner, Finding]]
) -> None:
    of_tiers = {tier: Waste(Tier(pk=tier)) for tier in (1, 2)}
    for of, cells in wasted.items():
        of_tiers[of.tier].cells[of] = cells
    for tier, waste in of_tiers.items():
        claims = [(of, waste.covers(one, of.team)) for of, one in found if of.tier == tier]
        sums: dict[tuple[WasteOwner, str], dict[str, int]] = defaultdict(dict)
        for of, cause, reason, units in waste.sums(claims):
            sums[of, cause][reason] = units
        for of, cells in waste.cells.items():
            for cause in {cell.cause for cell in cells}:
                whole = sum(units for cell, units in cells.items() if cell.cause == cause)
                assert sum(sums[of, cause].values()) == whole
                assert 0 <= sums[of, cause].get(WasteSum.COVERED, 0) <= whole


def test_of_two_that_avoid_the_same_the_larger_part_counts() -> None:
    cell = WasteCell("ml|Job/a|A100|spot", "idle")
    waste = {cell: 1000}
    claims = [avoided({cell.name: {"idle": part}}, waste) for part in (0.3, 0.5)]
    assert together(claims) == {cell: 500}


def test_a_fraction_is_of_every_cause_of_what_is_held() -> None:
    assert every_waste(0.25) == {"idle": 0.25, "underused": 0.25, "not_running": 0.25}
    assert set(every_waste(7.0).values()) == {1.0}


def test_every_kind_has_a_risk() -> None:
    assert set(RISKS) == set(RecommendationKind)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("eval-1731974400", "eval"),
        ("eval-x7k2p", "eval"),
        ("sweep-lr-3", "sweep-lr"),
        ("train-2026-11-02-f3a91c", "train"),
        ("resnet50", "resnet50"),
        ("whisper-sweep-whole-a100", "whisper-sweep-whole-a100"),
        ("12345", "12345"),
        ("a.b_77", "a.b"),
    ],
)
def test_a_stem_is_a_name_without_what_makes_it_unique(name: str, stem: str) -> None:
    assert stem_of(name) == stem
    assert family_of("Job", name) == (name if stem == name else f"{stem}-*")


@pytest.mark.parametrize(
    ("name", "family"), [("notebook-ada", "notebook-*"), ("vllm", "vllm"), ("--", "--")]
)
def test_what_stays_is_of_the_family_of_its_first_word(name: str, family: str) -> None:
    assert family_of("StatefulSet", name) == family


# ---------------------------------------------------------------- who is left alone


@pytest.mark.parametrize(
    ("change", "gap"),
    [
        ({"over": True}, CoverageGap.ENDED),
        ({"measured_days": 3}, CoverageGap.TOO_SHORT),
        ({"coverage": 0.5}, CoverageGap.NO_METRICS),
        ({"coverage": None}, CoverageGap.NO_METRICS),
        ({"mean_activity": 0.85}, CoverageGap.WELL_USED),
        ({}, None),
    ],
    ids=["ended", "too short", "half measured", "not measured", "well used", "none"],
)
def test_why_rules_pass_a_workload_over(change: dict[str, object], gap: CoverageGap | None) -> None:
    one = replace(JOB, **change)  # type: ignore[arg-type]
    assert one.gap is gap
    assert one.is_enough is (gap is None)


def test_nothing_is_recommended_for_a_workload_that_is_well_used() -> None:
    quiet = replace(JOB, head_gpu_hours=90.0, tail_gpu_hours=90.0, waste_gpu_hours=200.0)
    assert for_workloads([quiet], Offers())
    assert not for_workloads([replace(quiet, mean_activity=0.8)], Offers())


# ---------------------------------------------------------------- quiet starts and ends


def test_a_quiet_start_and_a_quiet_end_are_told_with_their_part_of_the_waste() -> None:
    one = replace(JOB, head_gpu_hours=72.0, tail_gpu_hours=36.0, waste_gpu_hours=216.0)
    start, end = for_workloads([one], Offers())
    assert (start.kind, end.kind) == (RecommendationKind.IDLE_START, RecommendationKind.IDLE_END)
    assert start.saving_per_month == (Decimal("73") * PRICE).quantize(Decimal("0.01"))
    assert start.cells[one.cell]["idle"] == pytest.approx(1 / 3)
    assert "initContainers" in start.patch
    assert "activeDeadlineSeconds" in end.patch
    assert end.cells[one.cell]["underused"] == pytest.approx(1 / 6)
    service = replace(one, owner_kind="Deployment")
    assert [found.patch for found in for_workloads([service], Offers())][1] == ""


def test_short_quiet_starts_are_not_worth_a_word() -> None:
    assert not for_workloads([replace(JOB, head_gpu_hours=1.0, waste_gpu_hours=9.0)], Offers())


# ---------------------------------------------------------------- idle time-out

TIMEOUT = TimeoutEvidence(
    subject=Subject("west", workload="Team/vision", tier="exclusive-a100"),
    days=30.0,
    coverage=1.0,
    freed={JOB.cell: 48.0, "other": 0.0},
    waste={JOB.cell: 96.0},
    hit={"Job/train": 2, "StatefulSet/notebook-ada": 1, "Deployment/api": 1},
    could_have_run=12.0,
    worth=Decimal("146.88"),
    currency="USD",
)


def test_a_time_out_tells_what_it_frees_whom_it_hits_and_what_could_have_run() -> None:
    found = idle_timeout(TIMEOUT)
    assert found is not None
    assert found.saving_per_month == Decimal("148.92")
    assert found.cells == {JOB.cell: {"idle": 0.5, "underused": 0.5}}
    assert found.evidence["workloads_hit"] == 3
    assert found.evidence["pending_gpu_hours_at_most"] == 12.0


def test_a_time_out_comes_as_manifests_of_what_stops_notebooks_and_services() -> None:
    found = idle_timeout(TIMEOUT)
    assert found is not None
    culler, scaled = yaml.safe_load_all(found.patch)
    assert culler["kind"] == "ConfigMap"
    assert culler["data"]["CULL_IDLE_TIME"] == "60"
    assert scaled["kind"] == "ScaledObject"
    assert scaled["spec"]["scaleTargetRef"] == {"kind": "Deployment", "name": "api"}
    assert scaled["spec"]["cooldownPeriod"] == 3600
    jobs = idle_timeout(replace(TIMEOUT, hit={"Job/train": 2}))
    assert jobs is not None
    assert jobs.patch == ""


def test_a_time_out_without_prices_or_pending_work_says_less() -> None:
    found = idle_timeout(replace(TIMEOUT, worth=None, could_have_run=None))
    assert found is not None
    assert found.saving_per_month is None
    assert "pending_gpu_hours_at_most" not in found.evidence
    assert idle_timeout(replace(TIMEOUT, freed={})) is None
    assert idle_timeout(replace(TIMEOUT, days=3.0)) is None


# ---------------------------------------------------------------- services

SERVICE = replace(
    JOB,
    subject=Subject("west", "vision", "Deployment/api", "exclusive-a100"),
    owner_kind="Deployment",
    gpu_hours=4 * 720.0,
    waste_gpu_hours=4 * 360.0,
    mean_activity=0.5,
)


def pattern(active: list[float], held: float = 4.0, **more: object) -> ServiceEvidence:
    return ServiceEvidence(
        **{
            "of": SERVICE,
            "per_replica": 1.0,
            "held": {hour: [held] * 14 for hour in range(24)},
            "active": {hour: [active[hour]] * 14 for hour in range(24)},
            **more,
        }  # type: ignore[arg-type]
    )


def test_a_service_scaled_for_its_peak_is_told_the_replicas_of_each_hour() -> None:
    found = scale_to_demand(pattern([0.5] * 8 + [3.0] * 12 + [0.5] * 4))
    assert found is not None
    assert "1 from 20:00 to 08:00" in found.change
    assert "4 from 08:00 to 20:00" in found.change
    assert found.saving_per_month == (Decimal(4 * 730 * 36) / 96 * PRICE).quantize(Decimal("0.01"))
    assert "kind: ScaledObject" in found.patch
    assert "desiredReplicas: '4'" in found.patch
    assert found.cells[SERVICE.cell]["idle"] == pytest.approx(0.75)


def test_a_service_of_even_days_is_told_how_many_replicas_are_enough() -> None:
    found = scale_to_demand(pattern([1.0] * 24))
    assert found is not None
    assert "at most 2 all day" in found.change
    assert "triggers: []" in found.patch


@pytest.mark.parametrize(
    "one",
    [
        pattern([3.5] * 24),
        pattern([0.5] * 24, held=1.0),
        pattern([0.5] * 24, of=JOB),
        pattern([0.5] * 24, of=replace(SERVICE, mean_activity=0.9)),
        pattern([0.5] * 24, per_replica=0.0),
        replace(pattern([0.5] * 24), held={1: [4.0]}),
    ],
    ids=["needed", "one replica", "a job", "well used", "no replica", "not all hours"],
)
def test_services_that_are_left_as_they_are(one: ServiceEvidence) -> None:
    assert scale_to_demand(one) is None


# ---------------------------------------------------------------- empty hours

EMPTY_POOL = cell_name("", "", A100, "on-demand")
NIGHTS = HoursEvidence(
    subject=Subject("west", workload=f"Pool/on-demand/{A100}", tier="exclusive-a100"),
    gpu_model=A100,
    capacity_type="on-demand",
    empty={
        (weekend, hour): [4.0 if weekend or hour < 6 else 0.5] * (8 if weekend else 22)
        for weekend in (False, True)
        for hour in range(24)
    },
    days=30.0,
    coverage=1.0,
    price_per_gpu_hour=PRICE,
    currency="USD",
)


def test_capacity_that_stands_empty_at_night_and_at_weekends() -> None:
    found = empty_hours(NIGHTS)
    assert found is not None
    assert "0 to 4 GPUs on weekdays, most at 00:00" in found.change
    assert "4 GPUs on weekends" in found.change
    usual = 22 * 6 * 4 + 8 * 24 * 4
    whole = usual + 22 * 18 * 0.5
    assert found.cells[EMPTY_POOL]["unallocated"] == pytest.approx(usual / whole)
    assert found.saving_per_month == (Decimal(usual) / (30 * 24) * 730 * PRICE).quantize(
        Decimal("0.01")
    )
    pool = yaml.safe_load(found.patch)
    assert (pool["kind"], pool["spec"]["disruption"]["consolidationPolicy"]) == (
        "NodePool",
        "WhenEmpty",
    )
    stranded = empty_hours(replace(NIGHTS, stranded_gpu_hours=100.0))
    assert stranded is not None
    assert stranded.cells[EMPTY_POOL]["unallocated"] == pytest.approx(usual / (whole + 100))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"owned": True}, "owned GPUs"),
        ({"capacity_type": "reserved"}, "until the term ends"),
        ({"pending_gpu_hours": 200.0}, "was pending in the same hours"),
    ],
)
def test_empty_hours_of_low_confidence(change: dict[str, object], words: str) -> None:
    found = empty_hours(replace(NIGHTS, **change))  # type: ignore[arg-type]
    assert found is not None
    assert found.rating.confidence.value == "low"
    assert words in found.rating.reason
    assert ("First admit pending work: up to 200 GPU-hours" in found.change) is (
        "pending_gpu_hours" in change
    )


def test_of_hours_with_few_days_only_what_no_hour_needed_is_told() -> None:
    """A week has two days of a weekend: too few to tell what is usual on them."""
    week = {
        (weekend, hour): [9.0 if weekend or hour < 6 else 3.5] * (2 if weekend else 5)
        for weekend, hour in NIGHTS.empty
    }
    found = empty_hours(replace(NIGHTS, empty=week, days=7.0))
    assert found is not None
    assert "3 to 9 GPUs on weekdays" in found.change
    assert "3 GPUs on weekends" in found.change
    assert found.evidence["always_empty_gpus"] == 3


@pytest.mark.parametrize(
    "change",
    [
        {"days": 3.0},
        {"empty": {}},
        {"empty": {at: [4.0] for at in NIGHTS.empty}},
        {"empty": {at: [0.5] * 8 for at in NIGHTS.empty}},
    ],
    ids=["few days", "no hours", "seen once", "less than a GPU"],
)
def test_hours_of_which_nothing_is_said(change: dict[str, object]) -> None:
    assert empty_hours(replace(NIGHTS, **change)) is None  # type: ignore[arg-type]


# ---------------------------------------------------------------- quota

HELD_QUOTA = QuotaEvidence(
    subject=Subject("west", "vision", "ResourceQuota/gpus", "exclusive-a100"),
    key="requests.nvidia.com/gpu",
    hard=16.0,
    peak_used=16.0,
    days=30.0,
    coverage=1.0,
    price_per_gpu_hour=PRICE,
    currency="USD",
)
LENDING = LendingEvidence(HELD_QUOTA, 5.0, free_unit_hours=1000.0, pending_unit_hours=72.0)


def test_quota_that_is_free_while_others_wait_is_to_be_lent() -> None:
    found = lend_quota(LENDING)
    assert found is not None
    assert found.change.startswith("Lend 10 of 16")
    assert found.saving_per_month == Decimal("223.38")
    assert "lendingLimit: 10" in found.patch
    assert not found.cells, "quota costs nothing by itself"


@pytest.mark.parametrize(
    "change",
    [{"of": replace(HELD_QUOTA, days=3.0)}, {"pending_unit_hours": 0.0}, {"usual_used": 15.0}],
    ids=["few days", "nobody waits", "it is used"],
)
def test_quota_that_stays_with_its_owner(change: dict[str, object]) -> None:
    assert lend_quota(replace(LENDING, **change)) is None  # type: ignore[arg-type]


# ---------------------------------------------------------------- a part of another GPU

T4 = "NVIDIA-T4"
HALF_A30 = GpuPart(
    tier="mig-a30",
    gpu_model="NVIDIA-A30",
    share=0.5,
    memory_mib=11_000.0,
    price_per_gpu_hour=Decimal("1.25"),
    currency="USD",
    is_mig=True,
    resource="nvidia.com/gpu",
)
LIGHT = replace(
    JOB, mean_activity=0.1, p95_activity=0.15, memory_peak_mib=8_000, waste_gpu_hours=648.0
)


def of_kind(kind: RecommendationKind, part: GpuPart, **change: object) -> object:
    one = replace(LIGHT, **change)  # type: ignore[arg-type]
    found = for_workloads([one], Offers(parts=[part]))
    return next((r for r in found if r.kind is kind and part.tier in r.change), None)


def test_low_activity_and_little_memory_fit_a_part_of_another_model() -> None:
    assert of_kind(RecommendationKind.MIG_PROFILE, HALF_A30)
    shared = replace(HALF_A30, tier="shared-t4", gpu_model=T4, share=0.9, is_mig=False)
    assert of_kind(RecommendationKind.SHARED_TIER, shared)
    assert of_kind(RecommendationKind.MIG_PROFILE, HALF_A30, gpu_model=T4, p95_activity=0.5)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (HALF_A30, {"memory_peak_mib": None}),
        (HALF_A30, {"memory_peak_mib": 10_000}),
        (HALF_A30, {"p95_activity": 0.5}),
        (HALF_A30, {"gpu_model": T4, "p95_activity": 0.51}),
        (HALF_A30, {"price_per_gpu_hour": None}),
        (HALF_A30, {"units": 2}),
        (replace(HALF_A30, currency="EUR"), {}),
        (replace(HALF_A30, gpu_model=A100), {}),
        (replace(HALF_A30, gpu_model="Unknown"), {}),
        (replace(HALF_A30, price_per_gpu_hour=Decimal(9)), {}),
    ],
    ids=[
        *("memory not known", "too little memory", "too slow", "active", "no price", "two GPUs"),
        *("another currency", "its own model", "speed not known", "dearer"),
    ],
)
def test_work_that_stays_on_its_gpu(part: GpuPart, change: dict[str, object]) -> None:
    assert of_kind(RecommendationKind.MIG_PROFILE, part, **change) is None

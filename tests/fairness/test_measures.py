"""The small measures: denied, indices, usage factor, dominant share and waits."""

from collections import Counter

import numpy as np
import pytest

from apps.fairness.domain.measures import TierSlots, integrate, measure
from apps.fairness.domain.queue_times import QueueTimes
from apps.fairness.domain.shares import (
    HALF_LIFE_SECONDS,
    DominantTier,
    borrowable,
    decayed,
    denied,
    dominant_shares,
    jain,
    jain_allocation_ratio,
    jain_index,
    usage_factors,
)
from tests.fairness.tiers import random_slots, slots


class TestDenied:
    @pytest.mark.parametrize(
        ("pending", "share", "held", "expected"),
        [
            pytest.param(4, 8, 6, 2, id="up-to-the-fair-share"),
            pytest.param(1, 8, 6, 1, id="no-more-than-waits"),
            pytest.param(4, 6, 6, 0, id="waiting-above-the-share-is-no-denial"),
            pytest.param(4, 6, 8, 0, id="who-borrows-is-denied-nothing"),
            pytest.param(0, 8, 2, 0, id="who-does-not-ask-is-denied-nothing"),
        ],
    )
    def test_is_what_the_share_had_room_for(
        self, pending: float, share: float, held: float, expected: float
    ) -> None:
        assert denied(pending=[pending], fair_share=[share], held=[held]) == [expected]


class TestIndices:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            pytest.param([3, 3, 3], 1.0, id="all-alike"),
            pytest.param([1, 0, 0, 0], 0.25, id="one-has-all"),
            pytest.param([1, 2, 3], 36 / 42, id="in-between"),
            pytest.param([1e-300, 1e-300], 1.0, id="tiny"),
            pytest.param([1e300, 1e300], 1.0, id="huge"),
            pytest.param([0, 0], None, id="all-nothing"),
            pytest.param([], None, id="nobody"),
        ],
    )
    def test_jain(self, values: list[float], expected: float | None) -> None:
        assert jain(values) == (expected if expected is None else pytest.approx(expected))

    def test_the_index_is_of_those_with_demand(self) -> None:
        index = jain_index(allocated=[4, 4, 0], fair_share=[4, 8, 0], demand=[4, 9, 0])
        assert index == pytest.approx(1.5**2 / (2 * 1.25))

    def test_the_dust_of_a_share_of_nothing_does_not_drown_the_others(self) -> None:
        index = jain_index(allocated=[8, 4, 5], fair_share=[8, 4, 1e-15], demand=[8, 4, 5])
        assert index == 1.0

    def test_there_is_no_index_where_nobody_asks(self) -> None:
        assert jain_index(allocated=[0, 0], fair_share=[0, 0], demand=[0, 0]) is None

    def test_the_ratio_leaves_out_who_is_entitled_to_nothing(self) -> None:
        assert jain_allocation_ratio(allocated=[4, 2, 9], entitlement=[8, 4, 0]) == 1.0
        assert jain_allocation_ratio(allocated=[9], entitlement=[0]) is None

    def test_borrowable_is_what_lies_idle_beside_those_who_wait(self) -> None:
        # The waiting team's own idle GPUs are no offer; nor is what another borrowed.
        found = borrowable(
            held=[[2, 1, 6], [2, 4, 4], [0, 0, 0]],
            entitlement=[4, 4, 4],
            pending=[[2, 0, 0], [2, 0, 0], [0, 0, 0]],
        )
        assert found.tolist() == [2.0, 0.0, 0.0]


class TestUsageFactor:
    def test_usage_counts_half_after_each_half_life(self) -> None:
        ages = [0, HALF_LIFE_SECONDS, 2 * HALF_LIFE_SECONDS]
        assert decayed([[8, 0], [8, 4], [8, 0]], ages).tolist() == [14, 2]

    def test_what_was_decayed_before_decays_on(self) -> None:
        at_once = decayed([[8, 1], [4, 2]], [10 * 86400, 3 * 86400])
        before = decayed([[8, 1], [4, 2]], [7 * 86400, 0])
        assert decayed([before], [3 * 86400]) == pytest.approx(at_once)

    @pytest.mark.parametrize(
        ("used", "entitled", "expected"),
        [
            pytest.param([5, 5], [1, 1], [0.5, 0.5], id="each-its-share"),
            pytest.param([0, 9], [1, 1], [1.0, 0.25], id="one-used-twice-its-share"),
            pytest.param([3, 1], [3, 0], [2**-0.75, 0.0], id="no-share-no-factor"),
            pytest.param([0, 0], [1, 1], [1.0, 1.0], id="nothing-used-yet"),
        ],
    )
    def test_factors_are_those_of_slurm(
        self, used: list[float], entitled: list[float], expected: list[float]
    ) -> None:
        assert usage_factors(used, entitled) == pytest.approx(expected)

    def test_there_is_none_where_nobody_is_entitled(self) -> None:
        assert usage_factors([1, 2], [0, 0]) is None


class TestDominant:
    def test_share_is_of_the_tier_held_most_of(self) -> None:
        shares = dominant_shares([[4, 0, 0], [2, 14, 0]], [16, 28])
        assert shares == [DominantTier(0.25, 0), DominantTier(0.5, 1), DominantTier(0.0, None)]

    def test_the_first_of_equal_tiers_counts(self) -> None:
        assert dominant_shares([[1], [2]], [4, 8]) == [DominantTier(0.25, 0)]

    def test_a_tier_without_capacity_is_nobodys_dominant(self) -> None:
        assert dominant_shares([[3], [1]], [0, 8]) == [DominantTier(0.125, 1)]

    def test_without_tiers_nobody_has_any(self) -> None:
        assert dominant_shares(np.zeros((0, 2)), []) == [DominantTier(0.0, None)] * 2


class TestWaits:
    def test_percentiles_are_waits_that_somebody_had(self) -> None:
        assert QueueTimes(Counter([40, 10, 20, 30])).percentiles() == (20, 40)

    def test_nothing_ended_gives_no_percentile(self) -> None:
        assert QueueTimes(waiting_now=3).percentiles() == (None, None)


class TestIntegration:
    def test_parts_of_a_window_sum_to_the_whole(self) -> None:
        tier = random_slots(5, count=48, teams=6, capacity=40.0)
        whole = integrate(measure(tier))
        parts = [integrate(measure(_part(tier, i, i + 12))) for i in range(0, 48, 12)]
        for name in ("fair_share", "allocated", "borrowed", "lent", "denied", "demand"):
            summed = sum(getattr(part, name) for part in parts)
            assert getattr(whole, name) == pytest.approx(summed)
        assert whole.borrowable == pytest.approx(sum(part.borrowable for part in parts))

    def test_an_entitlement_that_changes_in_mid_hour_counts_from_then_on(self) -> None:
        tier = slots(held=[[8, 8]] * 2, pending=[[4, 4]] * 2, entitlement=[8, 8], capacity=16)
        tier.entitlement[1] = tier.weight[1] = [12, 4]
        sums = integrate(measure(tier))
        assert sums.entitlement.tolist() == [10, 6]
        assert sums.fair_share.tolist() == [10, 6]
        assert sums.denied.tolist() == [2, 0]
        assert sums.borrowed.tolist() == [0, 2]
        assert sums.overdrawn == 2

    def test_pods_of_a_tier_that_lost_gpus_stay_in_its_demand(self) -> None:
        sums = integrate(
            measure(slots(held=[[12]], pending=[[9]], entitlement=[8], capacity=8, hours=1))
        )
        assert sums.demand.tolist() == [12]
        assert sums.fair_share.tolist() == [8]
        assert sums.denied.tolist() == [0]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            pytest.param({"capacity": np.ones(3)}, "hours and capacity", id="slots-differ"),
            pytest.param({"pending": np.ones((2, 3))}, "slot and team", id="teams-differ"),
            pytest.param({"held": np.full((2, 2), np.nan)}, "held", id="no-number"),
        ],
    )
    def test_shapes_that_do_not_fit_are_refused(
        self, change: dict[str, np.ndarray], message: str
    ) -> None:
        tier = {
            "hours": np.ones(2),
            "capacity": np.ones(2),
            **{name: np.ones((2, 2)) for name in ("entitlement", "weight", "held", "pending")},
        }
        with pytest.raises(ValueError, match=message):
            TierSlots(**{**tier, **change})


def _part(tier: TierSlots, start: int, end: int) -> TierSlots:
    names = ("hours", "capacity", "entitlement", "weight", "held", "pending")
    return TierSlots(**{name: getattr(tier, name)[start:end] for name in names})

"""What-if: changes of the layout, and the same demand before and after them."""

import numpy as np
import pytest

from apps.planning.domain.replay import (
    AddGpus,
    ChangeImpossible,
    Entitle,
    MoveGpus,
    MoveWork,
    ReplayWork,
    TierPlan,
    WhatIfChange,
    changed,
)
from apps.planning.domain.what_if import ASSUMPTIONS, replay_changes

HOUR = 3600.0
EDGES = [i * 1800.0 for i in range(21)]
LAYOUT = {
    "whole": TierPlan(8, {"vision": 4, "speech": 4}),
    "1g.10gb": TierPlan(1, {"vision": 1}, {"vision": 3.0}),
}


class TestLayout:
    @pytest.mark.parametrize(
        ("change", "text"),
        [
            pytest.param(AddGpus("whole", 4), "+4 GPUs in whole", id="add"),
            pytest.param(AddGpus("whole", -2), "-2 GPUs in whole", id="take"),
            pytest.param(
                Entitle("nlp", "whole", 2.5), "nlp entitled to 2.5 in whole", id="entitle"
            ),
            pytest.param(
                MoveGpus(8, "whole", "1g.10gb"), "move 8 GPUs from whole to 1g.10gb", id="move"
            ),
            pytest.param(
                MoveWork("nlp", "whole", "1g.10gb", 0.5),
                "nlp's work of whole asks in 1g.10gb, 0.5 GPUs for each it asked for",
                id="work",
            ),
        ],
    )
    def test_a_change_says_what_it_is(self, change: WhatIfChange, text: str) -> None:
        assert str(change) == text

    def test_changes_come_one_after_another(self) -> None:
        after = changed(LAYOUT, [AddGpus("whole", 4), MoveGpus(7, "whole", "1g.10gb", 6 / 7)])
        assert (after["whole"].capacity, after["1g.10gb"].capacity) == (5, 7)
        assert LAYOUT["whole"].capacity == 8

    def test_a_weight_follows_its_entitlement(self) -> None:
        after = changed(LAYOUT, [Entitle("vision", "1g.10gb", 2), Entitle("nlp", "1g.10gb", 4)])
        assert after["1g.10gb"].weights == {"vision": 6.0, "nlp": 4}
        assert changed(LAYOUT, [Entitle("nlp", "whole", 4)])["whole"].weight("nlp") == 4

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            pytest.param(AddGpus("gone", 1), "no tier gone", id="unknown-tier"),
            pytest.param(AddGpus("whole", -9), "whole has 8 GPUs", id="more-than-there-is"),
            pytest.param(MoveGpus(9, "whole", "1g.10gb"), "whole has 8", id="too-many-cards"),
            pytest.param(MoveGpus(-1, "whole", "1g.10gb"), "other way", id="negative-cards"),
            pytest.param(MoveGpus(1, "whole", "1g.10gb", 2), "usable", id="more-than-a-card"),
            pytest.param(Entitle("vision", "whole", -1), "negative", id="negative-entitlement"),
            pytest.param(MoveWork("nlp", "whole", "gone", 1), "no tier gone", id="work-to-nowhere"),
            pytest.param(MoveWork("nlp", "whole", "whole", 0), "some GPU", id="work-of-nothing"),
        ],
    )
    def test_what_cannot_be_is_refused(self, change: WhatIfChange, reason: str) -> None:
        with pytest.raises(ChangeImpossible, match=reason):
            changed(LAYOUT, [change])


def _work(team: str, gpus: float, at: float, hours: float, *, running: bool = False) -> ReplayWork:
    return ReplayWork(team, "whole", gpus, at * HOUR, hours * HOUR, running=running)


WORKS = [
    _work("speech", 8, -1, 4, running=True),
    _work("vision", 4, 1, 2),
    _work("vision", 4, 2, 2),
    _work("speech", 2, 3, 9),
    _work("vision", 16, 0, 1),
]


def test_more_gpus_end_pending_and_denial() -> None:
    found = replay_changes(WORKS, LAYOUT, [AddGpus("whole", 4)], edges=EDGES)
    before, after = found.before["whole"], found.after["whole"]
    vision = before.teams.index("vision")
    # From 1 h to 4 h speech holds vision's entitlement of 4; from 4 h to 6 h two GPUs are free that
    # vision's second work of 4 has no use for, and its fair share is 6.
    assert before.sums.denied[vision] == pytest.approx(3 * 4 + 2 * 2)
    assert before.waits["vision"].percentiles() == (3 * HOUR, 4 * HOUR)
    # The second work waits from 2 h to 3 h, while speech holds 2 above its fair share of 6.
    assert after.sums.denied[vision] == pytest.approx(1 * 2)
    assert after.waits["vision"].percentiles() == (0, HOUR)
    assert found.changes == ("+4 GPUs in whole",)


def test_it_states_what_it_assumes() -> None:
    plain = replay_changes(WORKS, LAYOUT, [AddGpus("whole", 4)], edges=EDGES)
    assert plain.assumptions == ASSUMPTIONS
    moves: list[WhatIfChange] = [
        MoveGpus(1, "whole", "1g.10gb"),
        MoveWork("vision", "whole", "1g.10gb", 1 / 7),
    ]
    assert (
        len(replay_changes(WORKS, LAYOUT, moves, edges=EDGES).assumptions) == len(ASSUMPTIONS) + 3
    )


def test_no_change_changes_nothing() -> None:
    found = replay_changes(WORKS, LAYOUT, [], edges=EDGES)
    for tier, before in found.before.items():
        after = found.after[tier]
        assert before.waits == after.waits
        assert np.array_equal(before.sums.fair_share, after.sums.fair_share)
        assert np.array_equal(before.sums.denied, after.sums.denied)


def test_a_larger_entitlement_raises_the_fair_share_of_who_asks() -> None:
    changes = [Entitle("vision", "whole", 6), Entitle("speech", "whole", 2)]
    found = replay_changes(WORKS, LAYOUT, changes, edges=EDGES)
    vision = found.before["whole"].teams.index("vision")
    shares = [tiers["whole"].sums.fair_share[vision] for tiers in (found.before, found.after)]
    assert shares[1] > shares[0]


def test_moved_work_asks_in_its_new_tier_and_what_runs_stays() -> None:
    works = [_work("vision", 4, -1, 4, running=True), _work("vision", 1, 1, 2)]
    changes: list[WhatIfChange] = [
        MoveGpus(1, "whole", "1g.10gb"),
        MoveWork("vision", "whole", "1g.10gb", 1 / 7),
    ]
    found = replay_changes(works, LAYOUT, changes, edges=EDGES)
    assert found.after["whole"].sums.allocated.sum() == pytest.approx(16)
    assert found.after["1g.10gb"].sums.allocated.sum() == pytest.approx(2 / 7)
    assert found.after["1g.10gb"].sums.capacity == pytest.approx(20)
    assert found.before["whole"].sums.allocated.sum() == pytest.approx(18)


def test_work_larger_than_its_tier_is_no_demand_and_waits_on() -> None:
    works = [_work("vision", 16, 0, 1)]
    found = replay_changes(works, LAYOUT, [AddGpus("whole", 8)], edges=EDGES)
    assert found.before["whole"].sums.demand.sum() == 0
    assert found.before["whole"].waits["vision"].waiting_now == 1
    assert found.after["whole"].sums.allocated.sum() == pytest.approx(16)


def test_what_ran_before_waited_only_where_it_does_not_fit_any_more() -> None:
    works = [_work("speech", 8, -1, 4, running=True), _work("vision", 4, -1, 1, running=True)]
    found = replay_changes(works, LAYOUT, [AddGpus("whole", 4)], edges=EDGES)
    assert found.before["whole"].waits["vision"].percentiles()[0] == 4 * HOUR
    assert found.after["whole"].waits["vision"].ended.total() == 0


def test_who_gives_up_is_counted_apart() -> None:
    works = [
        _work("speech", 8, 0, 10),
        ReplayWork("vision", "whole", 1, HOUR, HOUR, leaves_at=2 * HOUR),
        ReplayWork("vision", "whole", 1, HOUR, HOUR),
    ]
    waits = replay_changes(works, LAYOUT, [], edges=EDGES).before["whole"].waits["vision"]
    assert (waits.ended.total(), waits.gave_up, waits.waiting_now) == (0, 1, 1)


def test_work_of_an_unknown_tier_is_an_error() -> None:
    with pytest.raises(KeyError):
        replay_changes([ReplayWork("vision", "gone", 1, 0.0)], LAYOUT, [], edges=EDGES)

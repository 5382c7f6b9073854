"""What a change would do: promises, borrowing, cost, starts."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.audit import canonical
from apps.quota_requests.domain.limit_effects import (
    BlockedWork,
    CohortShare,
    QuotaCommitment,
    TierCapacity,
    borrowing,
    overcommitment,
    together,
    would_start,
)
from apps.quota_requests.domain.quantities import Quantity, quantity, stored
from apps.quota_requests.domain.snapshots import KeyState, cost_ceiling, preview, time_box

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SIX, EIGHT, TEN = quantity("6"), quantity("8"), quantity("10")


def tier(
    name: str = "a100",
    *,
    capacity: float | None = 32.0,
    weight: float = 1.0,
    price: str | None = "3.06",
) -> TierCapacity:
    return TierCapacity(
        tier=name,
        capacity_units=capacity,
        free_units=3.0,
        weight=weight,
        price_per_gpu_hour=None if price is None else Decimal(price),
        entitlements=(QuotaCommitment("vision", 6.0, ours=True), QuotaCommitment("speech", 25.0)),
    )


@pytest.mark.parametrize(
    ("capacity", "ratio", "over"),
    [(32.0, 33 / 32, True), (33.0, 1.0, False), (None, None, False), (0.0, None, True)],
    ids=["more than there is", "just as much", "not known", "nothing there"],
)
def test_promises_are_summed_against_the_capacity(
    capacity: float | None, ratio: float | None, over: bool
) -> None:
    found = overcommitment(tier(capacity=capacity), before=SIX, after=EIGHT)
    assert (found.before_units, found.after_units) == (31.0, 33.0)
    assert (found.promised_ratio, found.over) == (ratio, over)


PROMISES = (QuotaCommitment("vision", 6.0, ours=True), QuotaCommitment("speech", 25.0))


def test_what_a_key_of_several_tiers_promises_is_counted_once_against_all_of_them() -> None:
    tiers = [tier("a100", capacity=20.0), tier("h100", capacity=12.0)]
    found = together(tiers, PROMISES, before=SIX, after=EIGHT, things="GPUs")
    assert found is not None
    assert (found.before_units, found.after_units, found.capacity_units) == (31.0, 33.0, 32.0)
    assert (found.over, found.was_over, found.crosses) == (True, False, True)
    assert found.sentence == (
        "33 of 32 GPUs of all 2 tiers that this key reaches would be committed (103 %); "
        "before 31 (97 %)."
    )
    assert [overcommitment(one, before=SIX, after=EIGHT).crosses for one in tiers] == [
        False,
        False,
    ], "each alone was over before, and is no news"


def test_together_of_one_tier_is_that_tier() -> None:
    alone, all_of_it = tier(), together([tier()], PROMISES, before=SIX, after=EIGHT)
    own = overcommitment(alone, before=SIX, after=EIGHT)
    assert all_of_it is not None
    assert (all_of_it.after_units, all_of_it.promised_ratio) == (
        own.after_units,
        own.promised_ratio,
    )


def test_without_all_capacities_there_is_no_figure_of_all_tiers() -> None:
    found = together([tier(), tier("new", capacity=None)], PROMISES, before=SIX, after=EIGHT)
    assert found is not None
    assert (found.capacity_units, found.promised_ratio, found.over) == (None, None, False)
    assert "not known" in found.sentence
    assert together([], PROMISES, before=SIX, after=EIGHT) is None


def test_a_raise_takes_the_gpus_that_others_borrowed() -> None:
    shares = [
        CohortShare("ours", 8, 8),
        CohortShare("b", 4, 6),
        CohortShare("c", 4, 0, borrowing_limit=1),
    ]
    found = {room.name: room for room in borrowing(shares, "ours", after=10, capacity=16)}
    # b: GPUs 16 − 4 of its own − 8 of ours − 0 of c; what the others lend while ours is full: 4.
    assert (found["b"].full_before, found["b"].full_after, found["b"].lost) == (4, 2, 2)
    # c may borrow 1 at most, and 16 − 4 − 8 − 4 leaves none even before.
    assert (found["c"].full_before, found["c"].full_after, found["c"].lost) == (0, 0, 0)
    assert [room.name for room in borrowing(shares, "ours", after=10, capacity=16)] == ["b", "c"]


def test_a_decrease_takes_what_was_lent_while_idle() -> None:
    shares = [CohortShare("ours", 8, 0), CohortShare("b", 4, 0)]
    (room,) = borrowing(shares, "ours", after=2, capacity=None)
    assert (room.idle_before, room.idle_after, room.lost) == (8, 2, 6)


def test_a_lending_limit_bounds_what_others_lose() -> None:
    shares = [CohortShare("ours", 8, 0, lending_limit=1), CohortShare("b", 4, 0)]
    (room,) = borrowing(shares, "ours", after=2, capacity=None)
    assert (room.idle_before, room.idle_after, room.lost) == (1, 1, 0)


AMOUNTS = st.floats(min_value=0, max_value=100)
LIMITS = st.none() | AMOUNTS
SHARES = st.lists(st.tuples(AMOUNTS, AMOUNTS, LIMITS, LIMITS), min_size=1, max_size=6)


@given(SHARES, AMOUNTS, st.none() | AMOUNTS)
def test_rooms_are_never_negative_and_never_above_their_limit(
    figures: list[tuple[float, float, float | None, float | None]],
    after: float,
    capacity: float | None,
) -> None:
    shares = [CohortShare(f"q{i}", *figure) for i, figure in enumerate(figures)]
    for room in borrowing(shares, "q0", after=after, capacity=capacity):
        (share,) = (s for s in shares if s.name == room.name)
        values = (room.idle_before, room.idle_after, room.full_before, room.full_after)
        limit = share.borrowing_limit
        assert all(v >= 0 and (limit is None or v <= limit) for v in values)
        assert 0 <= room.lost <= max(values)


def test_the_cost_ceiling_is_the_change_held_all_month() -> None:
    found = cost_ceiling([tier()], before=SIX, after=EIGHT)
    assert found.least == found.most == 2 * Decimal("3.06") * 730


def test_a_key_of_several_tiers_has_a_range_of_cost() -> None:
    tiers = [tier(), tier("h100", price="6.00"), tier("mig", weight=0.5, price="2.00")]
    found = cost_ceiling(tiers, before=SIX, after=EIGHT)
    assert (found.least, found.most) == (Decimal("1460.0"), Decimal("8760.0"))


def test_a_decrease_costs_less() -> None:
    assert cost_ceiling([tier()], before=EIGHT, after=SIX).most == -2 * Decimal("3.06") * 730


@pytest.mark.parametrize(
    ("tiers", "missing"),
    [([tier(), tier("new", price=None)], ("new",)), ([], ())],
    ids=["one without a price", "no tier"],
)
def test_without_all_prices_there_is_no_ceiling(
    tiers: list[TierCapacity], missing: tuple[str, ...]
) -> None:
    found = cost_ceiling(tiers, before=SIX, after=EIGHT)
    assert (found.least, found.most, found.missing) == (None, None, missing)


def held(
    name: str, units: float, pods: int, *, hours: int, other: float | None = None
) -> BlockedWork:
    return BlockedWork(name, name, units, pods, NOON - timedelta(hours=hours), other)


def test_the_longest_pending_starts_first_and_small_work_goes_past_large() -> None:
    waiting = [held("new", 1, 3, hours=1), held("large", 8, 1, hours=9), held("old", 1, 2, hours=5)]
    found = would_start(waiting, used=SIX, after=TEN, free_units=3)
    assert [(s.name, s.admitted, s.free, s.left) for s in found] == [
        ("large", 0, 0, 1),
        ("old", 2, 2, 0),
        ("new", 2, 1, 1),
    ]


@pytest.mark.parametrize(
    ("other", "after", "admitted"),
    [(None, TEN, 4), (1.0, TEN, 1), (None, quantity("4"), 0), (-2.0, TEN, 0)],
    ids=["room for all", "another quota is in the way", "less than is used", "other overdrawn"],
)
def test_all_quotas_have_to_let_a_pod_through(
    other: float | None, after: Quantity, admitted: int
) -> None:
    (found,) = would_start(
        [held("job", 1, 4, hours=1, other=other)], used=SIX, after=after, free_units=None
    )
    assert (found.admitted, found.free, found.left) == (admitted, None, 4 - admitted)


def test_what_is_let_through_whole_is_let_through_whole_or_not_at_all() -> None:
    gang = BlockedWork("gang", "gang", 1.0, 5, NOON - timedelta(hours=9), whole=True)
    small = held("small", 1, 3, hours=1)
    found = would_start([gang, small], used=SIX, after=TEN, free_units=3)
    assert [(s.name, s.admitted, s.free, s.left) for s in found] == [
        ("gang", 0, 0, 5),
        ("small", 3, 3, 0),
    ]
    (first, _) = would_start([gang, small], used=SIX, after=quantity("11"), free_units=3)
    assert (first.admitted, first.free, first.left) == (5, 3, 0)


def test_in_a_strict_queue_nothing_passes_pending_work_in_front() -> None:
    large, small = held("large", 8, 1, hours=1), held("small", 1, 1, hours=9)
    first = BlockedWork("first", "first", 9.0, 1, NOON, priority=5)
    found = would_start([small, large], used=SIX, after=TEN, free_units=9, strict=True)
    assert [(s.name, s.admitted) for s in found] == [("small", 1), ("large", 0)]
    found = would_start([small, first], used=SIX, after=TEN, free_units=9, strict=True)
    assert [(s.name, s.admitted) for s in found] == [("first", 0), ("small", 0)]


def test_work_that_requests_nothing_of_it_is_left_out() -> None:
    assert would_start([held("cpu", 0, 4, hours=1)], used=SIX, after=TEN, free_units=None) == []


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5), st.integers(0, 99)), max_size=8),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_no_more_starts_than_the_limit_and_the_gpus_allow(
    works: list[tuple[int, int, int]], room: int, free: int
) -> None:
    waiting = [held(f"w{i}", u, p, hours=h) for i, (u, p, h) in enumerate(works)]
    units = {work.uid: work.units for work in waiting}
    after = quantity(str(6 + room))
    found = would_start(waiting, used=SIX, after=after, free_units=float(free))
    assert sum(s.admitted * units[s.uid] for s in found) <= room
    assert sum((s.free or 0) * units[s.uid] for s in found) <= free
    for start in found:
        assert start.admitted + start.left == next(w.pods for w in waiting if w.uid == start.uid)


DAYS = timedelta(days=1)


@pytest.mark.parametrize(
    ("length", "announced"),
    [
        pytest.param(30 * DAYS, [23 * DAYS, 29 * DAYS], id="a month"),
        pytest.param(3 * DAYS, [2 * DAYS], id="three days"),
        pytest.param(timedelta(hours=3), [timedelta()], id="three hours"),
    ],
)
def test_the_end_of_a_raise_is_announced(length: timedelta, announced: list[timedelta]) -> None:
    found = time_box(NOON + length, applied_at=NOON)
    assert found is not None
    assert found.reverts_at == NOON + length
    assert list(found.announcements) == [NOON + after for after in announced]


def test_a_raise_without_end_has_no_time_box() -> None:
    assert time_box(None, applied_at=NOON) is None


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(ValueError, match="after its start"):
        time_box(NOON, applied_at=NOON)


def test_the_whole_preview_is_frozen_as_the_audit_can_hold_it() -> None:
    key = KeyState(
        tiers=[tier()],
        used=SIX,
        entitlements=PROMISES,
        waiting=[held("job", 1, 4, hours=1)],
        shares=[CohortShare("ours", 6, 6), CohortShare("b", 25, 0.1 + 0.2)],
        ours="ours",
    )
    kept = json.loads(canonical(stored(preview(key, before=SIX, after=EIGHT))))
    assert kept["promised"][0]["after_units"] == "33"
    assert kept["promised"][0]["over"] is True
    assert kept["together"]["after_units"] == "33"
    assert kept["together"]["was_over"] is False
    assert kept["borrowing"][0]["name"] == "b"
    assert kept["cost_per_month_most"] == "4467.6"
    assert kept["starts"] == [{"name": "job", "admitted": 2, "free": 2, "left": 2}]


def test_a_key_that_reaches_nothing_says_so() -> None:
    found = preview(KeyState(used=SIX), before=SIX, after=EIGHT)
    assert "No tier has GPUs" in found.unreached
    assert stored(found)["cost_per_month_most"] is None


def test_a_capacity_that_is_not_known_everywhere_is_not_known() -> None:
    tiers = [tier(), tier("new", capacity=None)]
    shares = [CohortShare("ours", 6, 6), CohortShare("b", 25, 0), CohortShare("c", 99, 0)]
    key = KeyState(tiers=tiers, used=SIX, shares=shares, ours="ours")
    found = preview(key, before=SIX, after=EIGHT)
    assert {room.name: room.full_after for room in found.borrowing} == {"b": 99, "c": 25}

"""Drift between what was approved and what the cluster shows."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.quota_requests.domain.execution.applied_changes import (
    AppliedLimit,
    DriftKind,
    ObservedLimit,
    drifts,
    last_applied,
)
from apps.quota_requests.domain.quantities import quantity
from apps.quota_requests.domain.targets import QueueCell, QuotaKeyTarget, Target

GPU = QuotaKeyTarget("vision", "gpu", "requests.nvidia.com/gpu")
CELL = QueueCell("cq-a", "a100", "nvidia.com/gpu")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def applied(amount: str, *, request_id: int = 1, at: datetime = NOON) -> AppliedLimit:
    return AppliedLimit(request_id, "west", GPU, quantity(amount), at)


def shown(amount: str | None, *, exists: bool = True, at: datetime = LATER) -> ObservedLimit:
    return ObservedLimit(None if amount is None else quantity(amount), exists, at)


@pytest.mark.parametrize(
    ("now", "kind", "words"),
    [
        pytest.param(
            shown("6"), DriftKind.CHANGED, "8 was approved, the cluster shows 6", id="changed"
        ),
        pytest.param(shown(None), DriftKind.KEY_GONE, "no longer has this limit", id="key gone"),
        pytest.param(
            shown(None, exists=False),
            DriftKind.OBJECT_GONE,
            "no longer has the ResourceQuota",
            id="gone",
        ),
    ],
)
def test_another_value_is_drift(now: ObservedLimit, kind: DriftKind, words: str) -> None:
    (found,) = drifts([applied("8")], {("west", GPU): now})
    assert (found.kind, found.request_id, found.live) == (kind, 1, now.amount)
    assert words in found.sentence


def test_after_it_was_taken_back_nobody_speaks_of_an_approval() -> None:
    back = AppliedLimit(1, "west", GPU, quantity("6"), NOON, back=True)
    (found,) = drifts(
        [applied("8", at=NOON - timedelta(hours=1)), back], {("west", GPU): shown("7")}
    )
    assert found.sentence.endswith("it was reverted to 6, the cluster shows 7.")


@pytest.mark.parametrize(
    "now",
    [
        pytest.param({("west", GPU): shown("8")}, id="the same"),
        pytest.param({("west", GPU): shown("8000m")}, id="the same, written otherwise"),
        pytest.param({}, id="never seen"),
        pytest.param({("east", GPU): shown("6")}, id="another cluster"),
        pytest.param(
            {("west", GPU): shown("6", at=NOON - timedelta(seconds=1))}, id="seen before it"
        ),
    ],
)
def test_what_is_as_approved_or_not_known_is_no_drift(
    now: dict[tuple[str, Target], ObservedLimit],
) -> None:
    assert drifts([applied("8")], now) == []


def test_the_latest_change_of_a_key_counts() -> None:
    changes = [applied("9", request_id=3, at=LATER), applied("8"), applied("7", request_id=2)]
    assert last_applied(changes)["west", GPU].amount == quantity("9")
    assert drifts(changes, {("west", GPU): shown("9")}) == []


def test_drifts_come_in_the_order_of_their_requests() -> None:
    changes = [AppliedLimit(7, "west", CELL, quantity("4"), NOON), applied("8")]
    now: dict[tuple[str, Target], ObservedLimit] = {
        ("west", GPU): shown("6"),
        ("west", CELL): shown("2"),
    }
    assert [drift.request_id for drift in drifts(changes, now)] == [1, 7]

"""How full a key was in an hour: what its quota counted, while it was there."""

import pytest

from apps.clusters.domain.observed.objects import QuotaScope
from apps.quotas.domain.keys import Counting, QuotaRef, QuotaSource
from apps.quotas.domain.saturation import (
    KeyHour,
    KeyIntervals,
    LimitInterval,
    RefusedSpan,
    RequestLife,
    fill,
    fill_queue,
)

GPU = "nvidia.com/gpu"
HOUR = 7200.0
END = HOUR + 3600.0
ID = QuotaRef(QuotaSource.RESOURCE_QUOTA.value, "vision", "gpus", f"requests.{GPU}")


def key(
    *intervals: LimitInterval, effective: bool = True, counting: Counting = Counting.REQUESTS
) -> KeyIntervals:
    return KeyIntervals(
        ID, GPU, counting, effective, list(intervals) or [LimitInterval(0, END + 1, 8.0)]
    )


def pod(
    created: float, bound: float | None = None, ended: float | None = None, *, units: float = 2.0
) -> RequestLife:
    held = () if bound is None else ((bound, ended),)
    return RequestLife({GPU: units}, created, ended, held)


@pytest.mark.parametrize(
    ("life", "used", "held"),
    [
        (pod(0, 0), 2.0, 2.0),
        (pod(0), 2.0, 0.0),
        (pod(0, HOUR + 1800), 2.0, 1.0),
        (pod(HOUR + 900, HOUR + 1800), 1.5, 1.0),
        (pod(0, 0, HOUR + 900), 0.5, 0.5),
        (pod(HOUR + 900, None, HOUR + 1800), 0.5, 0.0),
        (pod(0, 0, HOUR), 0.0, 0.0),
        (pod(END, END), 0.0, 0.0),
    ],
    ids=[
        "bound all along", "waits all along", "bound at half past", "made within", "ends within",
        "refused to wait", "over before", "made after",
    ],
)  # fmt: skip
def test_a_pod_is_used_from_creation_until_it_is_over(
    life: RequestLife, used: float, held: float
) -> None:
    filled = fill(key(), HOUR, [life])
    assert filled == KeyHour(3600, 8, used, held, used - held, 0)


def test_a_limit_that_changes_in_mid_hour_is_its_mean() -> None:
    intervals = LimitInterval(0, HOUR + 900, 4.0), LimitInterval(HOUR + 900, END, 8.0)
    filled = fill(key(*intervals), HOUR, [pod(0, 0)])
    assert filled == KeyHour(3600, 7, 2, 2, 0, 0)


def test_a_deleted_quota_counts_only_while_it_was_there() -> None:
    filled = fill(key(LimitInterval(0, HOUR + 900, 8.0)), HOUR, [pod(0, 0)])
    assert filled == KeyHour(900, 2, 0.5, 0.5, 0, 0)
    assert fill(key(LimitInterval(0, HOUR, 8.0)), HOUR, [pod(0, 0)]) is None


def test_scopes_are_those_of_the_time() -> None:
    high = (QuotaScope("PriorityClass", "In", ("high",)),)
    intervals = LimitInterval(0, HOUR + 1800, 8.0, high), LimitInterval(HOUR + 1800, END, 8.0)
    low = RequestLife({GPU: 2.0}, 0, None, ((0, None),), "low")
    urgent = RequestLife({GPU: 1.0}, 0, None, ((0, None),), "high")
    filled = fill(key(*intervals), HOUR, [low, urgent])
    assert filled is not None
    assert filled.used == 2.0


def test_a_scope_that_the_ledger_cannot_tell_counts() -> None:
    long = LimitInterval(0, END, 8.0, (QuotaScope("NotTerminating"),))
    filled = fill(key(long), HOUR, [pod(0, 0)])
    assert filled is not None
    assert filled.used == 2.0


def test_other_resources_and_claims_are_others() -> None:
    claim = RequestLife({GPU: 3.0}, 0, None, ((0, None),), counting=Counting.CLAIMS)
    mig = RequestLife({"nvidia.com/mig-1g.10gb": 3.0}, 0, None)
    filled = fill(key(), HOUR, [claim, mig])
    assert filled == KeyHour(3600, 8, 0, 0, 0, 0)


def test_an_inert_key_uses_nothing() -> None:
    assert fill(key(effective=False), HOUR, [pod(0, 0)]) == KeyHour(3600, 8, 0, 0, 0, 0)


def test_what_nobody_saw_is_not_known() -> None:
    assert fill(key(), HOUR, [], known=False) == KeyHour(3600, 8)
    assert fill_queue(key(), HOUR, [], [], [], known=False) == KeyHour(3600, 8)


@pytest.mark.parametrize(
    ("refused", "suppressed"),
    [
        (RefusedSpan(GPU, 4, HOUR, None), 4),
        (RefusedSpan(GPU, 4, HOUR - 50, HOUR + 900, ("gpus",)), 1),
        (RefusedSpan(GPU, 4, HOUR, None, ("other",)), 0),
        (RefusedSpan("amd.com/gpu", 4, HOUR, None), 0),
        (RefusedSpan(GPU, 4, END, None), 0),
    ],
    ids=["all along", "a quarter", "by another quota", "of another resource", "later"],
)
def test_what_was_refused_stands_beside_what_is_used(
    refused: RefusedSpan, suppressed: float
) -> None:
    assert fill(key(), HOUR, [pod(0, 0)], [refused]) == KeyHour(3600, 8, 2, 2, 0, suppressed)


def test_a_queue_counts_what_is_admitted_and_pending_work_for_it() -> None:
    filled = fill_queue(
        key(LimitInterval(0, HOUR + 1800, 8.0), LimitInterval(HOUR + 1800, END, 12.0)),
        HOUR,
        taken=[(4, HOUR, None), (2, HOUR - 9, HOUR + 1800)],
        held=[(4, HOUR + 1800, None)],
        waiting=[(3, HOUR + 2700, None)],
    )
    assert filled == KeyHour(3600, 10, 5, 2, 3, 0.75)
    assert fill_queue(key(LimitInterval(0, 1, 8.0)), HOUR, [], [], []) is None

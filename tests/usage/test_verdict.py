from datetime import UTC, datetime, timedelta

import pytest

from apps.usage.domain.attribution.attribute_hour import HourFacts
from apps.usage.domain.collection import CollectionState, due_again, judge, late_recheck
from tests.usage.hours import device, hour_facts, interval, pod

FULL = hour_facts([interval()], [pod()], [device(0, 0.5), device(1, 0.5)])
HALF = hour_facts([interval()], [pod()], [device(0, 0.5)])


@pytest.mark.parametrize(
    ("facts", "without_ledger", "rows", "state", "words"),
    [
        pytest.param(FULL, 0, 2, CollectionState.COMPLETE, "", id="all there"),
        pytest.param(FULL, 1, 2, CollectionState.PARTIAL, "kube-state-metrics", id="ledger gap"),
        pytest.param(HALF, 0, 1, CollectionState.PARTIAL, "50.0% of the running", id="half"),
        pytest.param(HALF, 0, 1, CollectionState.PARTIAL, "most on n1", id="names the node"),
        pytest.param(HALF, 0, 0, CollectionState.PARTIAL, "no device samples at all", id="none"),
        pytest.param(HourFacts(), 2, 0, CollectionState.FAILED, "no longer keeps", id="nothing"),
        pytest.param(HourFacts(), 0, 0, CollectionState.COMPLETE, "", id="scaled to zero"),
    ],
)
def test_an_hour_is_judged_and_says_what_to_do(
    facts: HourFacts, without_ledger: int, rows: int, state: CollectionState, words: str
) -> None:
    verdict = judge(facts, slots_without_ledger=without_ledger, device_rows=rows)
    assert verdict.state is state
    assert words in verdict.error
    assert bool(verdict.error) is (state is not CollectionState.COMPLETE)


NOW = datetime(2026, 11, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "attempts", "partials", "minutes_ago", "due"),
    [
        (CollectionState.WAITING, 5, 0, 0, True),
        (CollectionState.FAILED, 1, 0, 0, False),
        (CollectionState.FAILED, 1, 0, 1, True),
        (CollectionState.FAILED, 4, 0, 7, False),
        (CollectionState.FAILED, 4, 0, 8, True),
        (CollectionState.FAILED, 4000, 0, 29, False),
        (CollectionState.FAILED, 4000, 0, 30, True),
        (CollectionState.PARTIAL, 40, 5, 30, True),
        (CollectionState.PARTIAL, 40, 6, 10_000, False),
    ],
)
def test_waits_between_tries_double_up_to_half_an_hour(
    state: CollectionState, attempts: int, partials: int, minutes_ago: int, *, due: bool
) -> None:
    last = NOW - timedelta(minutes=minutes_ago)
    assert due_again(state, attempts, partials=partials, last=last, now=NOW) is due


@pytest.mark.parametrize(
    ("state", "due"),
    [
        (CollectionState.FAILED, True),
        (CollectionState.PARTIAL, True),
        (CollectionState.COMPLETE, False),
    ],
)
def test_a_try_of_a_clock_that_was_ahead_puts_no_hour_off(
    state: CollectionState, *, due: bool
) -> None:
    last = NOW + timedelta(days=400)
    assert due_again(state, 1, partials=6, last=last, now=NOW) is due


@pytest.mark.parametrize(
    ("coverage", "is_partial", "hours", "again"),
    [
        pytest.param(1.0, False, 1, False, id="whole"),
        pytest.param(None, False, 1, False, id="nothing ran"),
        pytest.param(0.99, False, 1, True, id="samples lack"),
        pytest.param(1.0, True, 1, True, id="pods lack"),
        pytest.param(None, True, 1, True, id="all lacks"),
        pytest.param(0.5, True, 3, False, id="late"),
    ],
)
def test_what_lacks_something_is_looked_at_once_more(
    coverage: float | None, hours: int, *, is_partial: bool, again: bool
) -> None:
    late = timedelta(hours=3)
    now = NOW + timedelta(hours=hours)
    found = late_recheck(NOW, coverage, is_partial=is_partial, late=late, now=now)
    assert found == (NOW + late if again else None)


def test_an_hour_never_tried_is_due() -> None:
    assert due_again(CollectionState.FAILED, 0, last=None, now=NOW)

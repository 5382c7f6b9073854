"""The verdict on a workload: it says what it knows and nothing else."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.costs.domain.person_fix import NOTHING_TO_FIX, JudgedWork, fix_of
from apps.costs.domain.workload_verdict import (
    HourOfWorkload,
    IdleSpan,
    VerdictAction,
    VerdictKind,
    unused_ratio,
    use_of,
    verdict,
)
from apps.usage.domain.amounts import NANO, Amounts

START = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


def held(
    *,
    busy: float = 0,
    idle: float = 0,
    underused: float = 0,
    unmeasured: float = 0,
    not_running: float = 0,
) -> Amounts:
    """Return what was held, in GPU-hours."""
    parts = [round(one * NANO) for one in (busy, idle, underused, unmeasured, not_running)]
    return Amounts(
        allocated=sum(parts),
        busy=parts[0],
        idle=parts[1],
        underused=parts[2],
        unmeasured=parts[3],
        not_running=parts[4],
    )


def hourly(*amounts: Amounts) -> list[HourOfWorkload]:
    return [HourOfWorkload(START + n * HOUR, one) for n, one in enumerate(amounts)]


def whole(hours: list[HourOfWorkload]) -> Amounts:
    found = Amounts()
    for one in hours:
        found.add(one.amounts)
    return found


def longest_idle(hours: list[HourOfWorkload]) -> IdleSpan | None:
    found = use_of(hours)
    assert found is not None
    assert found.whole == whole(hours)
    return found.idle


@pytest.mark.parametrize(
    ("amounts", "kind"),
    [
        (held(), VerdictKind.NOTHING),
        (held(unmeasured=10), VerdictKind.UNKNOWN),
        (held(unmeasured=6, idle=4), VerdictKind.UNKNOWN),
        (held(idle=0.5), VerdictKind.SHORT),
        (held(idle=8, busy=2), VerdictKind.UNUSED),
        (held(idle=3, busy=7), VerdictKind.PARTLY),
        (held(idle=1, busy=9), VerdictKind.USED),
    ],
)
def test_kinds_follow_the_share_that_metrics_tell(amounts: Amounts, kind: VerdictKind) -> None:
    assert verdict(amounts).kind is kind


def test_hours_without_metrics_are_in_no_share() -> None:
    amounts = held(idle=4, busy=4, unmeasured=2)
    assert unused_ratio(amounts) == 0.5
    found = verdict(amounts)
    assert (found.unused, found.no_metrics) == (0.5, 0.2)
    assert unused_ratio(held(unmeasured=3)) is None


def test_without_hours_neither_a_span_nor_an_action_is_told() -> None:
    found = verdict(held(idle=80, busy=20), is_running=True)
    assert (found.idle, found.action) == (None, VerdictAction.NONE)


def test_the_longest_idle_stretch_is_told_with_its_gpus() -> None:
    idle, busy = held(idle=8), held(busy=8)
    hours = hourly(idle, busy, idle, idle, idle, busy)
    assert longest_idle(hours) == IdleSpan(START + 2 * HOUR, START + 5 * HOUR, 8.0)
    assert longest_idle(hourly(idle, idle, busy, idle, idle)) == IdleSpan(
        START, START + 2 * HOUR, 8.0
    )
    assert longest_idle(hourly(idle, busy, idle)) is None
    assert use_of([]) is None


def test_a_gap_ends_an_idle_stretch() -> None:
    first, second, third = hourly(held(idle=1), held(idle=1), held(idle=1))
    assert longest_idle([first, third]) is None
    assert longest_idle([first, second]) is not None


def test_what_is_idle_until_now_and_runs_is_to_be_stopped() -> None:
    # An hour of which nothing was held comes last: it is over, and not the workload's.
    hours = hourly(held(busy=1), held(idle=1), held(idle=1), held())
    assert verdict(whole(hours), use_of(hours), is_running=True).action is VerdictAction.STOP
    assert verdict(whole(hours), use_of(hours), is_running=False).action is VerdictAction.NONE


def test_fewer_gpus_are_advised_where_the_busiest_hour_needs_fewer() -> None:
    hours = hourly(held(busy=2, underused=6), held(busy=1, underused=7))
    assert verdict(whole(hours), use_of(hours)).action is VerdictAction.FEWER
    full = hourly(held(busy=7.5, underused=0.5), held(idle=8), held(idle=8), held(busy=1, idle=7))
    assert verdict(whole(full), use_of(full)).action is VerdictAction.NONE
    unknown = hourly(held(busy=2, underused=6), held(unmeasured=1, underused=7))
    assert verdict(whole(unknown), use_of(unknown)).action is VerdictAction.NONE


def test_pods_that_hold_gpus_without_running_are_to_be_started() -> None:
    hours = hourly(held(not_running=6, idle=2), held(not_running=8))
    assert verdict(whole(hours), use_of(hours)).action is VerdictAction.START
    assert verdict(held(not_running=8)).action is VerdictAction.START
    assert verdict(held(not_running=2, busy=8)).action is VerdictAction.NONE, "it is well used"


def test_what_is_well_used_is_told_to_do_nothing() -> None:
    hours = hourly(held(busy=3, underused=1), held(busy=7, underused=1))
    found = verdict(whole(hours), use_of(hours), is_running=True)
    assert (found.kind, found.action) == (VerdictKind.USED, VerdictAction.NONE)


@pytest.mark.parametrize(
    ("workload", "amounts", "is_idle", "sentence"),
    [
        (
            *("Deployment/bert", held(busy=2, idle=8), False),
            "bert left 8 GPU-h (80 %) unused: run fewer replicas while few requests come.",
        ),
        (
            *("Job/train", held(busy=2, idle=8), False),
            "train left 8 GPU-h (80 %) unused: request fewer GPUs, or free them.",
        ),
        (
            *("Job/train", held(not_running=8), False),
            "train held 8 GPU-h unused without running: fix the start of its pods.",
        ),
        (
            *("StatefulSet/notebook", held(idle=8), True),
            "notebook is idle now: release its GPUs, or say how long you keep them.",
        ),
        ("Job/train", held(busy=9, idle=1), False, NOTHING_TO_FIX),
        ("Job/train", held(), False, NOTHING_TO_FIX),
    ],
)
def test_the_one_fix_of_a_person_fits_the_kind_of_work(
    workload: str, amounts: Amounts, is_idle: bool, sentence: str
) -> None:
    assert fix_of([JudgedWork(workload, amounts, is_idle)]) == sentence


def test_what_is_idle_now_is_fixed_first_and_then_what_left_most_unused() -> None:
    small, large = (JudgedWork(f"Job/{n}", held(busy=1, idle=n)) for n in (4, 9))
    idle = JudgedWork("Job/now", held(idle=2), is_idle=True)
    assert fix_of([small, large, idle]).startswith("now is idle")
    assert fix_of([small, large]).startswith("9 left")

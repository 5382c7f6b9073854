"""Quiet hours of pods: before the work, after it, and in between."""

from apps.usage.domain.activity import PodHourAmounts, QuietTime

GPU_HOUR = 1000


def hour(place: int, busy: int, *, unmeasured: int = 0, not_running: int = 0) -> PodHourAmounts:
    rest = GPU_HOUR - busy - unmeasured - not_running
    return PodHourAmounts(place, not_running, unmeasured, rest, 0, busy)


def quiet(*hours: PodHourAmounts, begins: bool = True, ends: bool = True) -> QuietTime:
    found = QuietTime()
    found.add(hours, begins=begins, ends=ends)
    return found


def test_what_lies_before_the_first_and_after_the_last_active_hour() -> None:
    found = quiet(hour(1, 0), hour(2, 50), hour(3, 900), hour(4, 0), hour(5, 800), hour(6, 20))
    assert (found.head, found.tail) == (1950, 980)


def test_a_pod_that_was_there_before_or_stays_has_no_start_or_end_that_day() -> None:
    found = quiet(hour(0, 0), hour(1, 900), hour(2, 0), begins=False, ends=False)
    assert (found.head, found.tail) == (0, 0)


def test_a_pod_that_never_worked_has_neither_start_nor_end() -> None:
    found = quiet(hour(1, 0), hour(2, 0), hour(3, 0))
    assert (found.head, found.tail) == (0, 0)


def test_what_was_not_measured_is_not_quiet() -> None:
    found = quiet(hour(1, 0, unmeasured=1), hour(2, 900), hour(3, 0, unmeasured=5))
    assert (found.head, found.tail) == (0, 0)
    assert quiet(hour(1, 0), hour(2, 0, unmeasured=1), hour(3, 0)).stopped == 0


def test_a_stop_frees_what_follows_sixty_idle_minutes() -> None:
    found = quiet(hour(3, 0), hour(4, 10), hour(5, 0), hour(6, 500), hour(7, 0))
    assert found.after[3:8] == [0, 990, 1000, 0, 0]
    assert found.stopped == 1


def test_minutes_of_a_first_hour_count() -> None:
    first = PodHourAmounts(1, 50, 0, 250, 0, 0)
    found = quiet(first, hour(2, 0), hour(3, 0))
    assert found.after[1:4] == [0, 250, 1000]


def test_a_gap_a_pod_that_does_not_run_and_a_short_life_stop_nothing() -> None:
    assert quiet(hour(1, 0), hour(3, 0), hour(5, 0)).stopped == 0
    waits = PodHourAmounts(2, GPU_HOUR, 0, 0, 0, 0)
    assert quiet(hour(1, 0), waits, hour(3, 0)).stopped == 0
    assert (
        quiet(PodHourAmounts(1, 0, 0, 100, 0, 0), PodHourAmounts(2, 0, 0, 100, 0, 0)).stopped == 0
    )

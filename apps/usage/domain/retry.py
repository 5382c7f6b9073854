"""When an hour that is not complete is worth another try."""

from datetime import datetime, timedelta

from apps.usage.domain.collection import CollectionState

_FIRST = timedelta(minutes=1)
_LONGEST = timedelta(minutes=30)
_PARTIAL_ATTEMPTS = 6
_DAY = timedelta(days=1)
# Under this coverage samples lack that pods coming and going do not explain.
_WHOLE_FROM = 0.995


def due_again(
    state: CollectionState,
    attempts: int,
    *,
    partials: int = 0,
    last: datetime | None,
    now: datetime,
    again: datetime | None = None,
) -> bool:
    """Say whether to try an hour again that nobody works on.

    Waiting hours are due at once. After a failure the waits double from a minute up to half an
    hour, for as long as the hour lies in the span that gaps are filled in. An hour that was
    partial a few times in a row is left: what an exporter never sent does not come back. From
    `again` on an hour is due once more, whatever its state.
    """
    if state is CollectionState.WAITING or last is None:
        return True
    if again is not None and again <= now:
        return last < again or now >= last + _LONGEST
    if state is CollectionState.COMPLETE:
        return False
    if state is CollectionState.PARTIAL and partials >= _PARTIAL_ATTEMPTS:
        return False
    doubled: int = 2 ** min(max(attempts, 1) - 1, 10)
    return now >= last + min(_FIRST * doubled, _LONGEST)


def next_day(end: datetime, *, retention: timedelta, now: datetime) -> datetime | None:
    """Return when an hour that ended at `end` is tried again, at most once a day.

    None when Prometheus does not keep it until then: what it says then is no longer the hour.
    """
    again = now + _DAY
    return again if again < end + retention else None


def late_look(
    end: datetime, coverage: float | None, *, late: timedelta, now: datetime
) -> datetime | None:
    """Return when to look once more for device samples that came late; None where none lack.

    An hour that is looked at when that time is over is not looked at again.
    """
    if coverage is None or coverage >= _WHOLE_FROM or now >= end + late:
        return None
    return end + late

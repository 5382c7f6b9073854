"""When an hour that is not complete is worth another try."""

from datetime import datetime, timedelta

from apps.usage.domain.collection import CollectionState

_FIRST = timedelta(minutes=1)
_LONGEST = timedelta(minutes=30)
_PARTIAL_ATTEMPTS = 6


def due_again(
    state: CollectionState,
    attempts: int,
    *,
    partials: int = 0,
    last: datetime | None,
    now: datetime,
) -> bool:
    """Say whether to try an hour again that nobody works on.

    Waiting hours are due at once. After a failure the waits double from a minute up to half an
    hour, for as long as the hour lies in the span that gaps are filled in. An hour that was
    partial a few times in a row is left: what an exporter never sent does not come back.
    """
    if state is CollectionState.WAITING or last is None:
        return True
    if state is CollectionState.PARTIAL and partials >= _PARTIAL_ATTEMPTS:
        return False
    doubled: int = 2 ** min(max(attempts, 1) - 1, 10)
    return now >= last + min(_FIRST * doubled, _LONGEST)

"""Whether the replica that pages read from answers, and how far it is behind."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import Error, connections

from apps.operations.domain.findings import Finding
from gpuportal.replica import LAG_SECONDS, REPLICA, has_replica, seconds_behind

_VARIABLE = "GPUPORTAL_DATABASE_READ_URL"


def replica_findings(now: datetime) -> Iterator[Finding]:
    """Yield what is wrong with the replica; nothing where none is named. Two queries.

    A replica of another portal's database is found by its heartbeat too.
    """
    if not has_replica():
        return
    try:
        behind = seconds_behind()
    except Error as error:
        # A broken connection would fail whatever this thread asks later.
        connections[REPLICA].close()
        yield Finding(
            "replica-unavailable",
            "",
            "",
            f"The database of {_VARIABLE} does not answer ({type(error).__name__}). Pages read "
            "from the primary, which has that load too.",
            f"# is it running, and is its address right?\npsql \"${_VARIABLE}\" -c 'SELECT 1'",
            since=now,
        )
        return
    if behind is not None and behind <= LAG_SECONDS:
        return
    lag = "has no heartbeat of this portal" if behind is None else f"is {behind:.0f} s behind"
    yield Finding(
        "replica-behind",
        "",
        "",
        f"The database of {_VARIABLE} {lag}. Pages read from the primary, which has that load too.",
        "# on the replica: does it replay?\n"
        f"psql \"${_VARIABLE}\" -c 'SELECT pg_is_in_recovery(), pg_last_xact_replay_timestamp()'",
        since=now - timedelta(seconds=behind or 0.0),
    )

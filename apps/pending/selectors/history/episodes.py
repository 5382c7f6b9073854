"""Episodes of one thing, for its page and for `why`."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from django.db.models import Case, Q, Value, When

from apps.accounts.permissions import Visibility
from apps.pending.domain.queues.demand import CLUSTER_QUEUE
from apps.pending.models import CauseInterval, Episode
from apps.pending.selectors.context import Context
from apps.pending.selectors.now import COLUMNS, pending_row
from apps.pending.selectors.rows import CauseIntervalRow, EpisodeRow
from apps.pending.selectors.scope import EVERYTHING_WAITING, PendingScope

_MOST = 50


def episodes_of(
    cluster: str,
    uid: str,
    *,
    at: datetime,
    visibility: Visibility,
    context: Context | None = None,
) -> list[EpisodeRow]:
    """Return every episode of a thing with its intervals, newest first, at most 50.

    Empty where there is none, or where the reader does not see its namespace. Six queries, two with
    a context that knows how fresh it is.
    """
    return _episodes(Q(cluster__name=cluster, uid=uid), at, visibility, context)


def find_waiting(
    namespace: str, name: str, *, at: datetime, visibility: Visibility, cluster: str = ""
) -> list[EpisodeRow]:
    """Return the episodes of what is called so, or is of a controller called so; newest first.

    What waits at `at` comes before what is over; at most 50. Six queries, one or four
    where nothing is found.
    """
    where = Q(workload__namespace__name=namespace) & (Q(name=name) | Q(workload__name=name))
    if cluster:
        where &= Q(cluster__name=cluster)
    return _episodes(where, at, visibility, open_first=True)


def _episodes(
    where: Q,
    at: datetime,
    visibility: Visibility,
    context: Context | None = None,
    *,
    open_first: bool = False,
) -> list[EpisodeRow]:
    scope = PendingScope(at, EVERYTHING_WAITING, visibility, context)
    things = Episode.objects.exclude(kind=CLUSTER_QUEUE)
    rows = things.filter(where, scope.condition()).order_by("-since", "pk")
    if open_first:
        is_open = Q(until__isnull=True) | Q(until__gt=at)
        over = Case(When(is_open, then=Value(0)), default=Value(1))
        rows = rows.order_by(over, "-since", "pk")
    found = list(rows.values_list(*COLUMNS, named=True)[:_MOST])
    if not found:
        return []
    intervals = _intervals([row.pk for row in found])
    return [EpisodeRow(pending_row(row, at, scope), tuple(intervals[row.pk])) for row in found]


def _intervals(episodes: Sequence[int]) -> dict[int, list[CauseIntervalRow]]:
    found: dict[int, list[CauseIntervalRow]] = defaultdict(list)
    rows = CauseInterval.objects.filter(episode_id__in=episodes).order_by("start", "pk")
    columns = ("start", "end", "cause", "detail", "message", "counts", "counted")
    for episode_id, *values in rows.values_list("episode_id", *columns):
        found[episode_id].append(CauseIntervalRow(*values))
    return found

"""What waits in all: sums by cause as links that filter, and how fresh all of it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.pending.selectors import PendingSum, RefreshRow
from apps.web.components.formats import duration
from apps.web.components.links import with_query
from apps.web.pending.causes import Badge, badge
from apps.web.pending.query import PendingPageQuery
from apps.web.query_session import QuerySession


@dataclass(frozen=True, slots=True)
class CauseLink:
    """A cause to filter by; `gpus` wait or are held back for it, in so many `things`."""

    label: str
    href: str
    chosen: bool
    gpus: float
    things: int
    badge: Badge | None


@dataclass(frozen=True, slots=True)
class Total:
    """What waits in all: GPUs by what they count as, and the oldest wait in words."""

    pending: float
    suppressed: float
    starting: float
    things: int
    age: str


@dataclass(frozen=True, slots=True)
class Stale:
    """A cluster of which nothing newer than `as_of` is known; `age` empty: nothing ever was."""

    cluster: str
    as_of: datetime | None
    age: str
    error: str


@dataclass(frozen=True, slots=True)
class PendingFreshness:
    """Until when waiting is known: the oldest and the newest `as_of` of the clusters shown."""

    stale: Sequence[Stale]
    oldest: datetime | None
    newest: datetime | None

    @property
    def is_known(self) -> bool:
        """Whether what is shown is all there is: every cluster was looked at lately."""
        return not self.stale and self.oldest is not None


def total_of(sums: Sequence[PendingSum], now: datetime) -> Total:
    """Return the sum of sums."""
    oldest = min((one.oldest_at for one in sums), default=None)
    return Total(
        pending=sum(one.pending for one in sums),
        suppressed=sum(one.suppressed for one in sums),
        starting=sum(one.starting for one in sums),
        things=sum(one.things for one in sums),
        age=duration((now - oldest).total_seconds()) if oldest else "",
    )


def cause_links(
    sums: Sequence[PendingSum], path: str, reading: QuerySession, asked: PendingPageQuery
) -> list[CauseLink]:
    """Return a link per cause that something waits for, all of them first.

    A cause that is chosen has one even where nothing waits for it, so that it can be taken off.
    """
    kept = [*reading.query, *asked.without("cause")]
    by_name = {one.name: one for one in sums}
    every = CauseLink(
        label="all",
        href=with_query(path, kept),
        chosen=not asked.causes,
        gpus=sum(map(_gpus, sums)),
        things=sum(one.things for one in sums),
        badge=None,
    )
    chosen = [name for name in asked.causes if name not in by_name]
    return [
        every,
        *(_link(name, by_name.get(name), path, kept, asked) for name in (*by_name, *chosen)),
    ]


def _link(
    name: str,
    one: PendingSum | None,
    path: str,
    kept: list[tuple[str, str]],
    asked: PendingPageQuery,
) -> CauseLink:
    return CauseLink(
        label=name,
        href=with_query(path, [*kept, ("cause", name)]),
        chosen=name in asked.causes,
        gpus=_gpus(one) if one else 0.0,
        things=one.things if one else 0,
        badge=badge(name, ""),
    )


def _gpus(one: PendingSum) -> float:
    return one.pending + one.suppressed + one.starting


def freshness_of(rows: Sequence[RefreshRow], reading: QuerySession) -> PendingFreshness:
    """Return how fresh the clusters of the reading are.

    A cluster that was never looked at has no row and is stale: nothing is known of it.
    """
    wanted = reading.filters.cluster or reading.clusters
    by_name = {row.cluster: row for row in rows}
    known = [by_name[name] for name in wanted if name in by_name]
    times = [row.as_of for row in known if row.as_of is not None]
    return PendingFreshness(
        stale=[
            _stale(name, by_name.get(name), reading.now)
            for name in wanted
            if name not in by_name or by_name[name].stale
        ],
        oldest=min(times, default=None),
        newest=max(times, default=None),
    )


def _stale(name: str, row: RefreshRow | None, now: datetime) -> Stale:
    as_of = row.as_of if row else None
    age = duration(max(0.0, (now - as_of).total_seconds())) if as_of else ""
    return Stale(name, as_of, age, row.error if row else "")

"""What a change of policies does to each team: the recorded demand replayed with and without it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from apps.planning.domain.cluster_replay.backtest import (
    ALL_TIERS,
    RecordedSpan,
    TierTimes,
    TimesRow,
    WorkTimes,
    replayed_times,
    tier_times,
    times_row,
)
from apps.planning.domain.cluster_replay.engine import idle_cut, replay_cluster
from apps.planning.domain.cluster_replay.inputs import (
    ClusterReplay,
    RecordedWork,
    ReplayAssumption,
    ReplayCluster,
    ReplayPolicy,
)
from apps.planning.domain.policy_change import (
    PolicyChange,
    Shares,
    cluster_with,
    policy_with,
    policy_without,
    with_idle_ends,
)

ALL_TEAMS = ""
"""The team of the sums over all teams."""
_HOUR = 3600.0
_SAME = 0.005
"""GPU-hours of pending work that differ by less read as the same."""


class QueueTimeChange(StrEnum):
    """Whether work of a team is pending for less or more GPU-hours after a change."""

    SHORTER = "shorter"
    LONGER = "longer"
    SAME = "same"


class TeamEffect(Struct, frozen=True):
    """A team in a tier, replayed without and with a change; ALL_TEAMS and ALL_TIERS are sums.

    `freed_gpu_hours` are those after the idle limit ended work, which it would have held.
    """

    team: str
    tier: str
    before: TimesRow
    after: TimesRow
    freed_gpu_hours: float

    @property
    def pending_change(self) -> float:
        """GPU-hours that are pending more after the change; negative for less."""
        return self.after.unmet_gpu_hours - self.before.unmet_gpu_hours

    @property
    def queue_time(self) -> QueueTimeChange:
        if abs(self.pending_change) < _SAME:
            return QueueTimeChange.SAME
        return QueueTimeChange.SHORTER if self.pending_change < 0 else QueueTimeChange.LONGER


class PolicyEffects(Struct, frozen=True):
    """The effects by tier and team, sums first; and what the replay without the change takes for
    granted, and that with it.
    """

    rows: tuple[TeamEffect, ...]
    assumed_before: tuple[ReplayAssumption, ...]
    assumed_after: tuple[ReplayAssumption, ...]


class RecordedWeeks(RecordedSpan, frozen=True):
    """What is replayed, with how long each of the works did nothing until its end.

    `shares` are entitlements and weights now; `policy` is how the cluster is replayed without a
    change.
    """

    idle_seconds: Sequence[float]
    shares: Shares
    policy: ReplayPolicy


def policy_effects(weeks: RecordedWeeks, change: PolicyChange) -> PolicyEffects:
    """Replay recorded weeks without and with a change. Raises PolicyRefused."""
    # The same works for both replays, so that only the change tells them apart.
    works = with_idle_ends(weeks.works, weeks.idle_seconds, change, end=weeks.end)
    now, then = (cluster_with(weeks.cluster, change, after=after) for after in (False, True))
    policy = policy_with(weeks.policy, change, weeks.shares)
    before = _replay(weeks, works, now, policy_without(weeks.policy, change))
    after = _replay(weeks, works, then, policy)
    freed = _freed(weeks, after, policy)
    sums_before, sums_after = _sums(weeks, before), _sums(weeks, after)
    rows = (
        TeamEffect(
            team,
            tier,
            times_row(sums_before[team, tier]),
            times_row(sums_after[team, tier]),
            freed[team, tier],
        )
        for tier, team in sorted((tier, team) for team, tier in sums_before)
    )
    return PolicyEffects(tuple(rows), before.assumptions, after.assumptions)


def _replay(
    weeks: RecordedWeeks,
    works: Sequence[RecordedWork],
    cluster: ReplayCluster,
    policy: ReplayPolicy,
) -> ClusterReplay:
    return replay_cluster(works, cluster, policy, start=weeks.start, end=weeks.end)


def _sums(weeks: RecordedWeeks, found: ClusterReplay) -> Mapping[tuple[str, str], TierTimes]:
    """Return the sums by team and tier."""
    by_team: dict[str, list[WorkTimes]] = defaultdict(list)
    played = replayed_times(found.played, weeks.happened, end=weeks.end)
    for one, times in zip(found.played, played, strict=True):
        for team in (one.work.team, ALL_TEAMS):
            by_team[team].append(times)
    return {
        (team, tier): times
        for team, own in by_team.items()
        for tier, times in tier_times(own, start=weeks.start, end=weeks.end).items()
    }


def _freed(
    weeks: RecordedWeeks, after: ClusterReplay, policy: ReplayPolicy
) -> Mapping[tuple[str, str], float]:
    """Return the GPU-hours by team and tier that ended work would have held in these weeks."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for one, was in zip(after.played, weeks.happened, strict=True):
        cut = idle_cut(one.work, policy)
        # Only work that ended in the replay gave GPUs back; what never ran held none.
        if one.ended_at is None or not one.runs or cut <= 0:
            continue
        # What it would have held after the end of these weeks is not part of them.
        hours = was.gpus * max(0.0, min(cut, weeks.end - one.ended_at)) / _HOUR
        for team in (one.work.team, ALL_TEAMS):
            for tier in (one.work.tier, ALL_TIERS):
                found[team, tier] += hours
    return found


def of_teams(rows: Iterable[TeamEffect]) -> list[TeamEffect]:
    """Return the effects on single teams in single tiers, without sums."""
    return [row for row in rows if row.team != ALL_TEAMS and row.tier != ALL_TIERS]

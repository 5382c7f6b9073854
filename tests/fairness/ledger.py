"""Hours of facts, entitlements and pending work for tests of fairness, in a few words."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, field

from apps.accounts.models import Team
from apps.clusters.models import Cluster, GpuModel, Tier, WatchCoverage
from apps.fairness.models import TeamFairnessHour, TierFairnessHour
from apps.fairness.services.recompute import changed_hours
from apps.quotas.models import Entitlement
from apps.usage.domain.amounts import nano
from apps.usage.models import TeamHour, TierDay, TierHour
from tests.factories import (
    BEGINNING,
    ensure_builtin,
    make_cluster,
    make_model,
    make_report,
    make_team,
    make_tier,
    make_workload,
    note_collection,
)
from tests.pending.rows import make_episode

START = datetime(2026, 11, 15, 23, tzinfo=UTC)
"""A Monday's midnight in Berlin."""
HOUR = timedelta(hours=1)
HALF = timedelta(minutes=30)
DAY = timedelta(days=1)

GpusOf = Mapping[str, float | tuple[float, float]]
"""Team → GPUs that it held, in the first and second half where they differ."""


class World(Struct):
    """A cluster with the tier `gold`; vision and speech are entitled to 4 GPUs of its 8 each."""

    cluster: Cluster
    gold: Tier
    teams: dict[str, Team]
    model: GpuModel = field(default_factory=make_model)

    def hour(
        self,
        at: datetime = START,
        held: GpusOf | None = None,
        *,
        capacity: float | tuple[float, float] = 8.0,
        idle: Mapping[str, float] | None = None,
        cluster: Cluster | None = None,
        tier: Tier | None = None,
        state: str = "complete",
        collected_at: datetime | None = None,
    ) -> None:
        """Write, or write again, what was held in an hour, and that it was collected."""
        cluster, tier = cluster or self.cluster, tier or self.gold
        of_hour: dict[str, Any] = {
            "cluster": cluster,
            "tier": tier,
            "gpu_model": self.model,
            "hour": at,
        }
        of_hour["capacity_type"] = "on-demand"
        for model in (TeamHour, TierHour):
            model._default_manager.filter(cluster=cluster, tier=tier, hour=at).delete()
        room = _halves(capacity)
        TierHour.objects.create(capacity=sum(room), capacity_first=room[0], **of_hour)
        for name, gpus in (held or {}).items():
            whole, first = sum(_halves(gpus)), _halves(gpus)[0]
            TeamHour.objects.create(
                team=self.team(name),
                allocated=whole,
                allocated_first=first,
                idle=nano((idle or {}).get(name, 0.0)),
                **of_hour,
            )
        given: dict[str, Any] = {
            k: of_hour[k] for k in ("cluster", "tier", "gpu_model", "capacity_type")
        }
        TierDay.objects.get_or_create(day=at.date(), **given)
        values = {"collected_at": collected_at or at + HOUR, "coverage_ratio": 1.0}
        note_collection(cluster, at, state, **values)

    def team(self, name: str) -> Team:
        if name not in self.teams:
            self.teams[name] = make_team(name, name)
        return self.teams[name]

    def entitle(
        self,
        team: str,
        gpus: float,
        *,
        tier: Tier | None = None,
        weight: float | None = None,
        since: datetime = BEGINNING,
        until: datetime | None = None,
    ) -> None:
        Entitlement.objects.create(
            team=self.team(team),
            tier=tier or self.gold,
            gpus=gpus,
            weight=gpus if weight is None else weight,
            valid_from=since,
            valid_to=until,
        )

    def waits(
        self, team: str, gpus: float, since: datetime, until: datetime | None, **v: Any
    ) -> Any:
        """Make a pod of the team's namespace that waits for the tier."""
        given = {"tier": self.gold, "units": gpus, **v}
        space = given.pop("namespace", team)
        workload = make_workload(self.cluster, space, "train")
        return make_episode(workload, since=since, until=until, **given)


def make_world() -> World:
    make_report()
    ensure_builtin()
    cluster = make_cluster("west")
    teams = {name: make_team(name, name) for name in ("vision", "speech")}
    world = World(cluster, make_tier("gold"), teams)
    WatchCoverage.objects.create(cluster=cluster, start=START - 100 * DAY, end=START + 100 * DAY)
    for name in teams:
        world.entitle(name, 4.0)
    return world


def told(hour: datetime = START, *names: str) -> dict[str, dict[str, float]]:
    """Return GPU-hours of an hour by team; those named, without what is 0."""
    rows = (
        TeamFairnessHour.objects.filter(hour=hour)
        .select_related("team")
        .order_by("team__name", "pk")
    )
    return {row.team.name: _amounts(row, names) for row in rows}


def tier_told(hour: datetime = START) -> dict[str, Any]:
    row = TierFairnessHour.objects.get(hour=hour, tier__name="gold")
    amounts = _amounts(row, ("capacity", "from_pool", "overdrawn", "borrowable"))
    return {"state": row.state, "watched": row.watched, **amounts}


def _amounts(row: object, names: Iterable[str]) -> dict[str, float]:
    return {name: getattr(row, name) / 1e9 for name in names if getattr(row, name)}


def _halves(gpus: float | tuple[float, float]) -> tuple[int, int]:
    first, second = gpus if isinstance(gpus, tuple) else (gpus, gpus)
    return nano(first / 2), nano(second / 2)


def due_hours(*, now: datetime) -> list[datetime]:
    """Return the hours that are to be computed, newest first."""
    return list(changed_hours(now=now).hours)

"""Many teams entitled to and holding something of every tier: one hour's facts, then many days.

Days and hours repeat the amounts of the first, which no read can tell by its time.
"""
# ruff: noqa: S311, S608 - made-up data; names of our own tables

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from django.db import connection, models, transaction
from msgspec import Struct

from apps.accounts.models import Team
from apps.clusters.models import (
    Cluster,
    GpuModel,
    Namespace,
    NamespaceTeam,
    ReportSettings,
    Tier,
    WatchCoverage,
    Workload,
)
from apps.fairness.models import (
    FairnessDay,
    LoanDay,
    LoanHour,
    TeamFairnessDay,
    TeamFairnessHour,
    TierFairnessDay,
    TierFairnessHour,
    TierTeamBlob,
)
from apps.fairness.services.compute import lock_week, write_week
from apps.operations.services import ensure_builtin
from apps.pending.models import CauseInterval, Episode
from apps.quotas.models import Entitlement
from apps.usage.domain.amounts import NANO
from apps.usage.models import CollectionWindow, TeamHour, TierDay, TierHour

TODAY = datetime(2026, 11, 21, tzinfo=UTC)
HOURS = 12
_OF_DAYS: tuple[type[models.Model], ...] = (TeamFairnessDay, TierFairnessDay, LoanDay)
_OF_HOURS: tuple[type[models.Model], ...] = (TeamFairnessHour, TierFairnessHour, LoanHour)
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


class FairWorld(Struct, frozen=True):
    """`tier` is the name of one; `today` begins after the day that has facts."""

    tier: str
    today: datetime
    now: datetime


def fill(teams: int, tiers: int) -> FairWorld:
    """Write what an hour of yesterday is computed from. Needs an empty database."""
    ensure_builtin()
    ReportSettings.objects.update_or_create(pk=1, defaults={"time_zone": "UTC"})
    cluster = Cluster.objects.create(name="bench-fair")
    made = [Tier.objects.create(name=f"tier-{n}", position=n) for n in range(tiers)]
    people = Team.objects.bulk_create(Team(name=f"team-{n:04d}") for n in range(teams))
    hour = TODAY - _DAY
    with transaction.atomic():
        _facts(cluster, made, people, hour)
        _waits(cluster, made, people, hour)
    _analyze()
    return FairWorld(made[0].name, TODAY, TODAY + HOURS * _HOUR)


def _facts(cluster: Cluster, tiers: Sequence[Tier], teams: Sequence[Team], hour: datetime) -> None:
    random, since = Random("fair"), hour - 200 * _DAY
    model = GpuModel.objects.create(key="card", name="CARD")
    of = {"cluster": cluster, "gpu_model": model, "capacity_type": "on-demand"}
    entitled, held = [], []
    for tier in tiers:
        taken = 0
        for team in teams:
            amount = random.randrange(8 * NANO)
            taken += amount
            held.append(
                TeamHour(tier=tier, team=team, hour=hour, allocated=amount,
                         allocated_first=amount // 2, idle=amount // 4, **of)
            )  # fmt: skip
            entitled.append(
                Entitlement(team=team, tier=tier, gpus=random.randrange(9), weight=1,
                            valid_from=since)
            )  # fmt: skip
        TierHour.objects.create(
            tier=tier, hour=hour, capacity=taken, capacity_first=taken // 2, **of
        )
        TierDay.objects.create(tier=tier, day=hour.date(), **of)
    TeamHour.objects.bulk_create(held, batch_size=1000)
    Entitlement.objects.bulk_create(entitled, batch_size=1000)
    WatchCoverage.objects.create(cluster=cluster, start=since, end=TODAY + _DAY)
    CollectionWindow.objects.create(
        cluster=cluster, hour=hour, state="complete", coverage_ratio=1.0, samples=1, attempts=1,
        attempted_at=hour + _HOUR, collected_at=hour + _HOUR,
    )  # fmt: skip


def _waits(cluster: Cluster, tiers: Sequence[Tier], teams: Sequence[Team], hour: datetime) -> None:
    """Have each team wait for 4 GPUs of one tier since yesterday's first hour, all day long."""
    spaces = Namespace.objects.bulk_create(
        Namespace(cluster=cluster, name=team.name) for team in teams
    )
    NamespaceTeam.objects.bulk_create(
        NamespaceTeam(team=team, pattern=team.name, position=n, valid_from=hour - 200 * _DAY)
        for n, team in enumerate(teams)
    )
    work = Workload.objects.bulk_create(
        Workload(namespace=space, kind="Job", name="train") for space in spaces
    )
    waiting = {"counts": "pending", "cause": "capacity", "counted": 4.0}
    episodes = Episode.objects.bulk_create(
        Episode(
            cluster=cluster, kind="Pod", uid=f"wait-{n}", name="train-0", workload=one,
            resource="nvidia.com/gpu", units=4, gpu_equivalents=4, tier=tiers[n % len(tiers)],
            since=hour, **waiting,
        )
        for n, one in enumerate(work)
    )  # fmt: skip
    CauseInterval.objects.bulk_create(
        CauseInterval(episode=episode, start=hour, **waiting) for episode in episodes
    )


# ---------------------------------------------------------------- many days


def repeat(world: FairWorld, days: int) -> None:
    """Copy yesterday to the days before it, and its hour to the hours of today."""
    first = world.today - _DAY
    before = [first - number * _DAY for number in range(1, days - 1)]
    today = [world.today + number * _HOUR for number in range(HOURS)]
    held = FairnessDay.objects.get(day=first.date()).held
    with transaction.atomic():
        for model in _OF_DAYS:
            _copy(model, "day", first.date(), [at.date() for at in before])
        for model in _OF_HOURS:
            _copy(model, "hour", first, today)
        _copy(TierTeamBlob, "start", first, before, "AND span = 'day'")
        _copy(TierTeamBlob, "start", first, today, "AND span = 'hour'")
        FairnessDay.objects.bulk_create(
            FairnessDay(day=at.date(), start=at, end=at + _DAY, rolled=True, held=held)
            for at in before
        )
        for at in {at - at.weekday() * _DAY for at in [first, *before]}:
            write_week(lock_week(at.date()))
    _analyze()


def _copy(
    model: type[models.Model], key: str, first: Any, times: Sequence[Any], where: str = ""
) -> None:
    """Copy the rows of one time to others, within the database."""
    field: Any = model._meta.get_field(key)
    quoted: Callable[[str], str] = connection.ops.quote_name
    columns = ", ".join(
        quoted(f.column or "") for f in model._meta.concrete_fields if f.attname not in {"id", key}
    )
    table, at = quoted(model._meta.db_table), quoted(key)
    place = f"%s::{field.db_type(connection)}" if connection.vendor == "postgresql" else "%s"
    sql = (
        f"INSERT INTO {table} ({at}, {columns}) SELECT {place}, {columns} FROM {table} "
        f"WHERE {at} = %s {where}"
    )
    with connection.cursor() as cursor:
        for time in times:
            values = [field.get_db_prep_value(one, connection) for one in (time, first)]
            cursor.execute(sql, values)


def _analyze() -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")

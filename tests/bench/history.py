"""Thirteen months of a whole company's facts, up to the present hour, straight into the tables.

8 tiers × 40 teams × 2,000 workloads in all: each workload is of one team on one tier and always has
one pod, a new one every few days. Days and hours repeat the amounts of the first, which no page can
tell by its time; only keys and times differ.
"""
# ruff: noqa: S311, S608 - made-up data; names of our own tables

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from django.db import connection, models, transaction
from msgspec import Struct

from apps.accounts.domain.identity import Role
from apps.accounts.models import Team, User
from apps.clusters.models import (
    Cluster,
    GpuModel,
    Namespace,
    NamespaceTeam,
    Node,
    Pod,
    ReportSettings,
    Tier,
    TierRule,
    Workload,
)
from apps.operations.services import ensure_builtin
from apps.quotas.models import Entitlement
from apps.usage.domain.amounts import NANO
from apps.usage.models import (
    CollectionWindow,
    Day,
    PodHour,
    TeamDay,
    TeamHour,
    TierDay,
    TierHour,
    WorkloadDay,
)

TIERS = 8
TEAMS = 40
POD_DAYS = 4
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_CAPACITY_FACTOR = 1.25
_PAID = "on-demand"


class History(Struct, frozen=True):
    """What was written: names for addresses, and from when to when there are facts."""

    start: datetime
    end: datetime
    cluster: str
    tier: str
    team: str
    namespace: str
    workload: str
    pod: str
    rows: int


class _Keys(Struct, frozen=True):
    cluster: int
    tiers: Sequence[int]
    models: Sequence[int]
    teams: Sequence[int]
    spaces: Sequence[int]
    node: int
    workloads: Sequence[int]

    def of(self, number: int) -> dict[str, int]:
        """Return the keys of the workload of this number."""
        team, tier = number % TEAMS, number // TEAMS % TIERS
        return {
            "cluster_id": self.cluster,
            "tier_id": self.tiers[tier],
            "gpu_model_id": self.models[tier],
            "team_id": self.teams[team],
            "namespace_id": self.spaces[team],
            "workload_id": self.workloads[number],
        }


def write(now: datetime, *, days: int, pod_hour_days: int, workloads: int) -> History:
    """Write the history up to the hour before `now`; `pod_hour_days` have facts by pod.

    Needs an empty database.
    """
    end = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    today = end.replace(hour=0)
    start = today - (days - 1) * _DAY
    keys = _dimensions(start, workloads)
    pods = _pods(keys, start, end)
    first_detail = max(start, today - pod_hour_days * _DAY)
    with transaction.atomic():
        rows = _facts(keys, start, end) + _pod_hours(keys, pods, first_detail, end)
    _collected(keys.cluster, start, end)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    last = pods[max(pods)][0]
    return History(start, end, "long", "tier-0", "team-0", "space-0", "train-0", last.uid, rows)


def _dimensions(start: datetime, workloads: int) -> _Keys:
    ensure_builtin()
    ReportSettings.objects.update_or_create(pk=1, defaults={"time_zone": "UTC"})
    User.objects.create(username="bench-pages", role=Role.ADMIN.value)
    cluster = Cluster.objects.create(name="long", prometheus={"url": "http://127.0.0.1:9"})
    tiers = [Tier.objects.create(name=f"tier-{n}", position=n) for n in range(TIERS)]
    models = [GpuModel.objects.create(key=f"card-{n}", name=f"CARD-{n}") for n in range(TIERS)]
    teams = [Team.objects.create(name=f"team-{n}") for n in range(TEAMS)]
    spaces = [Namespace.objects.create(cluster=cluster, name=f"space-{n}") for n in range(TEAMS)]
    for tier in tiers:
        TierRule.objects.create(
            tier=tier, position=tier.position, sharing="exclusive",
            resources=["nvidia.com/gpu"], node_selector={"tier": tier.name}, valid_from=start,
        )  # fmt: skip
    for number, (team, space) in enumerate(zip(teams, spaces, strict=True)):
        NamespaceTeam.objects.create(
            team=team, pattern=space.name, position=number, valid_from=start
        )
        Entitlement.objects.create(
            team=team, tier=tiers[number % TIERS], gpus=8, weight=1, valid_from=start
        )
    work = Workload.objects.bulk_create(
        Workload(namespace=spaces[n % TEAMS], kind="Job", name=f"train-{n}")
        for n in range(workloads)
    )
    node = Node.objects.create(cluster=cluster, name="node-1")
    return _Keys(
        cluster.pk, [t.pk for t in tiers], [c.pk for c in models], [t.pk for t in teams],
        [s.pk for s in spaces], node.pk, [w.pk for w in work],
    )  # fmt: skip


def _pods(keys: _Keys, start: datetime, end: datetime) -> dict[datetime, list[Pod]]:
    """Write a pod of each workload for every few days, some that wait; return them by start."""
    found: dict[datetime, list[Pod]] = {}
    at = start
    while at < end:
        until = at + POD_DAYS * _DAY
        rows = [
            _pod(keys, n, at, until if until < end else None) for n in range(len(keys.workloads))
        ]
        found[at] = Pod.objects.bulk_create(rows, batch_size=2000)
        at = until
    Pod.objects.bulk_create(
        _pod(keys, n, end - 5 * _HOUR, None, waits=True) for n in range(0, 200, 3)
    )
    return found


def _pod(
    keys: _Keys, number: int, at: datetime, until: datetime | None, *, waits: bool = False
) -> Pod:
    of = keys.of(number)
    bound = None if waits else at + timedelta(seconds=30)
    return Pod(
        cluster_id=keys.cluster,
        uid=f"{'wait' if waits else 'pod'}-{number}-{at:%Y%m%d}",
        workload_id=of["workload_id"],
        name=f"train-{number}-{at:%j}{'w' if waits else ''}",
        node_name="" if waits else "node-1",
        resource="nvidia.com/gpu",
        units=1,
        requests={"nvidia.com/gpu": 1},
        created_at=at,
        bound_at=bound,
        started_at=bound,
        finished_at=until,
        ended_at=until,
        source="api",
        tier_id=of["tier_id"],
        gpu_model_id=of["gpu_model_id"],
        gpu_equivalents=1,
    )


# ---------------------------------------------------------------- facts


_HOURLY: dict[type[models.Model], tuple[str, ...]] = {
    TierHour: ("tier_id",),
    TeamHour: ("tier_id", "team_id"),
}
_DAILY: dict[type[models.Model], tuple[str, ...]] = {
    TierDay: ("tier_id",),
    TeamDay: ("tier_id", "team_id"),
    WorkloadDay: ("workload_id",),
}


def _facts(keys: _Keys, start: datetime, end: datetime) -> int:
    hours = list(_steps(start, end, _HOUR))
    days = [at.date() for at in _steps(start, end, _DAY)]
    rows = 0
    for model, grouped in _HOURLY.items():
        rows += _repeated(model, _grouped(keys, grouped, 1), "hour", hours)
    for model, grouped in _DAILY.items():
        rows += _repeated(model, _grouped(keys, grouped, 24), "day", days)
    closed = [day for day in days if day < end.date()]
    Day.objects.bulk_create(
        Day(cluster_id=keys.cluster, day=day, start=_midnight(day), end=_midnight(day) + _DAY,
            rolled=True)
        for day in closed
    )  # fmt: skip
    return rows


def _midnight(day: Any) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _steps(start: datetime, end: datetime, step: timedelta) -> Iterator[datetime]:
    while start < end:
        yield start
        start += step


def _grouped(keys: _Keys, by: tuple[str, ...], hours: int) -> list[dict[str, Any]]:
    """Return the rows of one hour or day: what one GPU per workload comes to, by these keys."""
    random = Random("a company")
    sums: dict[tuple[int, ...], dict[str, Any]] = {}
    for number in range(len(keys.workloads)):
        of = keys.of(number)
        busy = random.randrange(hours * NANO)
        idle = (hours * NANO - busy) // 2
        row = sums.setdefault(
            tuple(of[key] for key in by),
            {**of, "capacity_type": _PAID, "allocated": 0, "busy": 0, "idle": 0, "underused": 0},
        )
        row["allocated"] += hours * NANO
        row["busy"] += busy
        row["idle"] += idle
        row["underused"] += hours * NANO - busy - idle
    for row in sums.values():
        row["capacity"] = int(row["allocated"] * _CAPACITY_FACTOR)
        row["unallocated"] = row["capacity"] - row["allocated"]
    return list(sums.values())


def _repeated(
    model: type[models.Model], rows: list[dict[str, Any]], key: str, times: Sequence[Any]
) -> int:
    """Write the rows for each of the times; all but the first copied within the database."""
    names = {field.attname for field in model._meta.concrete_fields}
    first = [
        model(**{k: v for k, v in row.items() if k in names}, **{key: times[0]}) for row in rows
    ]
    model._default_manager.bulk_create(first, batch_size=1000)
    _copied(model, key, times, rows[0]["cluster_id"])
    return len(rows) * len(times)


def _copied(model: type[models.Model], key: str, times: Sequence[Any], cluster: int) -> None:
    field: Any = model._meta.get_field(key)
    quoted = connection.ops.quote_name
    columns = ", ".join(
        quoted(f.column or "") for f in model._meta.concrete_fields if f.attname not in {"id", key}
    )
    table = quoted(model._meta.db_table)
    sql = (
        f"INSERT INTO {table} ({quoted(key)}, {columns}) "
        f"SELECT %s, {columns} FROM {table} WHERE {quoted(key)} = %s AND cluster_id = %s"
    )
    if connection.vendor == "postgresql":
        sql = sql.replace("SELECT %s", f"SELECT %s::{field.db_type(connection)}")
    values = [field.get_db_prep_value(at, connection) for at in times]
    with connection.cursor() as cursor:
        for at in values[1:]:
            cursor.execute(sql, (at, values[0], cluster))


def _pod_hours(keys: _Keys, pods: dict[datetime, list[Pod]], first: datetime, end: datetime) -> int:
    rows = 0
    by_workload = {row["workload_id"]: row for row in _grouped(keys, ("workload_id",), 1)}
    for at, living in pods.items():
        hours = [h for h in _steps(at, min(end, at + POD_DAYS * _DAY), _HOUR) if h >= first]
        if not hours:
            continue
        facts = [
            {**by_workload[pod.workload_id], "pod_id": pod.pk, "node_id": keys.node}
            for pod in living
        ]
        rows += _repeated(PodHour, facts, "hour", hours)
    return rows


def _collected(cluster: int, start: datetime, end: datetime) -> None:
    CollectionWindow.objects.bulk_create(
        (
            CollectionWindow(
                cluster_id=cluster,
                hour=at,
                state="complete",
                coverage_ratio=1.0,
                samples=480_000,
                attempts=1,
                attempted_at=at + _HOUR,
                collected_at=at + _HOUR,
            )
            for at in _steps(start, end, _HOUR)
        ),
        batch_size=2000,
    )

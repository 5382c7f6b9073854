"""Worker: an hour of quotas summed, the first page of all keys read, and the page of the portal.

python -m tests.bench.quotas NAMESPACES
"""
# ruff: noqa: S608 - names of our own tables

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from django.db import connection, transaction
from django.test import Client

from apps.accounts.models import Team, User
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.observed.objects import ObservedKind, QuotaSnapshot
from apps.clusters.domain.window import Window
from apps.clusters.models import (
    Cluster,
    GpuModel,
    Namespace,
    NamespaceTeam,
    ObservedObject,
    Pod,
    ReportSettings,
    Tier,
    WatchCoverage,
    Workload,
)
from apps.operations.services import ensure_builtin
from apps.quotas.models import Budget, QuotaKey, QuotaKeyHour
from apps.quotas.selectors import QuotaOrder, quota_rows, team_quotas
from apps.quotas.services import roll_window
from apps.usage.domain.amounts import NANO
from apps.usage.models import CollectionWindow, TeamDay, TeamHour
from tests.bench.measuring import REPETITIONS, cpu, timed, wall

HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
RESOURCES = ("nvidia.com/gpu", *(f"nvidia.com/mig-{size}" for size in ("1g.10gb", "2g.20gb")))
KEYS = (
    *(f"requests.{resource}" for resource in RESOURCES),
    *("requests.nvidia.com/mig-3g.40gb", "requests.nvidia.com/gpu.shared"),
)
PAGE_SIZE = 50
_PODS = 5
_HOURS_BEFORE = 7 * 24
_SINCE = HOUR - timedelta(days=30)


def measure(namespaces: str) -> dict[str, Any]:
    """Return seconds of an hour summed, and of a page of keys in either order."""
    cluster, now = fill(int(namespaces)), HOUR + timedelta(hours=1)
    rolls = [
        timed(partial(roll_window, cluster.pk, Window.hour(HOUR), now=now))
        for _ in range(REPETITIONS)
    ]
    _repeat()
    page = partial(quota_rows, now, page_size=PAGE_SIZE, visibility=EVERYTHING)
    return {
        "database": connection.vendor,
        "keys": QuotaKey.objects.count(),
        "rows": len(page().rows),
        "roll_seconds": wall(rolls),
        "page_seconds": _median(page),
        "fullest_seconds": _median(partial(page, order=QuotaOrder.FULLEST)),
        "sums_seconds": _median(partial(team_quotas, now)),
        **_rendered(cluster),
    }


def _rendered(cluster: Cluster) -> dict[str, float]:
    """Return CPU seconds of the page, where each namespace's team has a budget that burns."""
    teams = list(Team.objects.filter(name__startswith="space-").order_by("pk"))
    _spend(cluster, teams)
    visit, found = _visit(), {}
    for period, amount in (("month", 4500.0), ("year", 60_000.0)):
        Budget.objects.all().delete()
        Budget.objects.bulk_create(
            Budget(team=team, period=period, gpu_hours=amount, valid_from=_SINCE) for team in teams
        )
        visit()
        found[f"{period}_cpu_seconds"] = cpu([timed(visit) for _ in range(REPETITIONS)])
    return found


def _spend(cluster: Cluster, teams: Sequence[Team]) -> None:
    """Write what teams held since the year began, some of them more than they may."""
    model = GpuModel.objects.create(name="bench-quotas", key="benchquotas")
    tier = Tier.objects.order_by("pk")[0]

    def held(team: Team, hours: int) -> dict[str, Any]:
        amount = (1 + team.pk % 9) * hours * NANO
        of = {"cluster": cluster, "tier": tier, "gpu_model": model}
        return {**of, "team": team, "allocated": amount}

    for n in range(HOUR.timetuple().tm_yday):
        day = (HOUR - timedelta(days=n)).date()
        TeamDay.objects.bulk_create(TeamDay(day=day, **held(team, 24)) for team in teams)
    for n in range(_HOURS_BEFORE):
        hour = HOUR - timedelta(hours=n)
        TeamHour.objects.bulk_create(TeamHour(hour=hour, **held(team, 1)) for team in teams)


def _visit() -> Callable[[], None]:
    """Return what asks for the page of quotas as an admin."""
    client = Client(headers={"Host": "127.0.0.1"})
    client.force_login(User.objects.create_superuser("bench-quotas"))

    def visit() -> None:
        answer = client.get("/quotas/")
        if answer.status_code != 200:
            raise RuntimeError(f"/quotas/: {answer.status_code}")

    return visit


def _median(run: Any) -> float:
    run()
    return wall([timed(run) for _ in range(REPETITIONS)])


def fill(namespaces: int) -> Cluster:
    """Write a cluster of which each namespace has a quota of five keys and some pods.

    Needs an empty database.
    """
    ensure_builtin()
    ReportSettings.objects.update_or_create(pk=1, defaults={"time_zone": "UTC"})
    cluster = Cluster.objects.create(name="bench-quotas")
    names = [f"space-{number:04d}" for number in range(namespaces)]
    spaces = Namespace.objects.bulk_create(Namespace(cluster=cluster, name=name) for name in names)
    teams = Team.objects.bulk_create(Team(name=name) for name in names)
    NamespaceTeam.objects.bulk_create(
        NamespaceTeam(team=team, pattern=team.name, position=number, valid_from=_SINCE)
        for number, team in enumerate(teams)
    )
    ObservedObject.objects.bulk_create(
        _quota(cluster, number, names[number]) for number in range(len(names))
    )
    work = Workload.objects.bulk_create(
        Workload(namespace=space, kind="Job", name="train") for space in spaces
    )
    pods = [_pod(cluster, one, number) for one in work for number in range(_PODS)]
    Pod.objects.bulk_create(pods, batch_size=1000)
    WatchCoverage.objects.create(cluster=cluster, start=_SINCE, end=HOUR + timedelta(hours=2))
    CollectionWindow.objects.create(
        cluster=cluster, hour=HOUR, state="complete", coverage_ratio=1.0, samples=1, attempts=1,
        attempted_at=HOUR, collected_at=HOUR + timedelta(hours=1),
    )  # fmt: skip
    return cluster


def _quota(cluster: Cluster, number: int, namespace: str) -> ObservedObject:
    hard = {key: float(4 + number % 13) for key in KEYS}
    used = {key: float(number % 5) for key in KEYS}
    body = QuotaSnapshot(hard=hard, observed_hard=hard, used=used)
    return ObservedObject(
        cluster=cluster,
        kind=ObservedKind.RESOURCE_QUOTA.value,
        uid=f"quota-{number}",
        namespace=namespace,
        name="gpus",
        first_at=_SINCE,
        changed_at=_SINCE,
        body=msgspec.to_builtins(body),
    )


def _pod(cluster: Cluster, workload: Workload, number: int) -> Pod:
    """Return a pod; each namespace's last one waits."""
    resource = RESOURCES[number % len(RESOURCES)]
    began = HOUR - timedelta(hours=number, minutes=7)
    bound = None if number == _PODS - 1 else began
    return Pod(
        cluster=cluster,
        uid=f"pod-{workload.pk}-{number}",
        workload=workload,
        name=f"train-{number}",
        node_name="" if bound is None else "node-1",
        resource=resource,
        units=1,
        requests={resource: 1},
        created_at=began,
        bound_at=bound,
        started_at=bound,
        source="api",
        gpu_equivalents=1,
    )


def _repeat() -> None:
    """Copy the hour to those of a week before it, which trends are read from."""
    columns = ", ".join(
        connection.ops.quote_name(field.column or "")
        for field in QuotaKeyHour._meta.concrete_fields
        if field.attname not in {"id", "hour"}
    )
    table = connection.ops.quote_name(QuotaKeyHour._meta.db_table)
    place = "%s::timestamptz" if connection.vendor == "postgresql" else "%s"
    sql = (
        f"INSERT INTO {table} (hour, {columns}) "
        f"SELECT {place}, {columns} FROM {table} WHERE hour = %s"
    )
    stored = connection.ops.adapt_datetimefield_value
    with transaction.atomic(), connection.cursor() as cursor:
        for number in range(1, _HOURS_BEFORE):
            cursor.execute(sql, (stored(HOUR - timedelta(hours=number)), stored(HOUR)))
        if connection.vendor == "postgresql":
            cursor.execute("ANALYZE")

"""Worker: an hour of quotas summed, and the first page of all keys read.

python -m tests.bench.quotas NAMESPACES
"""
# ruff: noqa: S608 - names of our own tables

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from django.db import connection, transaction
from django.test import Client

from apps.accounts.models import Team, User
from apps.accounts.permissions import EVERYTHING
from apps.clusters.domain.sightings import Kind, SeenQuota
from apps.clusters.models import (
    Cluster,
    Namespace,
    NamespaceClaim,
    Pod,
    ReportSettings,
    Sighting,
    WatchSpan,
    Workload,
)
from apps.operations.services import ensure_builtin
from apps.quotas.models import Budget, QuotaKey, QuotaKeyHour
from apps.quotas.selectors import Order, quota_rows, quota_sums
from apps.quotas.services import roll_hour
from apps.usage.models import CollectionWindow
from tests.bench.measuring import REPETITIONS, timed, wall

HOUR = datetime(2026, 11, 21, 11, tzinfo=UTC)
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
    rolls = [timed(partial(roll_hour, cluster.pk, HOUR, now=now)) for _ in range(REPETITIONS)]
    _repeat()
    page = partial(quota_rows, now, page_size=PAGE_SIZE, visibility=EVERYTHING)
    return {
        "database": connection.vendor,
        "keys": QuotaKey.objects.count(),
        "rows": len(page().rows),
        "roll_seconds": wall(rolls),
        "page_seconds": _median(page),
        "fullest_seconds": _median(partial(page, order=Order.FULLEST)),
        "sums_seconds": _median(partial(quota_sums, now, visibility=EVERYTHING)),
        "rendered_seconds": _median(_visit()),
    }


def _visit() -> Callable[[], None]:
    """Return what asks for the page of quotas as an admin; each namespace's team has a budget."""
    teams = Team.objects.filter(name__startswith="space-").order_by("pk")
    Budget.objects.bulk_create(
        Budget(team=team, period="month", gpu_hours=5000.0, valid_from=_SINCE) for team in teams
    )
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
    NamespaceClaim.objects.bulk_create(
        NamespaceClaim(team=team, pattern=team.name, position=number, valid_from=_SINCE)
        for number, team in enumerate(teams)
    )
    Sighting.objects.bulk_create(
        _quota(cluster, number, names[number]) for number in range(len(names))
    )
    work = Workload.objects.bulk_create(
        Workload(namespace=space, kind="Job", name="train") for space in spaces
    )
    pods = [_pod(cluster, one, number) for one in work for number in range(_PODS)]
    Pod.objects.bulk_create(pods, batch_size=1000)
    WatchSpan.objects.create(cluster=cluster, start=_SINCE, end=HOUR + timedelta(hours=2))
    CollectionWindow.objects.create(
        cluster=cluster, hour=HOUR, state="complete", coverage_ratio=1.0, samples=1, attempts=1,
        attempted_at=HOUR, collected_at=HOUR + timedelta(hours=1),
    )  # fmt: skip
    return cluster


def _quota(cluster: Cluster, number: int, namespace: str) -> Sighting:
    hard = {key: float(4 + number % 13) for key in KEYS}
    used = {key: float(number % 5) for key in KEYS}
    body = SeenQuota(hard=hard, observed_hard=hard, used=used)
    return Sighting(
        cluster=cluster,
        kind=Kind.RESOURCE_QUOTA.value,
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

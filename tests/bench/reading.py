"""Worker: two reads of the HTTP API beside the bare SQL of the same rows.

python -m tests.bench.reading PODS
"""
# ruff: noqa: S311, S608 - made-up data; names of our own tables

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from random import Random
from statistics import median
from typing import Any
from urllib.parse import urlencode

import msgspec
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.accounts.domain.identity import Role
from apps.accounts.models import User
from apps.accounts.services import issue_token, team_ids
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.models import (
    Cluster,
    GpuModel,
    Namespace,
    Node,
    Pod,
    ReportSettings,
    Tier,
    Workload,
)
from apps.operations.services import ensure_builtin
from apps.usage.domain.amounts import CAPACITY_FIELDS, HELD_FIELDS, LEVEL_FIELDS, SPLIT_FIELDS
from apps.usage.models import Day, PodHour, TierDay
from tests.bench.measuring import alternated, wall

LAST_DAY = date(2026, 3, 1)
DAYS = 396  # 13 months
TIERS = 8
CAPACITY_TYPES = ("on-demand", "spot", "reserved")
CLUSTERS = ("read-east", "read-west")
PAGE = 500
POD_HOURS = 6
_POD_WINDOW = (datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))


# ---------------------------------------------------------------- data


def fill(pods: int) -> str:
    """Write thirteen months of tier days and some pods; return an admin's API token."""
    ensure_builtin()
    ReportSettings.objects.update_or_create(pk=1, defaults={"time_zone": "UTC"})
    clusters = [Cluster.objects.get_or_create(name=name)[0] for name in CLUSTERS]
    tiers = [Tier.objects.get_or_create(name=f"tier-{n}", position=n)[0] for n in range(TIERS)]
    _fill_days([c.pk for c in clusters], [t.pk for t in tiers])
    _fill_pods(clusters[0].pk, tiers, pods)
    user = User.objects.get_or_create(username="bench", defaults={"role": Role.ADMIN.value})[0]
    return issue_token(user, name="bench", now=timezone.now()).key


def _fill_days(clusters: Sequence[int], tiers: Sequence[int]) -> None:
    random = Random("thirteen months")
    days = [LAST_DAY - timedelta(days=back) for back in reversed(range(DAYS))]
    for cluster in clusters:
        Day.objects.bulk_create(
            Day(
                cluster_id=cluster,
                day=day,
                start=datetime(day.year, day.month, day.day, tzinfo=UTC),
                end=datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1),
                rolled=True,
            )
            for day in days
        )
    TierDay.objects.bulk_create(
        (
            TierDay(
                day=day,
                cluster_id=cluster,
                tier_id=tier,
                gpu_model_id=1,
                capacity_type=paid,
                **_amounts(random, 24 * 64),
            )
            for day in days
            for cluster in clusters
            for tier in tiers
            for paid in CAPACITY_TYPES
        ),
        batch_size=2000,
    )


def _amounts(random: Random, gpu_hours: int) -> dict[str, Any]:
    capacity = gpu_hours * 1_000_000_000
    allocated = random.randrange(capacity)
    busy = random.randrange(allocated)
    return {
        "capacity": capacity,
        "unallocated": capacity - allocated,
        "allocated": allocated,
        "busy": busy,
        "underused": allocated - busy,
        "energy_mwh": random.randrange(1 << 40),
        "memory_peak_mib": float(random.randrange(81_920)),
    }


def _fill_pods(cluster: int, tiers: Sequence[Tier], pods: int) -> None:
    random = Random("pods to list")
    model = GpuModel.objects.get_or_create(key="a100", defaults={"name": "A100"})[0]
    node = Node.objects.get_or_create(cluster_id=cluster, name="node-1")[0]
    spaces = [
        Namespace.objects.get_or_create(cluster_id=cluster, name=f"space-{n}")[0] for n in range(40)
    ]
    workloads = Workload.objects.bulk_create(
        Workload(namespace=spaces[n % 40], kind="Job", name=f"train-{n}") for n in range(400)
    )
    start, _ = _POD_WINDOW
    rows = Pod.objects.bulk_create(
        (
            Pod(
                cluster_id=cluster,
                uid=f"read-{n:08d}",
                workload=workloads[n % len(workloads)],
                name=f"train-{n % len(workloads)}-{n:05d}",
                node_name=node.name,
                resource="nvidia.com/gpu",
                units=1,
                requests={"nvidia.com/gpu": 1},
                created_at=start + timedelta(seconds=n * 7 % 60_000),
                bound_at=start + timedelta(seconds=n * 7 % 60_000 + 20),
                started_at=start + timedelta(seconds=n * 7 % 60_000 + 40),
                source="api",
                tier=tiers[n % len(tiers)],
                gpu_model=model,
                gpu_equivalents=1,
            )
            for n in range(pods)
        ),
        batch_size=1000,
    )
    team = team_ids()[UNASSIGNED]
    facts = (
        PodHour(
            hour=start + timedelta(hours=hour + 17),
            pod=pod,
            node=node,
            team_id=team,
            namespace_id=pod.workload.namespace_id,
            workload_id=pod.workload_id,
            cluster_id=cluster,
            tier_id=pod.tier_id or 0,
            gpu_model=model,
            capacity_type="on-demand",
            **{k: v for k, v in _amounts(random, 1).items() if k not in CAPACITY_FIELDS},
        )
        for hour in range(POD_HOURS)
        for pod in rows
    )
    PodHour.objects.bulk_create(facts, batch_size=1000)


# What the endpoint sums, the bare SQL sums too.
_HELD = (*HELD_FIELDS, *chain.from_iterable(LEVEL_FIELDS), *SPLIT_FIELDS)
_TIER = (*_HELD, *CAPACITY_FIELDS)


# ---------------------------------------------------------------- the two ways


class _Page(msgspec.Struct):
    """A page whose rows are left as they came: what a client makes of them is its own time."""

    results: list[msgspec.Raw]
    next: str | None


_PAGE = msgspec.json.Decoder(_Page)


class Endpoint:
    """Reads all pages of a list, or some, through the whole of Django with a token."""

    def __init__(self, token: str) -> None:
        self._client = Client(headers={"Authorization": f"Token {token}", "Host": "127.0.0.1"})

    def rows(self, path: str, query: Mapping[str, str], pages: int | None = None) -> int:
        """Return how many rows came. Raises RuntimeError on an error."""
        url: str | None = f"/api/v1/{path}?{urlencode({**query, 'page_size': PAGE})}"
        count = 0
        while url is not None and pages != 0:
            response = self._client.get(url)
            if response.status_code != 200:
                raise RuntimeError(f"{url}: {response.status_code} {response.content[:500]!r}")
            page = _PAGE.decode(response.content)
            count += len(page.results)
            url = page.next
            pages = None if pages is None else pages - 1
        return count


def _usage_sql(limit: int | None) -> str:
    sums = ", ".join(f"SUM({name})" for name in _TIER)
    more = "" if limit is None else f" LIMIT {limit}"
    return (
        f"SELECT day, tier_id, {sums}, MAX(memory_peak_mib) FROM usage_tierday "
        "WHERE day >= %s AND day <= %s AND cluster_id IN (%s, %s) "
        f"GROUP BY day, tier_id ORDER BY day, tier_id{more}"
    )


def _pods_sql() -> str:
    sums = ", ".join(f"SUM(h.{name})" for name in _HELD)
    return f"""
        SELECT p.id, c.name, n.name, p.name, p.uid, w.kind, w.name, t.name, m.name, p.node_name,
               p.resource, p.units, p.gpu_equivalents, p.created_at, p.bound_at, p.started_at,
               p.finished_at, p.end_reason, s.*
        FROM (SELECT * FROM clusters_pod
              WHERE cluster_id = %s AND created_at < %s
                    AND (ended_at IS NULL OR ended_at > %s)
              ORDER BY created_at DESC, id LIMIT %s) p
        JOIN clusters_cluster c ON c.id = p.cluster_id
        JOIN clusters_workload w ON w.id = p.workload_id
        JOIN clusters_namespace n ON n.id = w.namespace_id
        LEFT JOIN clusters_tier t ON t.id = p.tier_id
        LEFT JOIN clusters_gpumodel m ON m.id = p.gpu_model_id
        LEFT JOIN (SELECT h.pod_id, {sums}, MAX(h.memory_peak_mib)
                   FROM usage_podhour h
                   WHERE h.hour >= %s AND h.hour < %s AND h.pod_id IN (
                       SELECT id FROM clusters_pod
                       WHERE cluster_id = %s AND created_at < %s
                             AND (ended_at IS NULL OR ended_at > %s)
                       ORDER BY created_at DESC, id LIMIT %s)
                   GROUP BY h.pod_id) s ON s.pod_id = p.id
        ORDER BY p.created_at DESC, p.id
    """


def bare(sql: str, values: Sequence[Any]) -> int:
    """Run one query and fetch it all; return how many rows came."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return len(cursor.fetchall())


# ---------------------------------------------------------------- measuring


def _pair(endpoint: Any, sql: Any) -> dict[str, Any]:
    """Return the seconds of both; they must give as many rows. Raises RuntimeError."""
    rows, expected = endpoint(), sql()
    if rows != expected:
        raise RuntimeError(f"the endpoint gave {rows} rows, the query {expected}")
    found = alternated({"endpoint": endpoint, "sql": sql})
    pairs = zip(found["endpoint"], found["sql"], strict=True)
    return {
        "rows": rows,
        "endpoint_seconds": wall(found["endpoint"]),
        "sql_seconds": wall(found["sql"]),
        "ratio": median(a.wall / b.wall for a, b in pairs),
    }


def measure(size: str) -> dict[str, Any]:
    """Return both reads: days by tier (all pages, one page), and pods of two pages."""
    pods = int(size)
    api = Endpoint(fill(pods))
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    clusters = list(Cluster.objects.filter(name__in=CLUSTERS).order_by("name"))
    ids = [cluster.pk for cluster in clusters]
    first = LAST_DAY - timedelta(days=DAYS - 1)
    usage = {
        "start": first.isoformat(),
        "end": (LAST_DAY + timedelta(days=1)).isoformat(),
        "interval": "day",
        "group_by": "tier",
        "cluster": ",".join(CLUSTERS),
    }
    start, end = _POD_WINDOW
    listed = {"start": start.isoformat(), "end": end.isoformat(), "cluster": CLUSTERS[0]}
    most = min(2 * PAGE, pods)
    lived = (ids[0], end, start, most)
    one_page = first + timedelta(days=PAGE // TIERS)
    return {
        "days": _pair(
            lambda: api.rows("usage", usage),
            lambda: bare(_usage_sql(None), (first, LAST_DAY, *ids)),
        ),
        "days_of_one_tier": _pair(
            lambda: api.rows("usage", {**usage, "tier": "tier-0"}),
            lambda: bare(
                _usage_sql(None).replace("GROUP BY", "AND tier_id = %s GROUP BY"),
                (first, LAST_DAY, *ids, _tier_id()),
            ),
        ),
        "days_page": _pair(
            lambda: api.rows("usage", usage, pages=1),
            lambda: bare(_usage_sql(PAGE), (first, one_page, *ids)),
        ),
        "pods": _pair(
            lambda: api.rows("pods", listed, pages=2),
            lambda: bare(_pods_sql(), (*lived, start, end, *lived)),
        ),
    }


def _tier_id() -> int:
    return Tier.objects.get(name="tier-0").pk

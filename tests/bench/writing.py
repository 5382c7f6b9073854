"""Measurement: an hour of many pods written again, beside the bare insertion of the same rows.

Bare is one transaction with `COPY` (PostgreSQL) or `executemany` (SQLite) of rows that are ready
in memory, into empty tables with the same columns and indexes.
"""
# ruff: noqa: S311, S608 - made-up data; names of our own tables

from random import Random
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection, models, transaction

from apps.clusters.models import Cluster
from apps.usage.domain.amounts import CAPACITY_FIELDS, NANO, Amounts
from apps.usage.domain.attribution.attribute_hour import HourFacts, NodeFact, PodFact
from apps.usage.domain.attribution.gpu_classes import GpuClass
from apps.usage.models import NodeHour, PodHour, TeamHour, TierHour
from apps.usage.services import facts as write
from apps.usage.services.facts import Dimensions, PodIds
from gpuportal.garbage import gc_paused
from tests.bench.fleet import GPUS_PER_NODE, HOUR
from tests.bench.measuring import REPETITIONS, Timed, timed, wall

TIERS = 4
NAMESPACES = 200
WORKLOADS = 2_000
TEAMS = 40
_ZONE = ZoneInfo("UTC")
_MODEL = ("NVIDIA-A100-SXM4-80GB", "nvidiaa100sxm480gb")


def made(pods: int) -> tuple[HourFacts, Dimensions]:
    """Return facts of an hour with so many pods, eight to a node, and ids for all they name."""
    random = Random("an hour to write")
    facts = HourFacts()
    for first in range(0, pods, GPUS_PER_NODE):
        node = f"node-{first // GPUS_PER_NODE:05d}"
        tier = f"tier-{random.randrange(TIERS)}"
        gpu_class = GpuClass(tier, _MODEL[0], random.choice(("spot", "on-demand")))
        whole = Amounts(**dict.fromkeys(CAPACITY_FIELDS, 0))
        for number in range(first, min(first + GPUS_PER_NODE, pods)):
            amounts = _amounts(random)
            facts.pods.append(PodFact(f"uid-{number}", node, gpu_class, amounts))
            whole.add(amounts)
        whole.capacity = whole.allocated
        facts.nodes.append(NodeFact(node, gpu_class, whole))
    return facts, _dimensions(pods, [fact.node for fact in facts.nodes])


def _amounts(random: Random) -> Amounts:
    busy = random.randrange(NANO)
    return Amounts(
        allocated=NANO,
        busy=busy,
        underused=NANO - busy,
        energy_mwh=random.randrange(400_000),
        memory_peak_mib=float(random.randrange(81_920)),
    )


def _dimensions(pods: int, nodes: list[str]) -> Dimensions:
    """Return ids for all names; facts refer to them without constraints."""
    spaces = [f"namespace-{n}" for n in range(NAMESPACES)]
    teams = {name: number % TEAMS + 1 for number, name in enumerate(spaces)}
    return Dimensions(
        cluster=Cluster.objects.get_or_create(name="bench-writing")[0].pk,
        pods={
            f"uid-{n}": PodIds(n + 1, n % WORKLOADS + 1, n % NAMESPACES + 1, spaces[n % NAMESPACES])
            for n in range(pods)
        },
        nodes={name: number for number, name in enumerate(nodes, start=1)},
        models={_MODEL[1]: 1},
        tiers={f"tier-{n}": n + 1 for n in range(TIERS)},
        team_of=teams.__getitem__,
    )


def write_again(facts: HourFacts, dimensions: Dimensions) -> None:
    """Write the hour as collecting does, in its transaction."""
    with gc_paused(), transaction.atomic():
        write.write_hour(HOUR, facts, dimensions, zone=_ZONE)


class BareTable(NamedTuple):
    """An empty table like one of facts, and the rows that go into it."""

    name: str
    columns: str
    rows: list[tuple[Any, ...]]

    @classmethod
    def like(cls, model: type[models.Model], columns: tuple[str, ...], cluster: int) -> "BareTable":
        """Make the table, and take the rows that a cluster has in the model's."""
        table = model._meta.db_table
        _create_like(table)
        words = ", ".join(columns)
        rows = _rows(f"SELECT {words} FROM {table} WHERE cluster_id = {cluster}")
        return cls(f"bare_{table}", words, rows)

    def insert(self) -> None:
        """Insert the rows in the fastest way that the database's driver has."""
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                with cursor.copy(f"COPY {self.name} ({self.columns}) FROM STDIN") as copy:
                    for row in self.rows:
                        copy.write_row(row)
                return
            places = ", ".join("?" * len(self.rows[0]))
            # Past Django's cursor, which would look at every value.
            connection.connection.executemany(
                f"INSERT INTO {self.name} ({self.columns}) VALUES ({places})", self.rows
            )

    def empty(self) -> None:
        """Empty the table, which is no part of what is measured."""
        verb = "TRUNCATE" if connection.vendor == "postgresql" else "DELETE FROM"
        with connection.cursor() as cursor:
            cursor.execute(f"{verb} {self.name}")


def _create_like(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS bare_{table}")
        if connection.vendor == "postgresql":
            cursor.execute(f"CREATE TABLE bare_{table} (LIKE {table} INCLUDING ALL)")
            return
        cursor.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name = %s AND sql IS NOT NULL "
            "ORDER BY type DESC",
            [table],
        )
        for (sql,) in cursor.fetchall():
            like = sql.replace(f'"{table}"', f'"bare_{table}"').replace('INDEX "', 'INDEX "bare_')
            cursor.execute(like)


def _rows(query: str) -> list[tuple[Any, ...]]:
    """Return rows in the form in which the driver takes them back."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())
    # Times are converted by the type of the column, which an expression has not.
    words, _, source = query.removeprefix("SELECT ").partition(" FROM ")
    plain = ", ".join(f"{word} || ''" if word == "hour" else word for word in words.split(", "))
    found = connection.connection.execute(f"SELECT {plain} FROM {source}")
    return [tuple(row) for row in found]


def measure(size: str) -> dict[str, Any]:
    """Return the seconds of both, and how many rows of all tables that were."""
    facts, dimensions = made(int(size))
    write_again(facts, dimensions)
    tables = [
        BareTable.like(model, columns, dimensions.cluster)
        for model, columns in (
            (PodHour, write.POD_COLUMNS),
            (NodeHour, write.NODE_COLUMNS),
            (TierHour, write.TIER_COLUMNS),
            (TeamHour, write.TEAM_COLUMNS),
        )
    ]

    @transaction.atomic
    def insert() -> None:
        for table in tables:
            table.insert()

    again: list[Timed] = []
    bare: list[Timed] = []
    for _ in range(REPETITIONS):
        again.append(timed(lambda: write_again(facts, dimensions)))
        bare.append(timed(insert))
        for table in tables:
            table.empty()
    return {
        "again_seconds": wall(again),
        "bare_seconds": wall(bare),
        "ratio": wall(again) / wall(bare),
        "rows": sum(len(table.rows) for table in tables),
    }

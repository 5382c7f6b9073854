"""Measurement: an hour of many pods written again, beside the bare insertion of the same rows.

Bare is one transaction with `COPY` (PostgreSQL) or `executemany` (SQLite) of rows that are ready
in memory, into empty tables with the same columns and indexes.
"""

from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection, transaction

from apps.clusters.models import Cluster
from apps.usage.domain.amounts import NANO, Amounts
from apps.usage.domain.holdings import Card
from apps.usage.domain.hour import HourFacts, NodeFact, PodFact
from apps.usage.models import NodeHour, PodHour, TeamHour, TierHour
from apps.usage.services import write
from apps.usage.services.dimensions import Dimensions, PodIds
from tests.bench.fleet import GPUS_PER_NODE, HOUR
from tests.bench.measuring import Timed, alternated, wall

TIERS = 4
NAMESPACES = 200
WORKLOADS = 2_000
_ZONE = ZoneInfo("UTC")


def made(pods: int) -> tuple[HourFacts, Dimensions]:
    """Return facts of an hour with so many pods, eight to a node, and ids for all they name."""
    random = Random("an hour to write")
    cluster = Cluster.objects.get_or_create(name="bench-writing")[0]
    facts = HourFacts()
    for first in range(0, pods, GPUS_PER_NODE):
        node = f"node-{first // GPUS_PER_NODE:05d}"
        tier = f"tier-{random.randrange(TIERS)}"
        card = Card(tier, "NVIDIA-A100-SXM4-80GB", random.choice(("spot", "on-demand")))
        whole = Amounts(capacity=0, unhealthy=0, unallocated=0, stranded=0, unattributed=0)
        for number in range(first, min(first + GPUS_PER_NODE, pods)):
            busy = random.randrange(NANO)
            amounts = Amounts(
                allocated=NANO,
                busy=busy,
                underused=NANO - busy,
                energy_mwh=random.randrange(400_000),
                memory_peak_mib=float(random.randrange(81_920)),
            )
            facts.pods.append(PodFact(f"uid-{number}", node, card, amounts))
            whole.add(amounts)
        whole.capacity = whole.allocated
        facts.nodes.append(NodeFact(node, card, whole))
    spaces = [f"namespace-{n}" for n in range(NAMESPACES)]
    dimensions = Dimensions(
        cluster=cluster.pk,
        pods={
            f"uid-{n}": PodIds(n + 1, n % WORKLOADS + 1, n % NAMESPACES + 1, spaces[n % NAMESPACES])
            for n in range(pods)
        },
        nodes={fact.node: number for number, fact in enumerate(facts.nodes, start=1)},
        models={"nvidiaa100sxm480gb": 1},
        tiers={f"tier-{n}": n + 1 for n in range(TIERS)},
        team_of=lambda namespace: int(namespace.rpartition("-")[2]) % 40 + 1,
    )
    return facts, dimensions


def write_again(facts: HourFacts, dimensions: Dimensions) -> None:
    """Write the hour as collecting does, in its transaction."""
    from apps.usage.services.write import write_hour

    with transaction.atomic():
        write.write_hour(HOUR, facts, dimensions, zone=_ZONE)


class Bare:
    """The rows of the hour, and empty tables like those they are in."""

    def __init__(self) -> None:
        from apps.usage.models import NodeHour, PodHour, TeamHour, TierHour
        from apps.usage.services import write

        columns = {
            PodHour: write.POD_COLUMNS,
            NodeHour: write.NODE_COLUMNS,
            TierHour: write.TIER_COLUMNS,
            TeamHour: write.TEAM_COLUMNS,
        }
        self._tables: list[tuple[str, str, int, list[tuple[Any, ...]]]] = []
        for model, names in columns.items():
            table = model._meta.db_table
            _create_like(table)
            words = ", ".join(names)
            self._tables.append((f"bare_{table}", words, len(names), _rows(table, words)))

    @property
    def rows(self) -> int:
        return sum(len(rows) for _, _, _, rows in self._tables)

    def empty(self) -> None:
        """Empty the tables, which is no part of what is measured."""
        from django.db import connection

        verb = "TRUNCATE" if connection.vendor == "postgresql" else "DELETE FROM"
        with connection.cursor() as cursor:
            for table, *_ in self._tables:
                cursor.execute(f"{verb} {table}")

    def insert(self) -> None:
        """Insert all rows in one transaction."""
        from django.db import connection, transaction

        with transaction.atomic(), connection.cursor() as cursor:
            for table, names, width, rows in self._tables:
                if connection.vendor == "postgresql":
                    with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                        for row in rows:
                            copy.write_row(row)
                else:
                    places = ", ".join("?" * width)
                    # Past Django's cursor, which would look at every value.
                    cursor.cursor.connection.executemany(
                        f"INSERT INTO {table} ({names}) VALUES ({places})",  # noqa: S608 - ours
                        rows,
                    )


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
            cursor.execute(
                sql.replace(f'"{table}"', f'"bare_{table}"').replace('INDEX "', 'INDEX "bare_')
            )


def _rows(table: str, names: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"SELECT {names} FROM {table}")  # noqa: S608 - ours
            return list(cursor.fetchall())
        # As they are stored: Django's cursor would turn times into objects.
        raw = cursor.cursor.connection
        factory = raw.execute(f"SELECT {names} FROM {table}")  # noqa: S608 - ours
        return [tuple(str(v) if _is_time(v) else v for v in row) for row in factory]


def _is_time(value: object) -> bool:
    return not isinstance(value, int | float | str | bytes | type(None))


def measure(pods: int) -> dict[str, Any]:
    """Return the seconds of both."""
    facts, dimensions = made(pods)
    write_again(facts, dimensions)
    bare = Bare()

    def insert() -> Sequence[object]:
        bare.insert()
        return ()

    bare.empty()
    found: dict[str, list[Any]] = {"again": [], "bare": []}
    for _ in range(5):
        once = alternated(
            {"again": lambda: write_again(facts, dimensions), "bare": insert}, repetitions=1
        )
        bare.empty()
        for name, times in once.items():
            found[name].extend(times)
    return {
        "again_seconds": wall(found["again"]),
        "bare_seconds": wall(found["bare"]),
        "ratio": wall(found["again"]) / wall(found["bare"]),
        "rows": bare.rows,
        "pods": pods,
    }

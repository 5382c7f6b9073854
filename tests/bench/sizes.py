"""`python -m tests.bench.sizes`: rows and bytes of a filled PostgreSQL, by table and by hour.

Everything is measured in the database of DATABASE_URL; the last column is scaled to 10,000 GPUs and
what is kept of the table in a year.
"""

import os
import sys

import django
from django.db import connection
from msgspec import Struct

HOURS_OF_YEAR = 8766
GPUS = 10_000
# Table → hours that are kept of it; see "What is kept" in docs/operations.md.
KEPT = {
    "usage_podhour": 90 * 24,
    "usage_nodehour": 90 * 24,
    "costs_workloadcosthour": 90 * 24,
    "quotas_quotakeyhour": 90 * 24,
    "fairness_teamfairnesshour": 90 * 24,
    "fairness_loanhour": 90 * 24,
    "usage_queuepending": 90 * 24,
    "usage_teamhour": HOURS_OF_YEAR,
    "usage_tierhour": HOURS_OF_YEAR,
    "costs_teamcosthour": HOURS_OF_YEAR,
    "usage_workloadday": HOURS_OF_YEAR,
    "usage_workloadactivityday": HOURS_OF_YEAR,
    "costs_workloadcostday": HOURS_OF_YEAR,
    "fairness_tierteamblob": HOURS_OF_YEAR,
    "clusters_pod": HOURS_OF_YEAR,
    "pending_episode": HOURS_OF_YEAR,
    "pending_causeinterval": HOURS_OF_YEAR,
}


class TableSize(Struct, frozen=True):
    """Rows and bytes of a table, indexes and long values included."""

    table: str
    rows: int
    bytes: int

    def kept_bytes(self, *, hours: int, gpus: float) -> float:
        """Return the bytes that a year leaves of it at GPUS, of `hours` measured at `gpus`."""
        return self.bytes / hours / gpus * GPUS * KEPT[self.table]


def sizes() -> list[TableSize]:
    """Return the size of each table, the largest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(pg_partition_root(oid), oid)::regclass::text, "
            "sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' "
            "AND relnamespace = 'public'::regnamespace GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        found = []
        for table, size in cursor.fetchall():
            cursor.execute(f'SELECT count(*) FROM "{table}"')  # noqa: S608 - our own names
            (rows,) = cursor.fetchone()
            found.append(TableSize(table, rows, size))
    return found


def measured_hours() -> tuple[int, float]:
    """Return the hours collected and the mean capacity in GPUs, of all clusters."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT hour), sum(capacity) / 1e9 FROM usage_tierhour")
        hours, gpu_hours = cursor.fetchone()
    return int(hours), float(gpu_hours) / hours


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")
    django.setup()
    hours, gpus = measured_hours()
    out = sys.stdout.write
    out(f"{hours:,} hours of {gpus:,.0f} GPUs\n")
    out(f"{'table':28}{'rows':>12}{'bytes/row':>11}{'rows/h':>10}{'GB at 10,000':>14}\n")
    total = 0.0
    for one in sizes():
        if one.table in KEPT and one.rows:
            kept = one.kept_bytes(hours=hours, gpus=gpus) / 1e9
            total += kept
            out(f"{one.table:28}{one.rows:>12,}{one.bytes / one.rows:>11,.0f}")
            out(f"{one.rows / hours:>10,.1f}{kept:>14,.2f}\n")
    out(f"{'together':28}{'':>33}{total:>14,.2f}\n")
    other = sum(one.bytes for one in sizes() if one.table not in KEPT)
    out(f"all other tables: {other / 1e6:,.0f} MB as measured\n")


if __name__ == "__main__":
    main()

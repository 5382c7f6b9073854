"""Hours of pods and nodes, and hourly costs, lie in partitions by month on PostgreSQL."""

import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from apps.costs.models import WorkloadCostHour
from apps.costs.services import prune as prune_costs
from apps.usage.models import Day, NodeHour, PodHour
from apps.usage.services import prune
from gpuportal.partitions import month_of, own_months, prepare_ahead, prepare_months
from tests.factories import make_cluster
from tests.servers import ROOT
from tests.upgrade.dumps import kept, restored

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite has plain tables"),
]
TABLES = ("usage_podhour", "usage_nodehour", "costs_workloadcosthour")
AUTUMN = datetime(2025, 9, 30, 22, tzinfo=UTC)
"""When October begins in Berlin: two hours of its first day are in September's partition."""


def rows(*hours: datetime, cluster: int = 1) -> None:
    of_tier = {"cluster_id": cluster, "tier_id": 1, "gpu_model_id": 1, "capacity_type": "owned"}
    of_team = {"team_id": 1, "namespace_id": 1, "workload_id": 1}
    PodHour.objects.bulk_create(
        PodHour(hour=hour, pod_id=1, **of_tier, **of_team) for hour in hours
    )
    NodeHour.objects.bulk_create(NodeHour(hour=hour, node_id=1, **of_tier) for hour in hours)
    WorkloadCostHour.objects.bulk_create(
        WorkloadCostHour(hour=hour, currency="USD", **of_tier, **of_team) for hour in hours
    )


def partitions_of(table: str) -> dict[str, int]:
    """Return how many rows each partition with rows has."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT tableoid::regclass::text, count(*) FROM {table} GROUP BY 1")  # noqa: S608
        return dict(cursor.fetchall())


def days(cluster: int, first: date, number: int, **of_day: Any) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for day in (first + timedelta(days=n) for n in range(number)):
        start, end = (
            datetime(one.year, one.month, one.day, tzinfo=berlin)
            for one in (day, day + timedelta(days=1))
        )
        Day.objects.create(cluster_id=cluster, day=day, start=start, end=end, **of_day)


def test_a_row_lies_in_the_partition_of_its_month_and_in_the_rest_without_one() -> None:
    for table in TABLES:
        assert prepare_months(table, [AUTUMN, AUTUMN]) == 1
        assert prepare_months(table, [AUTUMN]) == 0
    rows(AUTUMN, AUTUMN + timedelta(hours=2))
    for table in TABLES:
        assert partitions_of(table) == {f"{table}_2025_09": 1, f"{table}_rest": 1}
    # The task of each day makes months ahead, and that of the rows which had none.
    assert prepare_ahead(AUTUMN - timedelta(days=90)) == 9
    for table in TABLES:
        assert partitions_of(table) == {f"{table}_2025_09": 1, f"{table}_2025_10": 1}
    assert {month.month for month in own_months("usage_podhour")} == {7, 8, 9, 10}
    assert prepare_ahead(AUTUMN - timedelta(days=90)) == 0


def test_a_month_that_cannot_be_made_is_left_to_the_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> int:
        raise DatabaseError("permission denied for schema public")

    monkeypatch.setattr("gpuportal.partitions._make", refused)
    assert prepare_months("usage_podhour", [AUTUMN]) == 0
    assert "permission denied" in caplog.text
    rows(AUTUMN)
    assert partitions_of("usage_podhour") == {"usage_podhour_rest": 1}


def test_retention_drops_a_month_of_all_clusters_in_one_statement() -> None:
    berlin, bonn = make_cluster("berlin").pk, make_cluster("bonn").pk
    for table in TABLES:
        prepare_months(table, [AUTUMN, AUTUMN + timedelta(days=1)])
    hours = [AUTUMN + timedelta(hours=n) for n in range(-30, 40)]
    for cluster in (berlin, bonn):
        rows(*hours, cluster=cluster)
        days(cluster, date(2025, 9, 2), 31, rolled=True)
    assert prune(now=datetime(2025, 12, 28, tzinfo=UTC)) == 0, "its last day is not due"
    Day.objects.filter(cluster_id=bonn, day=date(2025, 9, 30)).update(rolled=False)
    later = datetime(2026, 1, 3, tzinfo=UTC)
    with transaction.atomic():
        assert prune(now=later) == 59, "day by day, as one of them is not rolled"
        transaction.set_rollback(True)
    Day.objects.update(rolled=True)
    with CaptureQueriesContext(connection) as asked:
        assert prune(now=later) == 60
    dropped = [one["sql"] for one in asked.captured_queries if "DROP" in one["sql"]]
    assert dropped == ["DROP TABLE usage_podhour_2025_09, usage_nodehour_2025_09"]
    # The day that lies in both months is gone in both of them.
    gone = AUTUMN + timedelta(hours=24)
    for model in (PodHour, NodeHour):
        assert model._default_manager.earliest("hour").hour == gone
        assert model._default_manager.count() == 2 * 16
    with CaptureQueriesContext(connection) as asked:
        assert prune_costs() > 0
    dropped = [one["sql"] for one in asked.captured_queries if "DROP" in one["sql"]]
    assert dropped == ["DROP TABLE costs_workloadcosthour_2025_09"]
    assert WorkloadCostHour.objects.earliest("hour").hour == gone
    assert own_months("usage_podhour") == {month_of(AUTUMN, 1)}


def test_a_query_of_some_hours_reads_their_month_alone() -> None:
    prepare_months("usage_podhour", [month_of(AUTUMN, later) for later in range(6)])
    span = PodHour.objects.filter(
        cluster_id=1, hour__gte=AUTUMN + timedelta(days=40), hour__lt=AUTUMN + timedelta(days=47)
    )
    assert "usage_podhour_2025_11" in span.explain()
    assert not [month for month in (9, 10, 12) if f"2025_{month:02}" in span.explain()]
    assert "rest" not in span.explain()


def migrate(url: str, *words: str) -> None:
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "manage.py", "migrate", "--verbosity=0", *words],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_rows_of_a_release_become_the_first_partition_and_go_back() -> None:
    with restored(kept()["0.1.0"]) as url, psycopg.connect(url, autocommit=True) as session:

        def asked(query: str) -> list[tuple[Any, ...]]:
            return list(session.execute(query.encode()))

        def indexes() -> set[tuple[Any, ...]]:
            return set(asked("SELECT indexname FROM pg_indexes WHERE tablename = 'usage_podhour'"))

        every = "SELECT * FROM usage_podhour ORDER BY id"
        before, names = asked(every), indexes()
        assert before
        # The way of a release to now is that of tests/deploy/test_running.py.
        migrate(url, "usage", "0003")
        ((first,),) = asked("SELECT DISTINCT tableoid::regclass::text FROM usage_podhour")
        assert first.startswith("usage_podhour_until_")
        # Columns that came since are the last ones.
        assert [row[: len(before[0])] for row in asked(every)] == before
        assert indexes() > names
        # Numbers go on where they were.
        ((number,),) = asked("SELECT nextval(pg_get_serial_sequence('usage_podhour', 'id'))")
        assert number > before[-1][0]
        migrate(url, "usage", "0002")
        assert asked(every) == before
        assert indexes() > names
        assert asked("SELECT relkind::text FROM pg_class WHERE relname = 'usage_podhour'") == [
            ("r",)
        ]

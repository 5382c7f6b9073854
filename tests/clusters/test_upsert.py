"""Upserted rows read back as Django itself would have written them, on both databases."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.db import DataError, connection, transaction

from apps.clusters.domain.window import from_seconds
from apps.clusters.models import Cluster, Namespace, Pod, Workload
from apps.clusters.services.pods.ledger_rows import upsert

pytestmark = pytest.mark.django_db
KEY = ("cluster_id", "uid")


@pytest.fixture
def plain() -> dict[str, Any]:
    """Return the columns of a pod whose values JSON and SQL could take for something else."""
    cluster = Cluster.objects.create(name="of-upsert")
    namespace = Namespace.objects.create(cluster=cluster, name="ns")
    workload = Workload.objects.create(namespace=namespace, kind="Job", name="train")
    return {
        "cluster_id": cluster.pk,
        "uid": "a",
        "workload_id": workload.pk,
        "name": 'it\'s 100 % "ünïcode" \\ {x}',
        "node_name": "",
        "resource": "nvidia.com/gpu",
        "units": 0.1,
        "requests": {"nvidia.com/gpu": 1.0, "ü'\"%": 2.5},
        "node_selector": {},
        "priority_class": "null",
        "created_at": from_seconds(1_700_000_000.123456),
        "ended_at": None,
        "runs": [[1.5, None], [1_700_000_000.123456, 2.0]],
        "claims": [],
        "end_reason": "",
        "source": "api",
        "lost": True,
        "estimated": "",
        "unschedulable": False,
        "gpu_equivalents": 1 / 3,
    }


def shown(uid: str) -> Mapping[str, Any]:
    row = Pod.objects.filter(uid=uid).values().get()
    return {column: value for column, value in row.items() if column not in {"id", "uid"}}


def test_rows_are_as_django_writes_them(plain: dict[str, Any]) -> None:
    upsert(Pod, [plain], unique=KEY)
    Pod.objects.create(**{**plain, "uid": "b"})
    assert shown("a") == shown("b")


def test_known_rows_change_in_the_columns_named_alone(plain: dict[str, Any]) -> None:
    upsert(Pod, [plain], unique=KEY)
    other = {**plain, "name": "other", "ended_at": from_seconds(1_700_000_100.0), "units": 7.0}
    upsert(Pod, [other, {**other, "uid": "new"}], unique=KEY)
    assert shown("a")["name"] == plain["name"]
    upsert(Pod, [other], unique=KEY, update=("name", "ended_at"))
    assert shown("a") == {**shown("new"), "units": 0.1}


def test_nothing_is_written_of_no_rows() -> None:
    upsert(Pod, [], unique=KEY, update=("name",))
    assert not Pod.objects.exists()


def test_text_that_a_database_refuses_is_an_error_of_data(plain: dict[str, Any]) -> None:
    # PostgreSQL takes no NUL in a text; SQLite does.
    row = {**plain, "name": "a\0b"}
    if connection.vendor == "postgresql":
        with pytest.raises(DataError), transaction.atomic():
            upsert(Pod, [row], unique=KEY)
    else:
        upsert(Pod, [row], unique=KEY)
    assert Pod.objects.exists() is (connection.vendor != "postgresql")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("lost", (False, 0)),
        ("units", (1.0, 1)),
        ("node_name", ("", "")),
        ("runs", ([], [])),
        ("requests", ({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1.0})),
        ("ended_at", (None, from_seconds(1_700_000_100.0))),
        ("created_at", (from_seconds(0.0), from_seconds(0.0))),
    ],
)
def test_each_row_has_its_own_values_however_many_are_alike(
    plain: dict[str, Any], column: str, values: tuple[Any, Any]
) -> None:
    one, other = ({**plain, "uid": uid, column: v} for uid, v in zip("ab", values, strict=True))
    upsert(Pod, [one, other], unique=KEY)
    for uid, row in (("c", one), ("d", other)):
        Pod.objects.create(**{**row, "uid": uid})
    assert shown("a") == shown("c")
    assert shown("b") == shown("d")

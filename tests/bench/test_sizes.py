"""What the sizing table is measured with."""

import pytest

from apps.operations.management.database_move import tables
from tests.bench.sizes import HOURS_OF_YEAR, KEPT, TableSize


def test_the_tables_are_there() -> None:
    assert KEPT.keys() <= {model._meta.db_table for model in tables()}


def test_a_year_is_scaled_by_hours_and_gpus() -> None:
    ten_hours = TableSize("usage_teamhour", rows=100, bytes=5_000)
    assert ten_hours.kept_bytes(hours=10, gpus=1_000) == pytest.approx(5_000 * HOURS_OF_YEAR)

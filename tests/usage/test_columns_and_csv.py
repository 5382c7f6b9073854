"""Columns with their units, and CSV that a spreadsheet opens without running anything."""

import csv
import io
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.columns import columns_of
from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import HELD_FIELDS, Amounts
from apps.usage.domain.columns import (
    GRADES,
    HeldFigures,
    LedgerFigures,
    collected_amounts,
    csv_line,
    flat,
    guarded,
    held_record,
    ledger_record,
    utc_text,
)
from apps.usage.domain.usage_query import PodRow

AT = datetime(2026, 3, 28, 12, tzinfo=UTC)
WINDOW = Window(AT, AT + timedelta(hours=2))


def test_amounts_become_gpu_hours_and_absent_ones_none() -> None:
    record = ledger_record(Amounts(allocated=1_500_000_001, busy=1, underused=1_500_000_000))
    assert record["allocated_gpu_hours"] == 1.500000001
    assert record["busy_gpu_hours"] == 1e-9
    assert record["capacity_gpu_hours"] is None
    assert record["allocation_ratio"] is None


def test_amounts_not_known_are_none_in_every_column() -> None:
    assert set(held_record(None).values()) == {None}
    assert list(held_record(None)) == list(held_record(Amounts()))


@given(st.fixed_dictionaries({name: st.integers(0, 10**15) for name in HELD_FIELDS}))
def test_the_grades_of_a_record_sum_to_what_was_allocated(parts: dict[str, int]) -> None:
    parts["allocated"] = sum(parts.values())
    record = ledger_record(Amounts(**parts))
    grades = record["grades"]
    assert isinstance(grades, dict)
    assert tuple(grades) == GRADES
    assert sum(grades.values()) == pytest.approx(record["allocated_gpu_hours"])


def test_a_flat_record_has_a_column_for_each_grade() -> None:
    flattened = flat({"a": 1, "grades": {"measured": 2.0, "inferred": 0.5}, "b": None})
    assert flattened == {
        "a": 1,
        "grades.measured": 2.0,
        "grades.apportioned": None,
        "grades.inferred": 0.5,
        "grades.unmeasured": None,
        "b": None,
    }


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (AT, "2026-03-28T12:00:00Z"),
        (datetime(2026, 3, 28, 12, tzinfo=timezone(timedelta(hours=5.5))), "2026-03-28T06:30:00Z"),
        (None, None),
    ],
)
def test_instants_are_written_in_utc(at: datetime | None, text: str | None) -> None:
    assert utc_text(at) == text


def pod(**values: Any) -> PodRow:
    given: dict[str, Any] = {
        **dict.fromkeys(("cluster", "namespace", "pod", "uid", "owner_kind", "owner"), "x"),
        **dict.fromkeys(("team", "tier", "gpu_model", "node", "resource"), "x"),
        **dict.fromkeys(("bound_at", "started_at", "finished_at", "end_reason")),
        "units": 1.0,
        "gpu_equivalents": 1.0,
        "created_at": AT - timedelta(days=1),
        "amounts": Amounts(),
    }
    return PodRow(**given | values)


@pytest.mark.parametrize(
    ("row", "known"),
    [
        (pod(), True),
        (pod(bound_at=WINDOW.end), True),
        (pod(bound_at=AT - timedelta(hours=1)), False),
        (pod(bound_at=AT, amounts=Amounts(allocated=1, busy=1)), True),
        # Refused by the kubelet in the second it was bound: it held nothing.
        (pod(bound_at=AT, finished_at=AT), True),
        (pod(bound_at=AT - timedelta(hours=2), finished_at=AT - timedelta(hours=1)), True),
        (pod(bound_at=AT, finished_at=AT + timedelta(minutes=5)), False),
        (pod(bound_at=AT - timedelta(hours=2), ended_at=AT - timedelta(hours=1)), True),
    ],
    ids=[
        *("waits", "bound later", "no hour", "held", "refused", "ended before", "short, no hour"),
        "deleted before",
    ],
)
def test_a_bound_pod_without_any_hour_is_not_known_rather_than_zero(
    row: PodRow, *, known: bool
) -> None:
    assert collected_amounts(row, WINDOW) == (row.amounts if known else None)


# ---------------------------------------------------------------- CSV


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("plain", "plain"),
        ("=1+1", "'=1+1"),
        ("+49", "'+49"),
        ("-x", "'-x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\tx", "'\tx"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("\uff0b1", "'\uff0b1"),
        ("\uff0d1", "'\uff0d1"),
        ("\uff20SUM(A1)", "'\uff20SUM(A1)"),
        ("a=b", "a=b"),
        ("", ""),
        (None, ""),
        (-1.5, "-1.5"),
        (1e-9, "1e-09"),
        (3, "3"),
        (True, "true"),
        (False, "false"),
        (Decimal("0.10"), "0.10"),
        (date(2026, 3, 28), "2026-03-28"),
        (AT, "2026-03-28T12:00:00+00:00"),
        ('say "hi", all', '"say ""hi"", all"'),
        ("=x,y", '"\'=x,y"'),
        ("two\nlines", '"two\nlines"'),
        ("\n=x", '"\'\n=x"'),
        ("\rx", '"\'\rx"'),
    ],
)
def test_a_cell_is_written_so_that_it_stays_what_it_is(cell: Any, text: str) -> None:
    assert csv_line(["a", cell]) == f"a,{text}\r\n"


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2)))
def test_every_text_is_read_back_and_none_starts_a_formula(rows: list[list[str]]) -> None:
    text = "".join(csv_line(row) for row in rows)
    found = list(csv.reader(io.StringIO(text, newline="")))
    assert found == [[guarded(cell) for cell in row] for row in rows]
    assert not any(
        cell[:1] in {*"=+-@\t\r\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"}
        for row in found
        for cell in row
        if cell
    )


def test_records_have_what_is_declared() -> None:
    assert ledger_record(Amounts()).keys() == {c.key for c in columns_of(LedgerFigures)}
    assert held_record(Amounts()).keys() == {c.key for c in columns_of(HeldFigures)}

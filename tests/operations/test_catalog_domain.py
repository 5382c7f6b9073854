"""Positions, instants and what a difference looks like."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.window import day_window
from apps.operations.domain.source_positions import (
    Problems,
    SourceNode,
    child,
    instant,
    known_zones,
    shown,
    zone_problem,
)
from apps.operations.domain.timeline import (
    HIGHEST_POSITION,
    SPACING,
    CatalogDifference,
    ColumnChange,
    RowAction,
    RowChange,
    positions,
)

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


@given(
    st.lists(st.sampled_from("abcdefghij"), unique=True),
    st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 40)),
)
def test_positions_increase_whatever_was_there(names: list[str], held: dict[str, int]) -> None:
    placed = positions(names, held)
    assert sorted(placed, key=placed.__getitem__) == names
    assert len(set(placed.values())) == len(names)
    assert all(0 <= place <= HIGHEST_POSITION for place in placed.values())


@pytest.mark.parametrize(
    ("names", "moved"),
    [
        pytest.param("abcd", "", id="the same"),
        pytest.param("abcde", "e", id="one more at the end"),
        pytest.param("xabcd", "x", id="one more in front"),
        pytest.param("abxycd", "xy", id="two more in the middle"),
        pytest.param("bcd", "", id="the first is gone"),
        pytest.param("bcda", "a", id="the first goes last"),
        pytest.param("dcba", "bcd", id="turned round: one can stay"),
    ],
)
def test_as_many_as_possible_keep_their_position(names: str, moved: str) -> None:
    before = positions("abcd", {})
    after = positions(names, before)
    assert {name for name in names if after[name] != before.get(name)} == set(moved)


def test_positions_are_numbered_anew_when_no_room_is_left() -> None:
    assert positions("axb", {"a": 7, "b": 8}) == {"a": SPACING, "x": 2 * SPACING, "b": 3 * SPACING}
    assert positions("ab", {"a": HIGHEST_POSITION}) == {"a": SPACING, "b": 2 * SPACING}
    many = [str(number) for number in range(40_000)]
    assert max(positions(many, {}).values()) <= HIGHEST_POSITION


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-01-01", "Europe/Berlin", datetime(2025, 12, 31, 23, tzinfo=UTC)),
        ("2026-07-01", "Europe/Berlin", datetime(2026, 6, 30, 22, tzinfo=UTC)),
        ("2026-01-01", "Asia/Kolkata", datetime(2025, 12, 31, 18, 30, tzinfo=UTC)),
        ("2026-01-01T06:00:00Z", "Asia/Kolkata", datetime(2026, 1, 1, 6, tzinfo=UTC)),
        ("2026-01-01t06:00:00.5+05:30", "UTC", datetime(2026, 1, 1, 0, 30, 0, 500_000, tzinfo=UTC)),
        ("2026-01-01 06:00:00z", "UTC", datetime(2026, 1, 1, 6, tzinfo=UTC)),
        ("1999-12-31T23:00:00Z", "Europe/Berlin", datetime(1999, 12, 31, 23, tzinfo=UTC)),
    ],
)
def test_a_date_begins_at_midnight_in_the_report_zone(
    text: str, zone: str, expected: datetime
) -> None:
    assert instant(text, ZoneInfo(zone)) == expected


@pytest.mark.parametrize("text", ["1999-12-31", "1999-12-31T22:59:59Z", "0001-01-01T00:00:00Z"])
def test_nothing_is_older_than_the_first_day(text: str) -> None:
    with pytest.raises(ValueError, match="does not lie between"):
        instant(text, ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("UTC", None),
        ("Europe/Berlin", None),
        ("Asia/Kolkata", None),
        ("Australia/Lord_Howe", "Australia/Lord_Howe shifts its clocks by half an hour"),
        ("America/St_Johns", None),
        ("Asia/Kathmandu", "Asia/Kathmandu is at UTC+05:45, not a whole number of half hours"),
        ("Australia/Eucla", "Australia/Eucla is at UTC+08:45, not a whole number of half hours"),
        ("Pacific/Chatham", "Pacific/Chatham is at UTC+12:45, not a whole number of half hours"),
        ("Mars/Olympus", "no time zone of that name"),
        ("America", "no time zone of that name"),
        ("../../etc/passwd", "no time zone of that name"),
    ],
)
def test_zones_whose_days_are_no_whole_hours_are_refused_with_the_reason(
    name: str, reason: str | None
) -> None:
    found = zone_problem(name, NOW)
    assert found is None if reason is None else str(found).startswith(reason)


def test_each_day_of_a_zone_that_a_catalog_may_name_is_a_whole_number_of_hours() -> None:
    """Nothing of a day is outside its hours, whatever a zone does with its clocks."""
    odd = {
        name
        for name in known_zones()
        if zone_problem(name, NOW) is None
        for day in range(366)
        if day_window((NOW + timedelta(days=day)).date(), ZoneInfo(name)).seconds % 3600
    }
    assert odd == set()


def test_a_zone_that_was_off_the_half_hour_long_ago_will_do() -> None:
    assert zone_problem("Africa/Monrovia", NOW) is None
    past = zone_problem("Africa/Monrovia", datetime(1971, 6, 1, tzinfo=UTC))
    assert past is not None
    assert "UTC-00:44" in past


def test_a_difference_is_told_in_plain_lines() -> None:
    difference = CatalogDifference(
        (
            RowChange(
                RowAction.ADDED, "team", "vision", (ColumnChange("cost_center", None, "CC-100"),)
            ),
            RowChange(
                RowAction.CHANGED,
                "tier rule",
                "a",
                (
                    ColumnChange("resources", ("x",), ("x", "y")),
                    ColumnChange("node_selector", {"k": "v"}, {}),
                    ColumnChange("position", 1, 2),
                    ColumnChange("per_gpu_hour", Decimal("3.06000000"), Decimal("10")),
                    ColumnChange("gpus", 12.0, 0.5),
                    ColumnChange("active", False, True),
                    ColumnChange("valid_to", NOW, None),
                ),
                NOW,
            ),
            RowChange(RowAction.CLOSED, "price", "A100", (), NOW),
        )
    )
    assert list(difference.texts()) == [
        "added team vision: cost_center CC-100",
        "changed tier rule a from 2026-11-21T08:00:00+00:00: resources [x] → [x, y], "
        "node_selector {k: v} → none, position 1 → 2, per_gpu_hour 3.06 → 10, gpus 12 → 0.5, "
        "active false → true, valid_to 2026-11-21T08:00:00+00:00 → none",
        "closed price A100 from 2026-11-21T08:00:00+00:00",
    ]
    assert difference.counts() == {RowAction.ADDED: 1, RowAction.CHANGED: 1, RowAction.CLOSED: 1}
    assert not difference.is_empty
    assert CatalogDifference().is_empty


def test_values_are_shown_short_and_on_one_line() -> None:
    assert shown("x" * 100) == '"' + "x" * 59 + '…"'
    assert shown('a"\n\x1b[31m') == '"a\\"\\n\\x1b[31m"'
    assert shown("postgres://me:hunter2@db/x") == '"postgres://…@db/x"'
    assert shown(None) == "nothing"
    assert shown(True) == "true"
    assert shown(1.5) == "1.5"
    assert shown({}) == "a mapping"
    assert shown(()) == "a list"


def test_a_path_is_clean_when_nothing_is_wrong_at_above_or_below_it() -> None:
    root = SourceNode({"a": SourceNode((SourceNode(1, 2),), 1)}, 1)
    problems = Problems(root)
    problems.add(("a", 0), "wrong")
    problems.add(("a", 7, "b"), "wrong too")
    assert not problems.clean(("a",))
    assert not problems.clean(("a", 0))
    assert not problems.clean(("a", 0, "x"))
    assert problems.clean(("a", 1), ("b",))
    assert not problems.clean(("b",), ("a", 7))
    assert [problem.line for problem in problems.found] == [2, 1]
    assert child(None, "a") is None

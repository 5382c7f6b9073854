"""Rows with a span: how catalogs close and open them, and what they must never rewrite."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.rows import DatedRecord
from apps.accounts.domain.structs import replace
from apps.operations.domain.timeline import (
    DesiredRow,
    RecordKind,
    RowAction,
    TimelinePlan,
    plan_dated,
)


class Rule(DatedRecord, frozen=True):
    """A row as the tests need it: one key, one value."""

    value: str
    key: str = "k"


def _kind(*, corrects: bool = False) -> RecordKind[Rule]:
    return RecordKind(
        "rule", key=lambda r: r.key, name=lambda r: r.key, columns=("value",), corrects=corrects
    )


def day(number: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)


def held(*spans: tuple[str, float, float | None]) -> list[Rule]:
    return [
        Rule(value, valid_from=day(start), valid_to=None if end is None else day(end), pk=pk)
        for pk, (value, start, end) in enumerate(spans, start=1)
    ]


def wish(value: str, start: float | None = None) -> DesiredRow[Rule]:
    return DesiredRow(Rule(value, valid_from=None if start is None else day(start)), ("rules", 0))


def planned(
    rows: list[Rule], *wishes: DesiredRow[Rule], now: float, corrects: bool = False
) -> TimelinePlan[Rule]:
    return plan_dated(rows, wishes, _kind(corrects=corrects), now=day(now), opening=day(now))


def applied(rows: list[Rule], plan: TimelinePlan[Rule]) -> list[Rule]:
    """Return the rows as a database would hold them after the plan."""
    left = {row.pk: row for row in rows if row.pk not in plan.withdrawn}
    for row in plan.saved:
        pk = row.pk or max((*(key for key in left if key), *(r.pk or 0 for r in rows), 0)) + 1
        left[pk] = replace(row, pk=pk)
    return sorted(left.values(), key=lambda row: row.valid_from or day(0))


def spans(rows: list[Rule]) -> list[tuple[str, float, float | None]]:
    def number(at: datetime | None) -> float | None:
        return None if at is None else (at - day(0)) / timedelta(days=1)

    return [(row.value, number(row.valid_from) or 0.0, number(row.valid_to)) for row in rows]


CASES = [
    pytest.param([], [("a", None)], 10, [("a", 10, None)], "added", id="a new rule opens now"),
    pytest.param([], [("a", 3)], 10, [("a", 3, None)], "added", id="or at its valid_from"),
    pytest.param(
        [("a", 0, None)], [("a", None)], 10, [("a", 0, None)], "", id="unchanged stays untouched"
    ),
    pytest.param(
        [("a", 0, None)], [("a", 5)], 10, [("a", 0, None)], "", id="unchanged, later valid_from"
    ),
    pytest.param(
        [("a", 0, None)],
        [("b", None)],
        10,
        [("a", 0, 10), ("b", 10, None)],
        "changed",
        id="a change closes the old and opens the new now",
    ),
    pytest.param(
        [("a", 0, None)],
        [("b", 5)],
        10,
        [("a", 0, 5), ("b", 5, None)],
        "changed",
        id="or at its valid_from in the past",
    ),
    pytest.param(
        [("a", 0, None)],
        [("b", 15)],
        10,
        [("a", 0, 15), ("b", 15, None)],
        "changed",
        id="or in the future",
    ),
    pytest.param([("a", 0, None)], [], 10, [("a", 0, 10)], "closed", id="what is gone is closed"),
    pytest.param([("a", 0, 5)], [], 10, [("a", 0, 5)], "", id="what is closed stays so"),
    pytest.param(
        [("a", 0, 5)],
        [("a", None)],
        10,
        [("a", 0, 5), ("a", 10, None)],
        "added",
        id="what comes back leaves its gap",
    ),
    pytest.param(
        [("a", 0, 15), ("b", 15, None)],
        [("a", None)],
        10,
        [("a", 0, None)],
        "changed withdrawn",
        id="a plan is withdrawn before it takes effect",
    ),
    pytest.param(
        [("a", 0, 15), ("b", 15, None)],
        [("c", 15)],
        10,
        [("a", 0, 15), ("c", 15, None)],
        "corrected",
        id="a plan is rewritten",
    ),
    pytest.param(
        [("a", 0, 15), ("b", 15, None)],
        [("b", 20)],
        10,
        [("a", 0, 20), ("b", 20, None)],
        "corrected",
        id="a plan is put off",
    ),
    pytest.param(
        [("a", 0, 15), ("b", 15, None)],
        [("c", None)],
        10,
        [("a", 0, 10), ("c", 10, None)],
        "changed withdrawn",
        id="a change now comes before a plan",
    ),
    pytest.param(
        [("a", 0, 15), ("b", 15, None)],
        [],
        10,
        [("a", 0, 10)],
        "closed withdrawn",
        id="all is gone",
    ),
    pytest.param(
        [("a", 8, None)], [("a", 2)], 10, [("a", 2, None)], "corrected", id="dated back alone"
    ),
    pytest.param(
        [("a", 0, 5)], [("a", 3)], 10, [("a", 0, None)], "changed", id="closed and opened again"
    ),
    pytest.param(
        [("a", 10, None)],
        [("b", None)],
        10,
        [("b", 10, None)],
        "corrected",
        id="twice at the same moment",
    ),
    pytest.param(
        [],
        [("a", 0), ("b", 5), ("b", 7)],
        10,
        [("a", 0, 5), ("b", 5, None)],
        "added changed",
        id="several dated ones follow each other",
    ),
    pytest.param(
        [("a", 0, 5), ("b", 5, None)],
        [("b", 5), ("c", 20)],
        10,
        [("a", 0, 5), ("b", 5, 20), ("c", 20, None)],
        "changed",
        id="older history stays when the catalog drops it",
    ),
]


@pytest.mark.parametrize(("before", "wishes", "now", "after", "actions"), CASES)
def test_spans_after_a_load(
    before: list[tuple[str, float, float | None]],
    wishes: list[tuple[str, float | None]],
    now: float,
    after: list[tuple[str, float, float | None]],
    actions: str,
) -> None:
    rows = held(*before)
    plan = planned(rows, *(wish(*w) for w in wishes), now=now)
    assert plan.refused == []
    assert spans(applied(rows, plan)) == after
    assert [change.action for change in plan.changes] == [
        RowAction(word) for word in actions.split()
    ]


REFUSED = [
    pytest.param(
        [("a", 0, None)],
        ("b", 0),
        "changes rule k from 2026-01-01T00:00:00+00:00 on, when the loaded one began",
        id="the whole history of what is in force",
    ),
    pytest.param(
        [("a", 0, 5), ("b", 5, None)],
        ("c", 3),
        "would take effect before 2026-01-06T00:00:00+00:00, since when other values of rule k",
        id="a rule that began later",
    ),
]


@pytest.mark.parametrize(("before", "asked", "reason"), REFUSED)
def test_what_is_in_force_is_not_rewritten(
    before: list[tuple[str, float, float | None]], asked: tuple[str, float], reason: str
) -> None:
    plan = planned(held(*before), wish(*asked), now=10)
    ((path, text),) = plan.refused
    assert path == ("rules", 0)
    assert text.startswith(reason)
    assert (plan.saved, plan.withdrawn, plan.changes) == ([], [], [])


def test_a_kind_that_is_told_by_its_date_may_be_put_right() -> None:
    rows = held(("a", 0, None))
    plan = planned(rows, wish("b", 0), now=10, corrects=True)
    assert spans(applied(rows, plan)) == [("b", 0, None)]
    assert [str(change) for change in plan.changes] == [
        "corrected rule k from 2026-01-01T00:00:00+00:00: value a → b"
    ]


def test_keys_do_not_touch_each_other() -> None:
    rows = [*held(("a", 0, None)), Rule("x", "other", valid_from=day(0), pk=7)]
    plan = planned(rows, wish("a"), now=10)
    assert plan.saved == [Rule("x", "other", valid_from=day(0), valid_to=day(10), pk=7)]


_LOADS = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.one_of(
            st.none(), st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(-20, 60)))
        ),
    ),
    max_size=6,
)


@given(_LOADS, st.booleans())
def test_loads_in_any_order_keep_history_and_never_overlap(
    loads: list[tuple[int, tuple[str, int | None] | None]],
    corrects: bool,
) -> None:
    rows: list[Rule] = []
    now = 0
    for later, asked in loads:
        now += later
        wishes = [] if asked is None else [wish(*asked)]
        plan = planned(rows, *wishes, now=now, corrects=corrects)
        if plan.refused:
            assert (plan.saved, plan.withdrawn, plan.changes) == ([], [], [])
            continue
        after = applied(rows, plan)
        start = now if asked is None or asked[1] is None else asked[1]
        for at in range(-25, 70):
            if at < start and not (asked and _value(rows, at) is None):
                assert _value(after, at) == _value(rows, min(at, now))
            if at >= start:
                assert _value(after, at) == (asked[0] if asked else None)
        assert all(_start(rows, pk) >= day(now) for pk in plan.withdrawn)
        bounds = [(row.valid_to, later.valid_from) for row, later in pairwise(after)]
        assert all(end and start and end <= start for end, start in bounds)
        assert bool(plan.changes) == bool(plan.saved or plan.withdrawn)
        again = planned(after, *wishes, now=now + 1, corrects=corrects)
        assert (again.saved, again.withdrawn, again.changes) == ([], [], [])
        rows = after


def _start(rows: list[Rule], pk: int) -> datetime:
    return next(row.valid_from for row in rows if row.pk == pk and row.valid_from)


def _value(rows: list[Rule], at: float) -> str | None:
    """Return the one value that holds on a day, None where none does."""
    values = [r.value for r in rows if r.valid_from and r.valid_from <= day(at) and _open(r, at)]
    assert len(values) <= 1
    return values[0] if values else None


def _open(row: Rule, at: float) -> bool:
    return row.valid_to is None or day(at) < row.valid_to

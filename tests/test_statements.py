"""Which tests SQLite learns nothing new of."""

import pytest

from tests.statements import MANY, Recorded, repeated, repeats, shape


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT a FROM t WHERE b IN (%s, %s)", "SELECT a FROM t WHERE b IN (%s)"),
        ("INSERT INTO t VALUES (%s, %s), (%s, %s)", "INSERT INTO t VALUES (%s, %s)"),
        ("SELECT a FROM t LIMIT 21", "SELECT a FROM t LIMIT 7"),
        ('SAVEPOINT "s140_x1"', 'RELEASE SAVEPOINT "s140_x2"'),
    ],
)
def test_values_and_lengths_of_lists_make_no_other_statement(one: str, other: str) -> None:
    assert shape(one) == shape(other)


@pytest.mark.parametrize(
    "other",
    [
        "SELECT a FROM t WHERE c IN (%s)",
        f"SELECT a FROM t WHERE b IN ({', '.join(['%s'] * (MANY + 1))})",  # noqa: S608 - it is not made
    ],
)
def test_other_columns_and_very_many_values_do(other: str) -> None:
    assert shape(other) != shape("SELECT a FROM t WHERE b IN (%s)")


def test_every_statement_is_still_made_and_at_the_least_cost() -> None:
    recorded = {
        "both": Recorded({"a", "b"}, 1.0),
        "first": Recorded({"a"}, 2.0),
        "own": Recorded({"a", "c"}, 9.0),
        "processes": Recorded(set(), 20.0, is_listed=False),
        "cheap": Recorded({"b"}, 0.01),
    }
    left_out = repeats(recorded)
    assert left_out == ["both", "first"]
    kept = [one.statements for name, one in recorded.items() if name not in left_out]
    assert set().union(*kept) == {"a", "b", "c"}


def test_the_list_names_functions_of_tests() -> None:
    assert len(repeated()) > 100
    assert not [name for name in repeated() if "::test_" not in name or "[" in name]

"""Which tests make only statements that other tests make too: SQLite learns nothing new of these.

`make repeats` runs the tests of SQLite with this plugin and writes their names to `LIST`. `make
check` runs them on PostgreSQL alone, and `make check-full` on both. A new test runs on both.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from msgspec import Struct, field

LIST = Path(__file__).with_suffix(".txt")
LEAST_SECONDS = 0.1
"""CPU time of a function's variants: leaving out what takes less saves nothing."""
MANY = 300
"""Values of a statement."""

_SHAPES = (
    (re.compile(r'.*SAVEPOINT "?s\d+_x\d+"?', re.DOTALL), "SAVEPOINT"),
    (re.compile(r"'[^']*'"), "''"),
    (re.compile(r"\b\d+\b"), "0"),
    # Lists of any length: IN (%s, %s), and rows of VALUES.
    (re.compile(r"%s(?:, %s)+"), "%s"),
    (re.compile(r"\(%s\)(?:, \(%s\))+"), "(%s)"),
    (re.compile(r"(\(CASE .*?END\))(?:, \1)+"), r"\1"),
    (re.compile(r"%s(?: UNION ALL SELECT %s)+"), "%s"),
)


class Recorded(Struct):
    """What a test function made of the database, with all its variants."""

    statements: set[str] = field(default_factory=set)
    seconds: float = 0.0
    is_listed: bool = True
    """Whether it may be left out: not where processes make statements that are not seen here."""


def shape(sql: str) -> str:
    """Return a statement without its values and the lengths of its lists.

    One of very many values is another one: databases have limits.
    """
    extent = " of many" if sql.count("%s") > MANY else ""
    for pattern, instead in _SHAPES:
        sql = pattern.sub(instead, sql)
    return sql + extent


def repeats(recorded: Mapping[str, Recorded]) -> list[str]:
    """Return the functions without which every statement is still made, at the least cost."""
    left = {name for name, one in recorded.items() if one.is_listed}
    made = {one for name in recorded.keys() - left for one in recorded[name].statements}
    chosen: list[str] = []

    def gain(name: str) -> tuple[float, str]:
        new = recorded[name].statements - made
        return len(new) / (recorded[name].seconds + 0.01), name

    while left and gain(best := max(left, key=gain))[0]:
        made |= recorded[best].statements
        chosen.append(best)
        left.remove(best)
    # Those that were chosen later may make all that an earlier one was chosen for.
    makers = Counter(one for name in recorded.keys() - left for one in recorded[name].statements)
    for name in sorted(chosen, key=lambda name: -recorded[name].seconds):
        if all(makers[one] > 1 for one in recorded[name].statements):
            makers.subtract(recorded[name].statements)
            left.add(name)
    return sorted(name for name in left if recorded[name].seconds >= LEAST_SECONDS)


def repeated() -> frozenset[str]:
    """Return the functions of the list."""
    return frozenset(LIST.read_text(encoding="utf-8").split())


def function_of(item: pytest.Item) -> str:
    """Return the name of a test without that of its variant."""
    return item.nodeid.partition("[")[0]


_recorded: dict[str, Recorded] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the statements that a test makes, with those of the fixtures that begin with it."""
    one = _recorded.setdefault(function_of(item), Recorded())
    one.is_listed &= item.get_closest_marker("long") is None
    before = time.process_time()

    def note(execute: Callable[..., Any], sql: str, *given: Any) -> Any:
        one.statements.add(shape(str(sql)))
        return execute(sql, *given)

    try:
        with connection.execute_wrapper(note):
            return (yield)
    finally:
        one.seconds += time.process_time() - before


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the list, when all ran."""
    if not session.testsfailed:
        LIST.write_text("".join(f"{name}\n" for name in repeats(_recorded)), encoding="utf-8")

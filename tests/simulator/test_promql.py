"""What the lab's parser reads, and what it says to what it does not."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.prometheus.promql import (
    Aggregation,
    BadQuery,
    Call,
    Compared,
    Matcher,
    NotEvaluated,
    Selector,
    duration_ms,
    parse,
)

UP = Matcher("__name__", "=", "up")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("up", Selector((UP,)), id="name"),
        pytest.param("up{}", Selector((UP,)), id="no matchers"),
        pytest.param(
            'up{a="1",b!="2",c=~"3|4",d!~"5.*",}',
            Selector(
                (
                    UP,
                    Matcher("a", "=", "1"),
                    Matcher("b", "!=", "2"),
                    Matcher("c", "=~", "3|4"),
                    Matcher("d", "!~", "5.*"),
                )
            ),
            id="every matcher",
        ),
        pytest.param(
            '{__name__=~"DCGM_.*"}', Selector((Matcher("__name__", "=~", "DCGM_.*"),)), id="by name"
        ),
        pytest.param("up[30m]", Selector((UP,), 1_800_000), id="range"),
        pytest.param("up [ 1h30m ]", Selector((UP,), 5_400_000), id="compound duration, blanks"),
        pytest.param(
            "sum_over_time(up[5m])",
            Call("sum_over_time", Selector((UP,), 300_000)),
            id="function",
        ),
        pytest.param(
            "sum by (a, b) (count_over_time(up[5m]))",
            Aggregation("sum", ("a", "b"), Call("count_over_time", Selector((UP,), 300_000))),
            id="aggregation",
        ),
        pytest.param(
            "max(up) > 0", Compared(Aggregation("max", (), Selector((UP,))), ">", 0.0), id="above"
        ),
        pytest.param(
            "max(up) != 0", Compared(Aggregation("max", (), Selector((UP,))), "!=", 0.0), id="not"
        ),
        pytest.param("max(up)", Aggregation("max", (), Selector((UP,))), id="without by"),
        pytest.param(
            "count(up) by (a)", Aggregation("count", ("a",), Selector((UP,))), id="by behind"
        ),
        pytest.param(
            "group by () (up)", Aggregation("group", (), Selector((UP,))), id="by nothing"
        ),
        pytest.param(
            "count(count by (a) (up))",
            Aggregation("count", (), Aggregation("count", ("a",), Selector((UP,)))),
            id="nested",
        ),
        pytest.param("(up)", Selector((UP,)), id="parentheses"),
        pytest.param("up # {not read", Selector((UP,)), id="comment"),
        pytest.param(
            "sum{a='b'}",
            Selector((Matcher("__name__", "=", "sum"), Matcher("a", "=", "b"))),
            id="a metric named like an aggregation",
        ),
    ],
)
def test_queries_of_the_grammar_are_read(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        pytest.param('"a\\"b"', 'a"b', id="quote"),
        pytest.param("'it\\'s'", "it's", id="single quotes"),
        pytest.param('"a\\\\b"', "a\\b", id="backslash"),
        pytest.param('"a\\nb\\tc"', "a\nb\tc", id="newline and tab"),
        pytest.param('"\\x41\\u00e9\\U0001F600\\101"', "Aé😀A", id="numbers"),
        pytest.param("`a\\n\"b'`", "a\\n\"b'", id="raw"),
        pytest.param('"nvidia\\\\.com"', "nvidia\\.com", id="escaped regex"),
    ],
)
def test_strings_are_unescaped_as_promql_does(literal: str, value: str) -> None:
    expression = parse(f"up{{a={literal}}}")

    assert isinstance(expression, Selector)
    assert expression.matchers[1].value == value


@pytest.mark.parametrize(
    ("operator", "value", "text", "expected"),
    [
        ("=", "a", "a", True),
        ("=", "", "", True),
        ("!=", "a", "", True),
        ("=~", "a|b", "b", True),
        ("=~", "a", "ab", False),
        ("=~", "a.*", "ab", True),
        ("!~", "a|b", "c", True),
        ("!~", "a|b", "a", False),
    ],
)
def test_matchers_compare_whole_values(
    operator: str, value: str, text: str, *, expected: bool
) -> None:
    assert Matcher("l", operator, value).matches(text) is expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "end of input", id="empty"),
        pytest.param("up{", "end of input", id="open brace"),
        pytest.param('up{a="1" b="2"}', "expected ','", id="no comma"),
        pytest.param("up{a=1}", "expected string", id="number as value"),
        pytest.param('up{a>"1"}', "label matching", id="wrong operator"),
        pytest.param('up{a=~"("}', "error parsing regexp", id="broken regex"),
        pytest.param('up{a="\\q"}', "unknown escape sequence", id="unknown escape"),
        pytest.param('up{a="x}', "unexpected character", id="open string"),
        pytest.param("up[5]", "expected duration", id="range without unit"),
        pytest.param("up[0s]", "greater than 0", id="empty range"),
        pytest.param("up[5m", "expected ']'", id="open range"),
        pytest.param("{}", "at least one non-empty matcher", id="no matcher"),
        pytest.param('{a=~".*"}', "at least one non-empty matcher", id="matches nothing too"),
        pytest.param("sum(up[5m])", "expected type instant vector", id="sum of a range"),
        pytest.param("sum_over_time(up)", "expected type range vector", id="function of instant"),
        pytest.param('up{__name__="down"}', "must not be set twice", id="two names"),
        pytest.param("sum by (1) (up)", "expected label", id="number as label"),
        pytest.param("sum by (a) (up) by (b)", "grouping given twice", id="by twice"),
        pytest.param("up up", "unexpected 'up'", id="two queries"),
        pytest.param("up)", "unexpected ')'", id="stray parenthesis"),
        pytest.param("%", "operator", id="operator alone"),
    ],
)
def test_what_is_no_query_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises((BadQuery, NotEvaluated), match="(?i)" + _literally(says)):
        parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("up + up", "'+'", id="operator"),
        pytest.param("sum(up) / 2", "'/'", id="division"),
        pytest.param("up == 1", "'=='", id="comparison"),
        pytest.param("up and down", "'and'", id="set operator"),
        pytest.param("up offset 5m", "'offset'", id="offset"),
        pytest.param("up @ 1", "'@'", id="at"),
        pytest.param("1", "literals", id="number"),
        pytest.param("-up", "literals or operators", id="negation"),
        pytest.param("rate(up[5m])", "rate()", id="other function"),
        pytest.param("sum without (a) (up)", "without", id="without"),
        pytest.param("max_over_time(up[1h:5m])", "subqueries", id="subquery"),
        pytest.param("max_over_time(sum(up)[1h:5m])", "subqueries", id="subquery of a sum"),
        pytest.param("topk(3, up)", "topk()", id="other aggregation"),
    ],
)
def test_promql_beyond_the_grammar_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(NotEvaluated, match=_literally(says)):
        parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30m", 1_800_000), ("1h30m", 5_400_000), ("90s", 90_000), ("1d", 86_400_000), ("5ms", 5)],
)
def test_durations_are_read_in_milliseconds(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "m", "5", "5x", "1m1h", "-5m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        duration_ms(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(BadQuery, NotEvaluated):
        parse(text)


@given(st.text(max_size=30))
def test_an_escaped_value_is_read_back(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    expression = parse(f'up{{a="{escaped}"}}')

    assert isinstance(expression, Selector)
    assert expression.matchers[1].value == value


def _literally(text: str) -> str:
    return "".join(f"\\{c}" if c in "()[]{}.+*?|^$" else c for c in text)

"""Parses the part of PromQL that the portal uses; anything else is refused by name.

Grammar: AGG [by (labels)] (EXPR), FUNC(SELECTOR[RANGE]), timestamp(SELECTOR), SELECTOR and
SELECTOR[RANGE], each also > NUMBER or != NUMBER; matchers = != =~ !~ with PromQL's string escapes;
durations such as 30m or 1h30m.
"""

import re
from functools import lru_cache

from msgspec import Struct

AGGREGATIONS = ("sum", "max", "min", "count", "group", "avg")
FUNCTIONS = (
    "sum_over_time",
    "count_over_time",
    "max_over_time",
    "min_over_time",
    "avg_over_time",
    "last_over_time",
    "present_over_time",
    "increase",
)
COMPARISONS = (">", "!=")
OF_INSTANTS = ("timestamp",)
"""Functions of an instant vector; those above are of a range."""
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_DURATION = re.compile(
    r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?\Z"
)
_UNITS_MS = (31_536_000_000, 604_800_000, 86_400_000, 3_600_000, 60_000, 1000, 1)
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+|\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)
      | (?P<operator>=~|!~|!=|==|>=|<=|[-+*/%^<>=@])
      | (?P<duration>\d+(?:ms|[smhdwy])(?:\d+(?:ms|[smhdwy]))*)(?![a-zA-Z0-9_])
      | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<mark>[(){}\[\],:])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\\"'])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))",
    re.DOTALL,
)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class BadQuery(Exception):
    """The text is not PromQL: `bad_data`."""


class NotEvaluated(Exception):
    """PromQL that this stand-in does not evaluate, or cannot: `execution`."""


class Matcher(Struct, frozen=True):
    label: str
    operator: str
    value: str

    def matches(self, text: str) -> bool:
        """Say whether a label's value matches; a missing label has the value ""."""
        if self.operator == "=":
            return text == self.value
        if self.operator == "!=":
            return text != self.value
        found = _pattern(self.value).fullmatch(text) is not None
        return found == (self.operator == "=~")


class Selector(Struct, frozen=True):
    """Series by name and labels; `range_ms` None for an instant."""

    matchers: tuple[Matcher, ...]
    range_ms: int | None = None


class Call(Struct, frozen=True):
    function: str
    of: Selector


class Aggregation(Struct, frozen=True):
    operation: str
    by: tuple[str, ...]
    of: "Expression"


class Compared(Struct, frozen=True):
    """The rows of an expression whose value is `>` or `!=` a number; the others are left out."""

    of: "Expression"
    operator: str
    number: float


Expression = Selector | Call | Aggregation | Compared


@lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def parse(text: str) -> Expression:
    """Return the expression that `text` writes down.

    Raises BadQuery for what is no PromQL, NotEvaluated for PromQL beyond the grammar above.
    """
    parser = _Parser(text)
    expression = parser.compared()
    parser.finish()
    return expression


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `30m`; raises BadQuery for others."""
    match = _DURATION.match(text)
    if not text or match is None:
        raise BadQuery(f"not a valid duration string: {text!r}")
    return sum(int(n) * unit for n, unit in zip(match.groups(), _UNITS_MS, strict=True) if n)


def unquote(text: str) -> str:
    """Return what a PromQL string literal stands for."""
    if text[0] == "`":
        return text[1:-1]
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    letter, byte, short, long, octal, other = match.groups()
    if letter:
        return _LETTERS.get(letter, letter)
    if other:
        raise BadQuery(f"unknown escape sequence {match[0]!r} in a string")
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    if code > 0x10FFFF:
        raise BadQuery(f"escape sequence {match[0]!r} is beyond Unicode")
    return chr(code)


class _Parser:
    """A recursive descent over the tokens of one query."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def expression(self) -> Expression:
        kind, text = self._peek()
        if kind == "mark" and text == "(":
            self._next()
            inner = self.expression()
            self._expect(")")
            return inner
        if kind == "name" and text.lower() in AGGREGATIONS and self._follows("(", "by", "without"):
            return self._aggregation()
        if kind == "name" and self._follows("("):
            return self._call()
        if kind == "name" or text == "{":
            return self._selector()
        if kind in {"number", "string", "operator"}:
            raise NotEvaluated(f"the lab does not evaluate literals or operators: {text!r}")
        raise BadQuery(f"parse error: unexpected {_named(kind, text)}")

    def compared(self) -> Expression:
        """Return the expression, or what of it fits a comparison with a number."""
        expression = self.expression()
        kind, operator = self._peek()
        is_compared = kind == "operator" and operator in COMPARISONS
        is_range = isinstance(expression, Selector) and expression.range_ms is not None
        if not is_compared or is_range or self._peek(1)[0] != "number":
            return expression
        self._next()
        return Compared(expression, operator, float(self._next()[1]))

    def finish(self) -> None:
        kind, text = self._peek()
        if kind == "end":
            return
        if kind == "operator" or text.lower() in {"and", "or", "unless", "offset", "bool"}:
            raise NotEvaluated(f"the lab does not evaluate {text!r}: no operators, no offset")
        if text == "[":
            raise NotEvaluated("the lab does not evaluate subqueries")
        raise BadQuery(f"parse error: unexpected {_named(kind, text)}")

    def _aggregation(self) -> Aggregation:
        operation = self._next()[1].lower()
        by = self._grouping()
        self._expect("(")
        inner = self.expression()
        if isinstance(inner, Selector) and inner.range_ms is not None:
            raise BadQuery("parse error: expected type instant vector in aggregation expression")
        self._expect_end_of_arguments(operation)
        trailing = self._grouping()
        if by is not None and trailing is not None:
            raise BadQuery("parse error: grouping given twice")
        return Aggregation(operation, by or trailing or (), inner)

    def _grouping(self) -> tuple[str, ...] | None:
        kind, text = self._peek()
        if kind != "name" or text.lower() not in {"by", "without"}:
            return None
        if text.lower() == "without":
            raise NotEvaluated("the lab does not evaluate `without (...)`: name labels with `by`")
        self._next()
        self._expect("(")
        labels: list[str] = []
        while not self._accept(")"):
            if labels:
                self._expect(",")
                if self._accept(")"):
                    break
            labels.append(self._label())
        return tuple(labels)

    def _call(self) -> Call:
        function = self._next()[1]
        if function not in (*FUNCTIONS, *OF_INSTANTS):
            known = ", ".join((*FUNCTIONS, *OF_INSTANTS))
            raise NotEvaluated(f"the lab does not evaluate {function}(): it knows {known}")
        self._expect("(")
        inner = self.expression()
        self._expect_end_of_arguments(function)
        wanted = "instant" if function in OF_INSTANTS else "range"
        if not isinstance(inner, Selector) or (inner.range_ms is None) != (wanted == "instant"):
            raise BadQuery(
                f"parse error: expected type {wanted} vector in call to function {function!r}"
            )
        return Call(function, inner)

    def _expect_end_of_arguments(self, name: str) -> None:
        if self._peek()[1] == "[":
            raise NotEvaluated("the lab does not evaluate subqueries")
        if self._peek()[0] == "operator":
            raise NotEvaluated(f"the lab does not evaluate operators, as in {name}(...)")
        self._expect(")")

    def _selector(self) -> Selector:
        matchers: list[Matcher] = []
        if self._peek()[0] == "name":
            matchers.append(Matcher("__name__", "=", self._next()[1]))
        if self._accept("{"):
            named = bool(matchers)
            matchers += self._matchers()
            if named and any(m.label == "__name__" for m in matchers[1:]):
                raise BadQuery("parse error: metric name must not be set twice")
        if all(matcher.matches("") for matcher in matchers):
            raise BadQuery(
                "parse error: vector selector must contain at least one non-empty matcher"
            )
        return Selector(tuple(matchers), self._range())

    def _matchers(self) -> list[Matcher]:
        found: list[Matcher] = []
        while not self._accept("}"):
            if found:
                self._expect(",")
                if self._accept("}"):
                    break
            found.append(self._matcher())
        return found

    def _matcher(self) -> Matcher:
        label = self._label()
        kind, operator = self._next()
        if kind != "operator" or operator not in {"=", "!=", "=~", "!~"}:
            raise BadQuery(f"parse error: unexpected {_named(kind, operator)} in label matching")
        kind, text = self._next()
        if kind != "string":
            raise BadQuery(f"parse error: unexpected {_named(kind, text)}, expected string")
        value = unquote(text)
        if operator.endswith("~"):
            try:
                _pattern(value)
            except re.error as error:
                raise BadQuery(f"parse error: error parsing regexp {value!r}: {error}") from error
        return Matcher(label, operator, value)

    def _label(self) -> str:
        kind, text = self._next()
        if kind != "name" or not _LABEL.match(text):
            raise BadQuery(f"parse error: unexpected {_named(kind, text)}, expected label")
        return text

    def _range(self) -> int | None:
        if not self._accept("["):
            return None
        kind, text = self._next()
        if kind != "duration":
            raise BadQuery(f"parse error: unexpected {_named(kind, text)}, expected duration")
        if self._peek()[1].startswith(":"):
            raise NotEvaluated("the lab does not evaluate subqueries")
        self._expect("]")
        length = duration_ms(text)
        if not length:
            raise BadQuery("parse error: duration must be greater than 0")
        return length

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _follows(self, *texts: str) -> bool:
        return self._peek(1)[1].lower() in texts

    def _accept(self, mark: str) -> bool:
        if self._peek() != ("mark", mark):
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        kind, text = self._next()
        if (kind, text) != ("mark", mark):
            raise BadQuery(f"parse error: unexpected {_named(kind, text)}, expected {mark!r}")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadQuery(f"parse error at char {at + 1}: unexpected character {text[at]!r}")
        at = match.end()
        if match.lastgroup != "blank":
            tokens.append((match.lastgroup or "", match[0]))
    return [*tokens, ("end", "")]


def _named(kind: str, text: str) -> str:
    return "end of input" if kind == "end" else repr(text)

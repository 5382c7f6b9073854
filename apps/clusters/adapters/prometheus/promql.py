"""Building PromQL: selectors with escaped values, and the few query shapes the portal asks.

Every query that leaves the portal is put together here, from metric names and labels that are
constants of the adapters and from values that are escaped by `quoted`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.clusters.domain.window import SLOT_SECONDS

# Queries end a millisecond before a slot does, so that a sample on the boundary belongs to the
# next slot alone, whether the server closes a range on its left end (to Prometheus 2.x) or not.
END_MARGIN_SECONDS = 0.001
MAX_STEPS = 48
SLOT_RANGE = "30m"

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What RE2 reads as more than itself; `-` and `/` among others must not be escaped for it.
_REGEX_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quoted(value: str) -> str:
    """Return `value` as a PromQL string, in double quotes.

    What cannot be printed is written as \\u or \\U escapes, so that a hostile value can neither
    end the string nor the line.
    """
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    # A lone surrogate has no escape in Go and cannot be in a label either.
    if 0xD800 <= code <= 0xDFFF:
        return "\\uFFFD"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def literally(values: Iterable[str]) -> str:
    """Return the regular expression that matches exactly these values."""
    return "|".join(_REGEX_SPECIAL.sub(r"\\\1", value) for value in values)


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label matcher; `operator` is one of = != =~ !~."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        if not _LABEL.fullmatch(self.label):
            raise ValueError(f"{self.label!r} is not a label name")
        return f"{self.label}{self.operator}{quoted(self.value)}"


def equal(matchers: Mapping[str, str]) -> tuple[Matcher, ...]:
    """Return the matchers that ask each label for exactly its value."""
    return tuple(Matcher(label, "=", value) for label, value in sorted(matchers.items()))


def one_of(label: str, values: Iterable[str]) -> Matcher:
    """Return the matcher of a label with one of these values."""
    return Matcher(label, "=~", literally(values))


def selector(metric: str, matchers: Sequence[Matcher] = ()) -> str:
    """Return `metric{matchers}`; several metrics are parted by "|"."""
    if "|" in metric:
        return selector("", (Matcher("__name__", "=~", metric), *matchers))
    inner = ",".join(str(matcher) for matcher in matchers)
    return f"{metric}{{{inner}}}" if inner else metric


def over(
    function: str, metric: str, matchers: Sequence[Matcher] = (), *, seconds: float | None = None
) -> str:
    """Return `function(metric{matchers}[range])`; the range is a slot unless `seconds` is given."""
    return f"{function}({selector(metric, matchers)}[{duration(seconds)}])"


def by(aggregation: str, labels: Sequence[str], inner: str) -> str:
    """Return `aggregation by (labels) (inner)`."""
    return f"{aggregation} by ({','.join(labels)}) ({inner})"


def raw(metric: str, matchers: Sequence[Matcher], *, seconds: float | None = None) -> str:
    """Return the range selector that gives raw samples."""
    return f"{selector(metric, matchers)}[{duration(seconds)}]"


def duration(seconds: float | None) -> str:
    """Return a PromQL duration; None is a slot."""
    if seconds is None or seconds == SLOT_SECONDS:
        return SLOT_RANGE
    whole = round(seconds)
    return f"{whole}s" if whole == seconds else f"{round(seconds * 1000)}ms"

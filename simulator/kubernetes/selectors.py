"""Field and label selectors, as far as comparisons go."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from simulator.responses import Parameters, one

_FIELDS = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "spec.unschedulable",
        "status.phase",
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
    }
)
_TERM = re.compile(r"\s*([^\s=!,()]+)\s*(==|=|!=)\s*([^\s=!,()]*)\s*\Z")
_EXISTS = re.compile(r"\s*(!?)\s*([^\s=!,()]+)\s*\Z")


class BadSelector(Exception):
    """A selector that cannot be read, or that the lab does not evaluate."""


class _Term(Struct, frozen=True):
    key: str
    wanted: bool
    value: str | None
    """None asks only whether the key is there."""


class Selectors(Struct, frozen=True):
    """What a list or watch is narrowed to."""

    fields: tuple[_Term, ...]
    labels: tuple[_Term, ...]

    @classmethod
    def of(cls, parameters: Parameters) -> "Selectors":
        """Read `fieldSelector` and `labelSelector`; raises BadSelector."""
        fields = tuple(_terms(one(parameters, "fieldSelector")))
        for term in fields:
            if term.key not in _FIELDS or term.value is None:
                raise BadSelector(f"field label not supported: {term.key}")
        return cls(fields, tuple(_terms(one(parameters, "labelSelector"))))

    @property
    def empty(self) -> bool:
        return not (self.fields or self.labels)

    def match(self, item: Mapping[str, Any]) -> bool:
        """Say whether an object is among those selected."""
        if self.empty:
            return True
        labels = item["metadata"].get("labels", {})
        return all(_holds(term, _field(item, term.key)) for term in self.fields) and all(
            _holds(term, labels.get(term.key)) for term in self.labels
        )


def _holds(term: _Term, found: str | None) -> bool:
    if term.value is None:
        return (found is not None) == term.wanted
    return (found == term.value) == term.wanted


def _field(item: Mapping[str, Any], path: str) -> str:
    value: Any = item
    for part in path.split("."):
        value = value.get(part, {}) if isinstance(value, Mapping) else {}
    return value if isinstance(value, str) else ""


def _terms(text: str) -> list[_Term]:
    if not text.strip():
        return []
    return [_term(part) for part in text.split(",")]


def _term(text: str) -> _Term:
    match = _TERM.match(text)
    if match:
        return _Term(match[1], match[2] != "!=", match[3])
    exists = _EXISTS.match(text)
    if exists:
        return _Term(exists[2], not exists[1], None)
    raise BadSelector(
        f"unable to parse requirement: {text.strip()!r}; the lab reads =, ==, != only"
    )

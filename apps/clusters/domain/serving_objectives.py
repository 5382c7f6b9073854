"""Objectives of the time to first token, and which of them holds for an inference server."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.clusters.domain.pods.ledger import Owner

_MS = 1000


class TtftRule(Struct, frozen=True):
    """An objective of the catalog, and the patterns of what it is for; an empty one fits all.

    `workload` is compared with the name of the top controller, with `Kind/name` where it has a
    slash. It holds from `start` until, not including, `end` (Unix seconds; None: for ever).
    """

    ttft_ms: int
    start: float
    end: float | None = None
    namespace: str = ""
    workload: str = ""
    model: str = ""

    def holds(self, at: float) -> bool:
        """Say whether it is in force at a time."""
        return self.start <= at and (self.end is None or at < self.end)

    def matches(self, namespace: str, owner: Owner | None, model: str) -> bool:
        """Say whether it is for a model of a pod; of an unknown owner no pattern is right."""
        if self.workload and owner is None:
            return False
        # Both forms of a name are known to people: files and pages write Kind/name.
        name = f"{owner.kind}/{owner.name}" if owner and "/" in self.workload else ""
        workload = name or (owner.name if owner else "")
        asked = ((self.namespace, namespace), (self.workload, workload), (self.model, model))
        return all(not pattern or fnmatchcase(text, pattern) for pattern, text in asked)


class TtftObjectives(Struct, frozen=True):
    """The objectives of a cluster in the order in which they are tried, in milliseconds.

    `default_ms` is for what none matches. `owners` are the top controllers of pods by namespace
    and name.
    """

    default_ms: int
    rules: Sequence[TtftRule] = ()
    owners: Mapping[tuple[str, str], Owner] = field(default_factory=dict)

    def at(self, seconds: float) -> "TtftObjectives":
        """Return those that are in force at a time."""
        return replace(self, rules=[rule for rule in self.rules if rule.holds(seconds)])

    @property
    def all_ms(self) -> frozenset[int]:
        """Every objective that a server may have: a query has to name the buckets of all."""
        return frozenset({self.default_ms, *(rule.ttft_ms for rule in self.rules)})

    def of(self, namespace: str, pod: str, model: str) -> int:
        """Return the objective of a model in a pod: that of the first rule that matches."""
        owner = self.owners.get((namespace, pod))
        found = (rule for rule in self.rules if rule.matches(namespace, owner, model))
        first = next(found, None)
        return self.default_ms if first is None else first.ttft_ms


def ttft_text(ms: int) -> str:
    """Return a time as the catalog writes it: `500ms`, and `2s` for whole seconds."""
    return f"{ms}ms" if ms % _MS else f"{ms // _MS}s"


def ttft_ms(text: str) -> int:
    """Return the milliseconds of such a time."""
    return int(text[:-2]) if text.endswith("ms") else int(text[:-1]) * _MS

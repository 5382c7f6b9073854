"""What a preflight answers."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from apps.pending.selectors import SuggestionRow
from apps.planning.domain.verdicts import QuotaTouched


@dataclass(frozen=True, slots=True)
class QueueTimeRange:
    """The queue times within which 10, 50 and 90 % of pods of like size started, in seconds."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class AlternativeRow:
    """Another request that starts now: `units` of a resource in each pod, of a tier."""

    tier: str
    resource: str
    units: float
    gpu_equivalents: float
    expected_wait: QueueTimeRange | None
    cost_per_hour: Decimal | None


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """The answer for pods alike of an object.

    `role` tells those of one object apart. `pods` is how many there are, `could_start` how many
    of them now. `gpu_equivalents` and `cost_per_hour` are of all of them. `unchecked` are
    sentences about what the portal does not know.
    """

    kind: str
    name: str
    role: str
    namespace: str
    tier: str
    resource: str
    units: float
    gpu_equivalents: float
    pods: int
    could_start: int
    verdict: str
    cause: str
    detail: str
    explanation: str
    expected_wait: QueueTimeRange | None
    quotas: tuple[QuotaTouched, ...]
    cost_per_hour: Decimal | None
    currency: str
    change: SuggestionRow | None
    suggestions: tuple[SuggestionRow, ...]
    alternatives: tuple[AlternativeRow, ...]
    unchecked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """The answers for a manifest, by what was known at `as_of`."""

    results: tuple[PreflightResult, ...]
    as_of: datetime
    other_kinds: tuple[str, ...]

"""What a preflight answers."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from msgspec import Struct, field

from apps.pending.domain.submission import QueuePosition
from apps.pending.selectors import SuggestionRow
from apps.planning.domain.measured_use import FamilyHistory
from apps.planning.domain.verdicts import QuotaTouched


class QueueTimeRange(Struct, frozen=True):
    """The 10th, 50th and 90th percentile of queue times, in seconds.

    `basis`: `history` of pods of like size, or a `replay` of what runs and is pending. Only a
    replay tells how likely the work starts now.
    """

    p10: float
    p50: float
    p90: float
    basis: str = "history"
    starts_now: float | None = None


class AlternativeBasis(StrEnum):
    """Why another request is offered: it starts now, or it costs less and holds what was used."""

    STARTS_NOW = "starts_now"
    MEASURED_USE = "measured_use"


class AlternativeRow(Struct, frozen=True):
    """Another request: `units` of a resource in each pod, of a tier, on nodes with these labels."""

    tier: str
    resource: str
    units: float
    gpu_equivalents: float
    expected_wait: QueueTimeRange | None
    cost_per_hour: Decimal | None
    currency: str
    verdict: str
    basis: AlternativeBasis
    node_selector: Mapping[str, str] = field(default_factory=dict)


class PreflightResult(Struct, frozen=True):
    """The answer for pods alike of an object.

    `role` tells those of one object apart. `pods` is how many there are, `could_start` how many
    of them now. `gpu_equivalents`, `cost_per_hour` and `cost_per_run` are of all of them, a run as
    long as half of those of the `family` were. `position` is None where nothing queues.
    `unchecked` are sentences about what the portal does not know.
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
    position: QueuePosition | None
    quotas: tuple[QuotaTouched, ...]
    cost_per_hour: Decimal | None
    cost_per_run: Decimal | None
    currency: str
    family: FamilyHistory | None
    change: SuggestionRow | None
    suggestions: tuple[SuggestionRow, ...]
    alternatives: tuple[AlternativeRow, ...]
    unchecked: tuple[str, ...]


class PreflightReport(Struct, frozen=True):
    """The answers for a manifest, by what was known at `as_of`."""

    results: tuple[PreflightResult, ...]
    as_of: datetime
    other_kinds: tuple[str, ...]

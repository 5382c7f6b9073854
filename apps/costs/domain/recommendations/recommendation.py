"""A recommendation: its saving, its states, its follow-up and the waste that it covers.

    waste covered = cost of not-busy GPU-hours that a recommendation would avoid ÷ cost of all

Waste is divided into cells that have no GPU-hour in common. A recommendation avoids a part of
some cells; of several that avoid parts of one cell the largest part counts, so no GPU-hour counts
twice, and never more than the cell has (docs/definitions.md#waste-covered).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct, field

from apps.accounts.domain.structs import replace
from apps.costs.domain.costing import Cause

Fractions = Mapping[str, Mapping[str, float]]
"""Which part (0..1) of each cause's waste is avoided, by the name of a cell."""
HOURS_PER_MONTH = 730
# Work has a weekly rhythm: fewer days would show a part of it.
LEAST_DAYS = 7.0
WELL_USED_FROM = 0.8
"""A workload whose mean activity is this or more is left alone."""
LEAST_COVERAGE = 0.9
"""Below these nothing is recommended: a missing sample must not cost anybody a GPU."""
Figure = float | int | str | Decimal
SAVED_GPU_HOURS, SAVED_EACH = "saved_gpu_hours_per_month", "saved_per_gpu_hour"
CAME_FROM = Decimal("0.8")
PARTLY_FROM = Decimal("0.2")


class WasteCell(NamedTuple):
    """Waste of one cause of one family of workloads, or of one pool's unallocated capacity."""

    name: str
    cause: str


class CoverageGap(StrEnum):
    """Why nothing is recommended against some waste."""

    WELL_USED = "well-used"
    TOO_SHORT = "too-short"
    NO_METRICS = "no-metrics"
    ENDED = "ended"
    UNAVAILABLE = "unavailable"
    NEEDED = "needed"
    NO_RULE = "no-rule"
    REMAINDER = "remainder"


def cell_name(namespace: str, workload: str, gpu_model: str, capacity_type: str) -> str:
    """Return the name of the cells of a family of workloads; of a pool without the first two."""
    return "|".join((namespace, workload, gpu_model, capacity_type))


def avoided(fractions: Fractions, waste: Mapping[WasteCell, int]) -> dict[WasteCell, int]:
    """Return what a recommendation avoids of each cell, in units; at most what the cell has."""
    found: dict[WasteCell, int] = {}
    for name, parts in fractions.items():
        for cause, fraction in parts.items():
            cell = WasteCell(name, cause)
            # Fractions come from two measures of one thing, and may pass 1 by their rounding.
            units = int(waste.get(cell, 0) * min(1.0, max(0.0, fraction)))
            if units > 0:
                found[cell] = units
    return found


def together(claims: Iterable[Mapping[WasteCell, int]]) -> dict[WasteCell, int]:
    """Return what several recommendations avoid: of each cell the largest part."""
    found: dict[WasteCell, int] = defaultdict(int)
    for claim in claims:
        for cell, units in claim.items():
            # Not the sum: two changes that avoid the same idle hour save it once.
            found[cell] = max(found[cell], units)
    return dict(found)


def every_waste(fraction: float) -> dict[str, float]:
    """Return one fraction for all causes of what is held."""
    causes = (Cause.IDLE, Cause.UNDERUSED, Cause.NOT_RUNNING)
    return {cause.value: min(1.0, max(0.0, fraction)) for cause in causes}


class RecommendationKind(StrEnum):
    FEWER_GPUS = "fewer-gpus"
    MIG_PROFILE = "mig-profile"
    SHARED_TIER = "shared-tier"
    SMALLER_MODEL = "smaller-model"
    STOP_IDLE_NOTEBOOK = "stop-idle-notebook"
    UNUSED_QUOTA = "unused-quota"
    MIG_LAYOUT = "mig-layout"
    SPOT = "spot"
    EMPTY_NODES = "empty-nodes"
    IDLE_START = "idle-start"
    IDLE_END = "idle-end"
    IDLE_TIMEOUT = "idle-timeout"
    SCALE_TO_DEMAND = "scale-to-demand"
    EMPTY_HOURS = "empty-hours"
    LEND_QUOTA = "lend-quota"


OF_QUOTA = (RecommendationKind.UNUSED_QUOTA, RecommendationKind.LEND_QUOTA)
"""What they save is no cash: a quota costs nothing by itself. Their sum stands apart."""


REPLAYED_KINDS = (
    RecommendationKind.IDLE_TIMEOUT,
    RecommendationKind.UNUSED_QUOTA,
    RecommendationKind.LEND_QUOTA,
    RecommendationKind.MIG_LAYOUT,
    RecommendationKind.MIG_PROFILE,
    RecommendationKind.SHARED_TIER,
    RecommendationKind.FEWER_GPUS,
    RecommendationKind.EMPTY_NODES,
    RecommendationKind.EMPTY_HOURS,
)
"""Their effects are replayed on recorded demand. All others rest on recorded hours alone."""


class ReplayGap(StrEnum):
    """Why the effects of a change, though of a kind that is replayed, were not."""

    NOTHING_RECORDED = "nothing-recorded"
    NO_WORK = "no-work"
    NOT_OFFERED = "not-offered"
    OTHER_LAYOUT = "other-layout"


RISKS: Mapping[RecommendationKind, str] = {
    RecommendationKind.FEWER_GPUS: "A later run may need the GPUs that were idle.",
    RecommendationKind.MIG_PROFILE: "Memory beyond the profile fails the work.",
    RecommendationKind.SHARED_TIER: "Work on one GPU slows each other down, and shares its memory.",
    RecommendationKind.SMALLER_MODEL: "The work takes longer on a slower GPU.",
    RecommendationKind.STOP_IDLE_NOTEBOOK: "What is in memory and not saved is lost.",
    RecommendationKind.UNUSED_QUOTA: "A peak above all earlier ones is blocked.",
    RecommendationKind.MIG_LAYOUT: "GPUs are drained while they are cut anew.",
    RecommendationKind.SPOT: "Nodes may be taken away at any time.",
    RecommendationKind.EMPTY_NODES: "A sudden peak is pending until a node starts.",
    RecommendationKind.IDLE_START: "The first step may wait for data to be loaded.",
    RecommendationKind.IDLE_END: "Results not yet written are lost if pods end too early.",
    RecommendationKind.IDLE_TIMEOUT: "Work that expects input or data is stopped, too.",
    RecommendationKind.SCALE_TO_DEMAND: "A peak inside an hour meets too few replicas.",
    RecommendationKind.EMPTY_HOURS: (
        "In one of five such hours work is pending until a node starts."
    ),
    RecommendationKind.LEND_QUOTA: (
        "The owner's work is pending until borrowed GPUs are given back."
    ),
}
"""What may go wrong with a change of each kind."""


class Confidence(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Rating(NamedTuple):
    """How certain a recommendation is, and why."""

    confidence: Confidence
    reason: str

    def at_most(self, limit: Confidence, why: str) -> "Rating":
        """Cap the confidence, adding why."""
        rank = list(Confidence)
        # The reason is added in either case: it also speaks against what is low already.
        if rank.index(self.confidence) <= rank.index(limit):
            return Rating(self.confidence, f"{self.reason}; {why}")
        return Rating(limit, f"{self.reason}, but {why}")


class Subject(Struct, frozen=True):
    """What a recommendation is about; `workload` reads `Kind/name`, empty fields do not apply."""

    cluster: str
    namespace: str = ""
    workload: str = ""
    tier: str = ""
    node: str = ""


class Saving(Struct, frozen=True):
    """GPU-hours a month and what each is worth; None without a price."""

    gpu_hours: float
    per_gpu_hour: Decimal | None

    @property
    def per_month(self) -> Decimal | None:
        """Return their worth to the cent; None without a price."""
        if self.per_gpu_hour is None:
            return None
        # repr gives 0.1 as 0.1; Decimal of the float itself would have its binary digits.
        worth = Decimal(repr(self.gpu_hours)) * self.per_gpu_hour
        return worth.quantize(Decimal("0.01"), ROUND_HALF_EVEN)

    def figures(self) -> dict[str, Figure]:
        """Return both numbers as evidence; the worth is left out without a price."""
        hours: dict[str, Figure] = {SAVED_GPU_HOURS: self.gpu_hours}
        return hours if self.per_gpu_hour is None else {**hours, SAVED_EACH: self.per_gpu_hour}


class LoweredLimit(NamedTuple):
    """A key, its amount now, and the amount to lower it to."""

    key: str
    before: float
    after: float


class LentQuota(NamedTuple):
    """A key, its amount, and how much of it to lend."""

    key: str
    hard: float
    lent: float


class CutLayout(NamedTuple):
    """GPUs of a node, the MIG layout of each now (profile → devices), and the one to cut it in."""

    gpus: int
    now: Mapping[str, int]
    then: Mapping[str, int]


class PodRequest(NamedTuple):
    """What each pod requests after a change: units of a tier, each `share` of a GPU.

    `node_selector` are the tier's node labels. `tier` is empty where no node offers it yet.
    """

    tier: str
    resource: str
    units: float
    share: float
    node_selector: Mapping[str, str]


class ScaledPool(NamedTuple):
    """GPUs of a model and capacity type to be away, for each local hour of a week from Monday."""

    gpu_model: str
    capacity_type: str
    gpus: Sequence[float]


ChangeValues = LoweredLimit | LentQuota | CutLayout | PodRequest | ScaledPool
_CHANGE_VALUES: Mapping[RecommendationKind, Callable[..., ChangeValues]] = {
    RecommendationKind.UNUSED_QUOTA: LoweredLimit,
    RecommendationKind.LEND_QUOTA: LentQuota,
    RecommendationKind.MIG_LAYOUT: CutLayout,
    RecommendationKind.MIG_PROFILE: PodRequest,
    RecommendationKind.SHARED_TIER: PodRequest,
    RecommendationKind.FEWER_GPUS: PodRequest,
    RecommendationKind.EMPTY_NODES: ScaledPool,
    RecommendationKind.EMPTY_HOURS: ScaledPool,
}


def change_values_of(kind: str, stored: Mapping[str, Any] | None) -> ChangeValues | None:
    """Return what a recommendation changes, from its fields; None where these are not kept."""
    make = _CHANGE_VALUES.get(RecommendationKind(kind))
    return None if make is None or not stored else make(**stored)


class Finding(Struct, frozen=True):
    """One change and what it would save in a month of 730 hours, to the cent.

    `evidence` holds the figures that it rests on, by name with their units. `patch` is the change
    as a fragment of YAML or as a command, empty where it cannot be written down. `avoids` is which
    part of its subject's waste goes, by cause; `cells` the same by the names of cells, also of
    other subjects. `change_values` is the change as data, of kinds that are replayed or requested.
    """

    kind: RecommendationKind
    subject: Subject
    change: str
    saved: Saving
    currency: str
    rating: Rating
    evidence: Mapping[str, Figure]
    patch: str = ""
    avoids: Mapping[str, float] = field(default_factory=dict)
    cells: Fractions = field(default_factory=dict)
    change_values: ChangeValues | None = None

    def against(self, cell: str) -> "Finding":
        """Return it with what it avoids of its own subject, whose waste has this name."""
        return replace(self, cells={**self.cells, cell: self.avoids}) if self.avoids else self

    @property
    def saving_per_month(self) -> Decimal | None:
        """Money; None where there is no price."""
        return self.saved.per_month

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies it from one day to the next, though its figures move."""
        about = self.subject
        return (
            self.kind.value,
            about.cluster,
            about.namespace,
            about.workload,
            about.tier,
            about.node,
        )

    @property
    def order(self) -> tuple[bool, Decimal, tuple[str, ...]]:
        """What recommendations are sorted by: the largest saving first, unpriced ones last."""
        saving = self.saving_per_month
        return saving is None, -(saving or Decimal(0)), self.key


def per_month(gpu_hours: float, days: float) -> float:
    """Return GPU-hours of so many days as those of a month of 730 hours."""
    return gpu_hours * HOURS_PER_MONTH / (days * 24)


class RecommendationState(StrEnum):
    """`gone`: open, and no longer found. `done`: accepted, and its saving came."""

    OPEN = "open"
    ACCEPTED = "accepted"
    DISMISSED = "dismissed"
    DONE = "done"
    GONE = "gone"


DECIDABLE = (RecommendationState.OPEN, RecommendationState.ACCEPTED, RecommendationState.DISMISSED)
"""What somebody may still accept or dismiss; also to think again."""
FROZEN = (RecommendationState.ACCEPTED,)
"""Its figures stand still: they are what was promised."""


def found_again(state: RecommendationState) -> RecommendationState:
    """Return the state of one that the rules find (again).

    What was dismissed stays so, however often it is found; what went, or was done, is open again.
    """
    return (
        RecommendationState.OPEN
        if state in (RecommendationState.GONE, RecommendationState.DONE)
        else state
    )


def not_found(state: RecommendationState) -> RecommendationState:
    """Return the state of one that the rules do not find any more."""
    return RecommendationState.GONE if state is RecommendationState.OPEN else state


class FollowUpOutcome(StrEnum):
    TOO_EARLY = "too-early"
    CAME = "came"
    PARTLY = "partly"
    DID_NOT = "did-not-come"


class FollowUp(Struct, frozen=True):
    """What it costs less per month than before, to the cent; None while it is too early."""

    verdict: FollowUpOutcome
    saved_per_month: Decimal | None
    ratio: Decimal | None


def follow_up(
    *,
    promised: Decimal,
    cost_before: Decimal,
    days_before: Decimal,
    cost_after: Decimal,
    days_after: Decimal,
) -> FollowUp:
    """Compare costs of as many days before as the evidence had with those since the acceptance.

    Both are of GPU-hours at the prices of the acceptance, so that a price that changed is no
    saving, and both become costs of a month of 730 hours. Nothing is said before seven
    days. Work that ended by itself saves too: the page shows both costs, so that one can tell.
    """
    # A promise of 0 or less has no ratio to be judged by.
    if days_after < Decimal(LEAST_DAYS) or days_before <= 0 or promised <= 0:
        return FollowUp(FollowUpOutcome.TOO_EARLY, None, None)
    saved = _per_month(cost_before, days_before) - _per_month(cost_after, days_after)
    ratio = saved / promised
    verdict = FollowUpOutcome.DID_NOT
    if ratio >= CAME_FROM:
        verdict = FollowUpOutcome.CAME
    elif ratio >= PARTLY_FROM:
        verdict = FollowUpOutcome.PARTLY
    return FollowUp(
        verdict,
        saved.quantize(Decimal("0.01"), ROUND_HALF_EVEN),
        ratio.quantize(Decimal("0.001"), ROUND_HALF_EVEN),
    )


def _per_month(cost: Decimal, days: Decimal) -> Decimal:
    return cost * HOURS_PER_MONTH / (days * 24)

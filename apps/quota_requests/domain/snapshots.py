"""The snapshot at submission: the evidence of a request, and the impact of its change.

Kept as JSON in which amounts are exact texts (`quantities.stored` writes it, `selectors.requests`
reads it). What earlier versions of the portal kept may lack the fields with a default.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Final

from msgspec import Struct

from apps.quota_requests.domain.execution.patches import PatchFile
from apps.quota_requests.domain.limit_effects import (
    BlockedWork,
    BorrowingRoom,
    CohortShare,
    Overcommitment,
    QuotaCommitment,
    TierCapacity,
    UnblockedStart,
    borrowing,
    overcommitment,
    sum_known,
    together,
    would_start,
)
from apps.quota_requests.domain.quantities import LEFT_OUT, Quantity

# 8,760 hours of a year over 12 months, so that no price depends on the length of a month.
HOURS_PER_MONTH: Final = 730
_NOTHING: Final = Quantity(0)
ANNOUNCED_BEFORE: Final = (timedelta(days=7), timedelta(days=1))


class EvidenceWindow(Struct, frozen=True):
    start: datetime
    end: datetime


class TierUse(Struct, frozen=True):
    """What the team held with the key in a tier, in GPU-hours."""

    tier: str
    # None is not known; 0.0 is known to be nothing. So in all of these records.
    allocated_gpu_hours: float | None = None
    busy_gpu_hours: float | None = None
    idle_gpu_hours: float | None = None
    underused_gpu_hours: float | None = None
    not_running_gpu_hours: float | None = None
    unmeasured_gpu_hours: float | None = None
    utilization_ratio: float | None = None


class CurrencyCost(Struct, frozen=True):
    """What the team's GPUs cost in a currency, and what of that was idle or else wasted."""

    currency: str
    cost: Decimal | None = None
    idle: Decimal | None = None
    wasted: Decimal | None = None


class QuotaUse(Struct, frozen=True):
    """How full the key was over the window, in its known `hours`, and is now; units of the key."""

    hours: int = 0
    saturation_mean: float | None = None
    saturation_peak: float | None = None
    full_hours: float = 0
    full_last_hour: bool | None = None
    pending_unit_hours: float | None = None
    suppressed_unit_hours: float | None = None
    unit: str | None = None
    hard: float | None = None
    used: float | None = None
    held: float | None = None
    pending: float | None = None
    suppressed: float | None = None
    exhausted_at: datetime | None = None
    full_now: bool | None = None


class FairShare(Struct, frozen=True):
    """The team's fair share in all `tiers` together: the mean over `days`."""

    gpus: float | None
    tiers: tuple[str, ...]
    days: int


class TierFairness(Struct, frozen=True):
    """How the team stood in a tier over the window."""

    tier: str
    entitlement_gpus: float | None = None
    demand_gpu_hours: float | None = None
    fair_share_gpu_hours: float | None = None
    allocated_gpu_hours: float | None = None
    borrowed_gpu_hours: float | None = None
    lent_gpu_hours: float | None = None
    denied_gpu_hours: float | None = None
    wait_p50_seconds: float | None = None
    wait_p95_seconds: float | None = None
    waiting_now: int | None = None
    usage_factor: float | None = None


class BudgetUse(Struct, frozen=True):
    """A budget of the team in its running period; `unit` is gpu_hours or a currency."""

    unit: str
    period: str
    allowance: Decimal | None = None
    used: Decimal | None = None
    burn_rate: float | None = None
    exhausted_at: datetime | None = None
    coverage_ratio: float | None = None
    data_start: datetime | None = None


class Evidence(Struct, frozen=True):
    """The team's allocation, waste, pending work and entitlement in the days before its request.

    `missing` names what is not known. `denied_whole` is False where hours are missing from the
    unmet fair share, `denied_estimated` True where it is from series in part.
    """

    window: Annotated[EvidenceWindow | None, LEFT_OUT] = None
    taken_at: Annotated[datetime | None, LEFT_OUT] = None
    missing: Annotated[tuple[str, ...], LEFT_OUT] = ()
    usage: Annotated[tuple[TierUse, ...] | None, LEFT_OUT] = None
    money: Annotated[tuple[CurrencyCost, ...] | None, LEFT_OUT] = None
    quota: Annotated[QuotaUse | None, LEFT_OUT] = None
    denied_whole: Annotated[bool | None, LEFT_OUT] = None
    denied_estimated: Annotated[bool | None, LEFT_OUT] = None
    fair_share: Annotated[FairShare | None, LEFT_OUT] = None
    fairness: Annotated[tuple[TierFairness, ...] | None, LEFT_OUT] = None
    budgets: Annotated[tuple[BudgetUse, ...] | None, LEFT_OUT] = None

    @property
    def unit(self) -> str:
        """What the key counts; empty where that is not known."""
        return (self.quota and self.quota.unit) or ""


class FieldOwner(Struct, frozen=True):
    """Another tool that owns the limit, and what that means for the change."""

    manager: str
    advice: str
    tool: str = ""
    applies: bool = False
    reverts: bool = False


class ImpactPreview(Struct, frozen=True):
    """What the form, the review page and the audit show of a change before it is made.

    `together` is what all tiers that the key reaches promise. The cost is a month's, at most, of
    the `cost_tiers`. `live` is the amount that the cluster showed (None: not read), `uid` which
    object that was. `used` is None where it is not known, and empty in previews of before it was
    kept. `conflicts` are sentences about times in which a booking does not fit beside entitlements
    and other bookings. `dry_run_detail` has the server's own words, for administrators.
    """

    promised: tuple[Overcommitment, ...] = ()
    together: Overcommitment | None = None
    borrowing: tuple[BorrowingRoom, ...] = ()
    cost_per_month_least: Decimal | None = None
    cost_per_month_most: Decimal | None = None
    without_price: tuple[str, ...] = ()
    cost_tiers: tuple[str, ...] = ()
    currency: str = ""
    starts: tuple[UnblockedStart, ...] = ()
    unreached: str = ""
    tiers: tuple[str, ...] = ()
    used: str | None = ""
    taken_at: datetime | None = None
    live: str | None = None
    dry_run_passed: bool | None = None
    dry_run: str = ""
    dry_run_detail: Annotated[str | None, LEFT_OUT] = None
    api_version: str = ""
    uid: str = ""
    owners: tuple[FieldOwner, ...] = ()
    patch_file: PatchFile | None = None
    revert_file: PatchFile | None = None
    conflicts: Annotated[tuple[str, ...], LEFT_OUT] = ()


class CostCeiling(Struct, frozen=True):
    """What the change costs a month at most, if all of it were held all the time.

    Between tiers of different price there is a range. None where a tier has no price; `missing`
    names such tiers. Negative for a decrease.
    """

    least: Decimal | None
    most: Decimal | None
    missing: tuple[str, ...] = ()


def cost_ceiling(
    tiers: Sequence[TierCapacity], *, before: Quantity, after: Quantity
) -> CostCeiling:
    """Return (after − before) × weight × price × 730 hours over the tiers that are reached."""
    missing = tuple(t.tier for t in tiers if t.price_per_gpu_hour is None)
    units = (after - before).units
    costs = sorted(
        # By text: a float times a price would bring binary digits into an amount of money.
        units * Decimal(str(t.weight)) * t.price_per_gpu_hour * HOURS_PER_MONTH
        for t in tiers
        if t.price_per_gpu_hour is not None
    )
    # The pods may land on the very tier that has no price, so that not even a range is known.
    if not costs or missing:
        return CostCeiling(None, None, missing)
    return CostCeiling(costs[0], costs[-1])


class TimeBox(Struct, frozen=True):
    """When a raise with an end goes back, and when that is announced."""

    reverts_at: datetime
    announcements: tuple[datetime, ...]


def time_box(until: datetime | None, *, applied_at: datetime) -> TimeBox | None:
    """Return when a raise that holds until `until` reverts; None for one without end.

    Announcements that would lie before the start are left out, yet there is always one: a raise
    of a few hours is announced when it starts.
    """
    if until is None:
        return None
    if until <= applied_at:
        raise ValueError("the end of a raise must be after its start")
    times = tuple(sorted(until - ahead for ahead in ANNOUNCED_BEFORE if until - ahead > applied_at))
    return TimeBox(until, times or (applied_at,))


class KeyState(Struct, frozen=True):
    """What is known of a key, whatever its change; `unit_name` says what its units are.

    `entitlements` are of all its tiers, each quota once. `waiting` is the work that it holds back,
    in a `strict` queue one after the other. `shares` are the queues of its cohort, of which `ours`
    is the one that changes. `priced` names the tiers whose cost is shown, which are those that the
    key's pods really use; none: all.
    """

    tiers: Sequence[TierCapacity] = ()
    used: Quantity = _NOTHING
    entitlements: Sequence[QuotaCommitment] = ()
    waiting: Sequence[BlockedWork] = ()
    strict: bool = False
    shares: Sequence[CohortShare] = ()
    ours: str = ""
    unit_name: str = "units"
    priced: Collection[str] = ()


def preview(key: KeyState, *, before: Quantity, after: Quantity) -> ImpactPreview:
    """Return what a change would do by what is known; what the cluster says of it is left empty.

    With no tier that the key reaches, `unreached` says so.
    """
    tiers, names = key.tiers, tuple(tier.tier for tier in key.tiers)
    costing = [t for t in tiers if not key.priced or t.tier in key.priced]
    capacity = sum_known([t.capacity_units for t in tiers])
    free = sum_known([t.free_units for t in tiers])
    starts = would_start(
        key.waiting, used=key.used, after=after, free_units=free, strict=key.strict
    )
    cost = cost_ceiling(costing, before=before, after=after)
    return ImpactPreview(
        promised=tuple(overcommitment(t, before=before, after=after) for t in tiers),
        together=together(
            tiers, key.entitlements, before=before, after=after, things=key.unit_name
        ),
        borrowing=tuple(
            borrowing(key.shares, key.ours, after=float(after.units), capacity=capacity)
        ),
        cost_per_month_least=cost.least,
        cost_per_month_most=cost.most,
        without_price=cost.missing,
        cost_tiers=tuple(t.tier for t in costing),
        starts=tuple(starts),
        unreached="" if tiers else "No tier has GPUs that this key counts.",
        tiers=names,
    )

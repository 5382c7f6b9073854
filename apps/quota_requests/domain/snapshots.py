"""What is kept with a request as it was when it was submitted: its evidence and its preview.

Kept as JSON in which amounts are exact texts (`frozen.stored` writes it, `selectors.snapshots`
reads it). What earlier versions of the portal kept may lack the fields with a default.
"""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from apps.quota_requests.domain.borrowing import BorrowingRoom
from apps.quota_requests.domain.execution.gitops import PatchFile
from apps.quota_requests.domain.frozen import LEFT_OUT
from apps.quota_requests.domain.overcommitment import Overcommitment
from apps.quota_requests.domain.unblocked_workloads import Start


@dataclass(frozen=True, slots=True)
class Span:
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class TierUse:
    """What the team held with the key in a tier, in GPU-hours."""

    tier: str
    allocated_gpu_hours: float | None = None
    busy_gpu_hours: float | None = None
    idle_gpu_hours: float | None = None
    underused_gpu_hours: float | None = None
    not_running_gpu_hours: float | None = None
    unmeasured_gpu_hours: float | None = None
    utilization_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class CurrencyCost:
    """What the team's GPUs cost in a currency, and what of that was idle or else wasted."""

    currency: str
    cost: Decimal | None = None
    idle: Decimal | None = None
    wasted: Decimal | None = None


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """How full the key was over the window, in its known `hours`, and is now; units of the key."""

    hours: int = 0
    saturation_mean: float | None = None
    saturation_peak: float | None = None
    full_hours: int = 0
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


@dataclass(frozen=True, slots=True)
class FairShare:
    """The team's fair share in all tiers together: the mean of so many days."""

    gpus: float | None
    tiers: tuple[str, ...]
    days: int


@dataclass(frozen=True, slots=True)
class TierFairness:
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


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """A budget of the team in its running period; `unit` is gpu_hours or a currency."""

    unit: str
    period: str
    allowance: Decimal | None = None
    used: Decimal | None = None
    burn_rate: float | None = None
    exhausted_at: datetime | None = None
    coverage_ratio: float | None = None
    data_start: datetime | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a team held, wasted, waited for and was entitled to in the days before it asked.

    `missing` names what is not known. `denied_whole` is False where hours are missing from what
    was denied, `denied_estimated` True where it is from series in part.
    """

    window: Span | None = field(default=None, metadata=LEFT_OUT)
    taken_at: datetime | None = field(default=None, metadata=LEFT_OUT)
    missing: tuple[str, ...] = field(default=(), metadata=LEFT_OUT)
    usage: tuple[TierUse, ...] | None = field(default=None, metadata=LEFT_OUT)
    money: tuple[CurrencyCost, ...] | None = field(default=None, metadata=LEFT_OUT)
    quota: QuotaUse | None = field(default=None, metadata=LEFT_OUT)
    denied_whole: bool | None = field(default=None, metadata=LEFT_OUT)
    denied_estimated: bool | None = field(default=None, metadata=LEFT_OUT)
    fair_share: FairShare | None = field(default=None, metadata=LEFT_OUT)
    fairness: tuple[TierFairness, ...] | None = field(default=None, metadata=LEFT_OUT)
    budgets: tuple[BudgetUse, ...] | None = field(default=None, metadata=LEFT_OUT)

    @property
    def unit(self) -> str:
        """What the key counts; empty where that is not known."""
        return (self.quota and self.quota.unit) or ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Another tool that owns the limit, and what that means for the change."""

    manager: str
    advice: str
    tool: str = ""
    applies: bool = False
    reverts: bool = False


@dataclass(frozen=True, slots=True)
class Preview:
    """What the form, the review page and the audit show of a change before it is made.

    `together` is what all tiers that the key reaches promise. The cost is a month's, at most, of
    the `cost_tiers`. `live` is the amount that the cluster showed (None: not read), `uid` which
    object that was. `used` is None where it is not known, and empty in previews of before it was
    kept. `dry_run_detail` has the server's own words, for administrators.
    """

    promised: tuple[Overcommitment, ...] = ()
    together: Overcommitment | None = None
    borrowing: tuple[BorrowingRoom, ...] = ()
    cost_per_month_least: Decimal | None = None
    cost_per_month_most: Decimal | None = None
    without_price: tuple[str, ...] = ()
    cost_tiers: tuple[str, ...] = ()
    currency: str = ""
    starts: tuple[Start, ...] = ()
    unreached: str = ""
    tiers: tuple[str, ...] = ()
    used: str | None = ""
    taken_at: datetime | None = None
    live: str | None = None
    dry_run_passed: bool | None = None
    dry_run: str = ""
    dry_run_detail: str | None = field(default=None, metadata=LEFT_OUT)
    api_version: str = ""
    uid: str = ""
    owners: tuple[Owner, ...] = ()
    patch_file: PatchFile | None = None
    revert_file: PatchFile | None = None

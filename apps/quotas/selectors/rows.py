"""What the read side of quotas hands to pages, API and files."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from apps.quotas.domain.burn import NOTHING, Spent
from apps.quotas.domain.saturation import KeyId
from apps.usage.domain.rows import Page


class QuotaOrder(StrEnum):
    """How quota rows are ordered; ties by cluster, namespace, source, name and key."""

    NAME = "name"
    FULLEST = "fullest"


@dataclass(frozen=True, slots=True)
class QuotaFilters:
    """Narrow rows to these names; empty means all. `effective` None means both.

    `text` is a part of namespace, name or key, whatever its case; `key` is one key alone.
    """

    cluster: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    effective: bool | None = None
    text: str = ""
    key: KeyId | None = None

    def matches(self, *names: str) -> bool:
        """Say whether one of the names holds the text that is looked for."""
        wanted = self.text.casefold()
        return not wanted or any(wanted in name.casefold() for name in names)


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One GPU key of a quota as it is; amounts in units of its resource, `unit` says of what.

    `hard` is the limit (of Kueue the nominal quota), `used` what the quota counts: of a
    ResourceQuota pods and claims from creation on, bound (`held`) or not (`pending`). `suppressed`
    was refused before a pod existed and is beside `used`. A key that is not `effective` limits
    nothing: `finding` says so, `fix` what to do, `instead` the key to write; its `used` is None.
    `observed_hard` is what the status still says where it differs from what is set. `headroom` is
    what all quotas of the namespace leave for a pod that no scope selects or excludes. `ceiling`
    is the most that a queue can hold, None for no limit. `team` is None of a queue that several
    share (`team_count`) or none uses. `as_of` is until when somebody vouches for it; a `stale`
    row, of a watch that is away or a collection that it may not read, says what was so then, not
    now, and its `exhausted_at` goes on from there. Amounts `from_series` are means of the hour
    that ended at `as_of`.
    """

    cluster: str
    namespace: str
    source: str
    name: str
    key: str
    resource: str
    tiers: tuple[str, ...]
    team: str | None
    unit: str
    hard: float
    used: float | None
    held: float | None
    pending: float | None
    suppressed: float | None
    saturation_ratio: float | None
    effective: bool
    exhausted_at: datetime | None
    scopes: tuple[str, ...] = ()
    finding: str = ""
    fix: str = ""
    instead: str = ""
    observed_hard: float | None = None
    headroom: float | None = None
    reserved: float | None = None
    borrowed: float | None = None
    borrowing_limit: float | None = None
    lending_limit: float | None = None
    ceiling: float | None = None
    guarantee: float | None = None
    weight: float | None = None
    cohort: str = ""
    set_at: datetime | None = None
    as_of: datetime | None = None
    stale: bool = False
    from_series: bool = False
    team_count: int = 1


@dataclass(frozen=True, slots=True)
class QuotaSum:
    """What the ResourceQuotas of a team's namespaces allow of a resource, and what they count.

    Amounts are None where that of one quota is not known: the rest alone would be too little.
    `as_of` is that of the quota that is longest not observed for; `stale` that one is not now,
    `from_series` that one is known from series.
    """

    team: str
    resource: str
    unit: str
    tiers: tuple[str, ...]
    hard: float
    used: float | None
    held: float | None
    suppressed: float | None
    as_of: datetime | None = None
    stale: bool = False
    from_series: bool = False

    @property
    def saturation_ratio(self) -> float | None:
        if self.used is None or self.hard <= 0:
            return None
        return self.used / self.hard


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """What one quota adds to the sum of its team; units of the resource."""

    cluster: str
    namespace: str
    name: str
    key: str
    hard: float
    used: float | None
    held: float | None
    suppressed: float | None


@dataclass(frozen=True, slots=True)
class QuotaUnits:
    """Units that a key counts, and of what: a pod, a refused workload, or another quota's room."""

    name: str
    units: float
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class QuotaDetail:
    """A key with what its amounts are made of; nothing of amounts that are means of an hour.

    `allocated` and `pending` are the pods that it counts (of a queue what its pods hold, and
    nothing pending), `blocked` what was refused, `left` the room of each quota of the namespace.
    `lent` is what each member of a queue's cohort lends; of others, for who does not see
    everything, their sum. `claims`: it counts ResourceClaims.
    """

    row: QuotaRow
    allocated: tuple[QuotaUnits, ...] = ()
    pending: tuple[QuotaUnits, ...] = ()
    blocked: tuple[QuotaUnits, ...] = ()
    left: tuple[QuotaUnits, ...] = ()
    lent: tuple[QuotaUnits, ...] = ()
    is_mean: bool = False
    claims: bool = False


@dataclass(frozen=True, slots=True)
class QuotasNow:
    """A page of the keys that are there, how many there are in all, and the sums of teams."""

    page: Page[QuotaRow]
    count: int
    sums: list[QuotaSum]


@dataclass(frozen=True, slots=True)
class QuotaPoint:
    """A quota key over one period: means, in units, of the time that it was there (`seconds`).

    Amounts are None where no part of the period is known; `unit_hours` of `hard` are hard ×
    seconds ÷ 3600. `team` is whose it was at the period's end.
    """

    period: datetime
    team: str | None
    seconds: float
    hard: float
    used: float | None
    held: float | None
    pending: float | None
    suppressed: float | None

    @property
    def saturation_ratio(self) -> float | None:
        if self.used is None or self.hard <= 0:
            return None
        return self.used / self.hard


@dataclass(frozen=True, slots=True)
class UnusedRow:
    """What a quota allowed over a window and nobody asked for, and what was held for nothing.

    `hard`, `used` and `unused` are unit-hours, of hours in which `used` is known; `unused` sums
    hours in which less was used than allowed. `idle_gpu_hours` is what pods of the namespace held
    idle on the tiers that the key can reach (None of a queue).
    """

    cluster: str
    namespace: str
    source: str
    name: str
    key: str
    unit: str
    tiers: tuple[str, ...]
    team: str | None
    hard: float
    used: float
    unused: float
    idle_gpu_hours: float | None


@dataclass(frozen=True, slots=True)
class BurnPoint:
    """What of a period's allowance was used by the time `at`."""

    at: datetime
    used: float


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A budget in its running period; `unit` is gpu_hours or a currency.

    Rates are against an even pace: 1.0 lands exactly on the allowance; None before the first
    closed hour. `points` is the burn-down by local day, `as_of` the end of the last closed hour of
    any cluster, `known_until` that of the one that lags most (None: of one nothing is known).
    `coverage_ratio` is the known part of the period's hours until `at`, the moment of reading, of
    all clusters while they were there; below 1 what is used is more than `used`, and `exhausted_at`
    too late; rates are of known hours alone. None before its first closed hour. `data_start` is
    when data starts, where that is after the period's start; `known_hours` are those that
    `burn_rate` rests on, `last_day` and `last_week` what the other rates rest on.
    """

    team: str
    period: str
    period_start: datetime
    period_end: datetime
    unit: str
    allowance: float
    used: float
    burn_rate: float | None
    burn_rate_1d: float | None
    burn_rate_7d: float | None
    exhausted_at: datetime | None
    exhausted_at_early: datetime | None
    exhausted_at_late: datetime | None
    as_of: datetime | None = None
    points: tuple[BurnPoint, ...] = ()
    known_until: datetime | None = None
    coverage_ratio: float | None = None
    at: datetime | None = None
    data_start: datetime | None = None
    known_hours: float | None = None
    last_day: Spent = NOTHING
    last_week: Spent = NOTHING

    @property
    def at_least(self) -> bool:
        """Whether hours are missing, so that more was used than is told."""
        return self.coverage_ratio is not None and self.coverage_ratio < 1.0


@dataclass(frozen=True, slots=True)
class BudgetAlertRow:
    """That a budget reached a share of its allowance (`used`), or will before its end."""

    team: str
    unit: str
    period_start: datetime
    period_end: datetime
    kind: str
    threshold: float
    at: datetime
    used: float
    allowance: float
    exhausted_at: datetime | None

"""What the read side of quotas hands to pages, API and files."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from msgspec import Struct

from apps.clusters.domain.columns import Column
from apps.quotas.domain.budgets import NOTHING, SpentAmount
from apps.quotas.domain.keys import QuotaRef, QuotaSource
from apps.usage.domain.usage_query import PlaceFilters


class QuotaOrder(StrEnum):
    """How quota rows are ordered; ties by cluster, namespace, source, name and key."""

    NAME = "name"
    FULLEST = "fullest"


class QuotaBand(StrEnum):
    """Which keys a list holds: used from TIGHT_FROM on or blocking, all, or without effect."""

    TIGHT = "tight"
    ALL = "all"
    UNENFORCED = "unenforced"


TIGHT_FROM = 0.8


def saturation_ratio(hard: float, used: float | None) -> float | None:
    """Return used ÷ limit; None where either is not known or the limit is 0."""
    return None if used is None or hard <= 0 else used / hard


class QuotaFilters(PlaceFilters, frozen=True):
    """Narrow rows to these names, too. `effective` None means both.

    `text` is a part of namespace, name or key, whatever its case; `key` is one key alone.
    """

    source: tuple[str, ...] = ()
    effective: bool | None = None
    text: str = ""
    key: QuotaRef | None = None

    def matches(self, *names: str) -> bool:
        """Say whether one of the names holds the text that is looked for."""
        wanted = self.text.casefold()
        return not wanted or any(wanted in name.casefold() for name in names)


class QuotaRow(Struct, frozen=True):
    """One GPU key of a quota or queue.

    Amounts are in units of its resource. `used` of a ResourceQuota counts pods and claims from
    creation on, bound (`held`) or not (`pending`). A key that is not `effective` limits nothing:
    `finding` says so, `fix` what to do, `instead` the key to write; its `used` is None.
    `observed_hard` is what the status says where it differs from what is set. `team` is None of a
    queue that several share (`team_count`) or none uses. A `stale` row, of a watch that is away or
    a collection that it may not read, says what was so at `as_of`; its `exhausted_at` goes on from
    there. Amounts `from_series` are means of the hour that ended at `as_of`.
    """

    cluster: Annotated[str, Column("Cluster")]
    namespace: Annotated[str, Column("Namespace", help="Empty for queues of a whole cluster.")]
    source: Annotated[str, Column("Source", values=QuotaSource)]
    name: Annotated[str, Column("Name")]
    key: Annotated[str, Column("Key", help="Of queues flavor/resource.")]
    resource: Annotated[str, Column("Resource", api=False)]
    tiers: Annotated[tuple[str, ...], Column("Tiers", help="Every tier that the key can reach.")]
    team: Annotated[
        str | None,
        Column(
            "Team",
            help="The one team that uses it.",
            api_note="Null where several share it or none uses it.",
        ),
    ]
    unit: Annotated[str, Column("Unit", help="What the amounts count.")]
    hard: Annotated[
        float, Column("Limit", help="The limit; of Kueue the nominal quota.", nullable=True)
    ]
    used: Annotated[
        float | None,
        Column(
            "Used", help="What the quota counts: pending pods too.", api_note="Null where nothing."
        ),
    ]
    held: Annotated[float | None, Column("Allocated", help="Of pods that are bound.")]
    pending: Annotated[float | None, Column("Pending, counted", help="Of pods that are not bound.")]
    suppressed: Annotated[
        float | None, Column("Blocked", help="Refused by the quota, or pending in the queue.")
    ]
    saturation_ratio: Annotated[
        float | None,
        Column(
            *("Quota usage", "%", "Used ÷ limit."),
            api_note="used / hard. Null where hard is 0 or nothing is counted.",
        ),
    ]
    effective: Annotated[
        bool,
        Column(
            "Effective",
            help="Whether the key limits anything.",
            api_note="False: it is accepted and limits nothing.",
        ),
    ]
    exhausted_at: Annotated[
        datetime | None,
        Column("Full", help="Where the trend of seven days reaches the limit within 30 days."),
    ]
    scopes: Annotated[tuple[str, ...], Column("Scopes")] = ()
    finding: Annotated[
        str,
        Column("Finding", help="What is wrong with the key; empty where nothing is.", wraps=True),
    ] = ""
    fix: Annotated[str, Column("Fix", help="What to write instead.", wraps=True)] = ""
    instead: Annotated[str, Column("Instead", api=False)] = ""
    observed_hard: Annotated[
        float | None, Column("Observed limit", help="What the status still says.", api=False)
    ] = None
    headroom: Annotated[
        float | None,
        Column("Headroom", help="What all quotas of the namespace leave together."),
    ] = None
    reserved: Annotated[
        float | None, Column("Reserved", help="What the queue has reserved.", api=False)
    ] = None
    borrowed: Annotated[
        float | None, Column("Borrowed", help="Of its cohort, above the nominal quota.")
    ] = None
    borrowing_limit: Annotated[
        float | None, Column("Borrowing limit", help="The most that it may borrow.", api=False)
    ] = None
    lending_limit: Annotated[
        float | None, Column("Lending limit", help="The most that it may lend.", api=False)
    ] = None
    ceiling: Annotated[
        float | None,
        Column(
            *("Max with borrowing", "", "The most that a queue can hold."),
            api_note="Null for no limit.",
        ),
    ] = None
    guarantee: Annotated[
        float | None, Column("Guarantee", help="What is kept for the queue.", api=False)
    ] = None
    weight: Annotated[
        float | None, Column("Weight", help="Of fair sharing in its cohort.", api=False)
    ] = None
    cohort: Annotated[str, Column("Cohort")] = ""
    set_at: Annotated[datetime | None, Column("Set", api=False)] = None
    as_of: Annotated[datetime | None, Column("As of", help="Until when the row is observed.")] = (
        None
    )
    stale: Annotated[
        bool,
        Column("Stale", help="No watch follows it now.", api_note="The row is that of as_of."),
    ] = False
    from_series: Annotated[
        bool,
        Column(
            "From series",
            help="Without a watch: amounts are means of an hour, from kube-state-metrics.",
            api_note="The hour ended at as_of.",
        ),
    ] = False
    # For pages alone, as all that has no Column.
    team_count: int = 1

    @property
    def ref(self) -> QuotaRef:
        return QuotaRef(self.source, self.namespace, self.name, self.key, self.cluster)


class QuotaSum(Struct, frozen=True):
    """What the ResourceQuotas of a team's namespaces allow of a resource, and what they count.

    Amounts are None where that of one quota is not known: the rest alone would be too little.
    `as_of` is the oldest of its quotas'; `stale`: one of them is; `from_series`: one of them is
    known from series.
    """

    team: Annotated[str, Column("Team")]
    resource: Annotated[str, Column("Resource")]
    unit: Annotated[str, Column("Unit")]
    tiers: Annotated[tuple[str, ...], Column("Tiers")]
    hard: Annotated[float, Column("Limit", help="the lowest limit of each namespace, added up")]
    used: Annotated[
        float | None, Column("Used", help="counted by the quotas: allocated and pending")
    ]
    held: Annotated[float | None, Column("Allocated", help="by bound pods and allocated claims")]
    suppressed: Annotated[float | None, Column("Blocked", help="blocked at admission")]
    as_of: Annotated[
        datetime | None, Column("As of", help="until when all its quotas are known")
    ] = None
    stale: bool = False
    from_series: bool = False

    @property
    def saturation_ratio(
        self,
    ) -> Annotated[float | None, Column("Quota usage", "%", "used ÷ limit", after="tiers")]:
        return saturation_ratio(self.hard, self.used)


class QuotaShare(Struct, frozen=True):
    """What one quota adds to the sum of its team; units of the resource."""

    cluster: str
    namespace: str
    name: str
    key: str
    hard: float
    used: float | None
    held: float | None
    suppressed: float | None


class QuotaUnits(Struct, frozen=True):
    """Units that a key counts, and of what: a pod, a refused workload, or another quota's room."""

    name: str
    units: float
    since: datetime | None = None


class QuotaDetail(Struct, frozen=True):
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


class QuotaPoint(Struct, frozen=True):
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
        return saturation_ratio(self.hard, self.used)


class UnusedRow(Struct, frozen=True):
    """Quota that was allowed over a window and not used, and GPUs that were held without use.

    `hard`, `used` and `unused` are quota-hours, of hours in which `used` is known; `unused` sums
    hours in which less was used than allowed. `idle_gpu_hours` is the idle part of what its pods
    held on the tiers that the key can reach (None of a queue).
    """

    name: Annotated[str, Column("Quota")]
    cluster: Annotated[str, Column("Cluster")]
    namespace: Annotated[str, Column("Namespace")]
    source: Annotated[str, Column("Source")]
    key: Annotated[str, Column("Key")]
    unit: str
    team: Annotated[str | None, Column("Team")]
    tiers: Annotated[tuple[str, ...], Column("Tiers")]
    unused: Annotated[
        float, Column("Unused", "quota-h", "limit − requested, × hours", key="unused_hours")
    ]
    hard: Annotated[float, Column("Allowed", "quota-h", key="hard_hours")]
    used: Annotated[float, Column("Used", "quota-h", key="used_hours")]
    idle_gpu_hours: Annotated[
        float | None, Column("Idle", "GPU-h", "idle allocation of the namespace's pods")
    ]

    @property
    def unused_ratio(
        self,
    ) -> Annotated[float | None, Column("Unused", "%", "of what was allowed", after="tiers")]:
        return self.unused / self.hard if self.hard > 0 else None

    @property
    def ref(self) -> QuotaRef:
        return QuotaRef(self.source, self.namespace, self.name, self.key, self.cluster)


class BurnPoint(Struct, frozen=True):
    """The used part of a period's budget by the time `at`."""

    at: datetime
    used: float


class BurnRow(Struct, frozen=True):
    """A budget in the period that runs, in GPU-hours or in money.

    Rates are against a linear pace: 1.0 lands exactly on the budget; None before the first
    closed hour. `coverage_ratio` is the known part of the period's hours until the moment of
    reading, of all clusters while they were there; rates are of known hours alone. `known_hours`
    are those that `burn_rate` rests on, `last_day` and `last_week` what the other rates rest on.
    """

    team: Annotated[str, Column("Team")]
    period: Annotated[str, Column("Period", api=False)]
    period_start: Annotated[datetime, Column("From", off_page=True, shown_as="day")]
    period_end: Annotated[datetime, Column("Ends before", off_page=True, shown_as="day")]
    unit: Annotated[str, Column(help="gpu_hours, or a currency.")]
    # No columns yet: GPU-hours are floats and money is exact, so that each subclass says which.
    allowance: float | Decimal
    used: float | Decimal
    burn_rate: Annotated[
        float | None,
        Column(
            "Burn rate",
            help="1.0 uses exactly the budget by the end of the period.",
            api_note="Null before the first closed hour.",
            shown_as="decimal",
        ),
    ]
    burn_rate_1d: Annotated[
        float | None, Column("Last day", help="Of the last 24 hours.", shown_as="decimal")
    ]
    burn_rate_7d: Annotated[
        float | None, Column("Last 7 days", help="Of the last seven days.", shown_as="decimal")
    ]
    exhausted_at: Annotated[
        datetime | None,
        Column("Used up", help="At the mean of the last 7 days.", shown_as="hour"),
    ]
    exhausted_at_early: Annotated[
        datetime | None, Column("Earliest", off_page=True, shown_as="hour")
    ]
    exhausted_at_late: Annotated[datetime | None, Column("Latest", off_page=True, shown_as="hour")]
    as_of: Annotated[
        datetime | None,
        Column("As of", help="End of the last closed hour.", off_page=True, shown_as="hour"),
    ] = None
    known_until: Annotated[
        datetime | None,
        Column(
            "All known until",
            help="End of the last closed hour of the cluster that lags most.",
            api_note="Null where nothing is known of one.",
            off_page=True,
            shown_as="hour",
        ),
    ] = None
    coverage_ratio: Annotated[
        float | None,
        Column(
            *("Known", "%"),
            "Known hours of all clusters ÷ the hours so far in which they were there; of money: "
            "priced hours. Rates are of the known hours.",
            api_note="0..1. Below 1 used is a lower bound and exhausted_at too late.",
        ),
    ] = None
    data_start: Annotated[
        datetime | None,
        Column(
            "Data starts",
            help="When data starts, where that is after the period's start.",
            api_note="Else null.",
            off_page=True,
            shown_as="hour",
        ),
    ] = None
    unpriced_gpu_hours: Annotated[
        float | None,
        Column(
            help="Used and without a price, so not counted.",
            api_note="Null of budgets in GPU-hours.",
        ),
    ] = None
    known_hours: float | None = None
    last_day: SpentAmount = NOTHING
    last_week: SpentAmount = NOTHING

    @property
    def used_ratio(
        self,
    ) -> Annotated[float | None, Column("Used", "%", "Used ÷ budget.", api=False, after="period")]:
        """The used share of the budget; None of a budget of zero."""
        return float(self.used) / float(self.allowance) if self.allowance else None

    @property
    def at_least(self) -> bool:
        """Whether hours are missing, so that more was used than is told."""
        return self.coverage_ratio is not None and self.coverage_ratio < 1.0


class BudgetRow(BurnRow, frozen=True):
    """A budget in the period that runs.

    In GPU-hours, as of `at`; `points` is the burn-down by local day.
    """

    allowance: Annotated[float, Column()]
    used: Annotated[float, Column()]
    points: tuple[BurnPoint, ...] = ()
    at: datetime | None = None


class BudgetAlertRow(Struct, frozen=True):
    """That a share of a budget is used (`used`), or will be before its end."""

    at: Annotated[datetime, Column("When")]
    team: Annotated[str, Column("Team")]
    kind: Annotated[str, Column("Kind")]
    threshold: Annotated[
        float, Column("Threshold", "%", "share of the budget", key="threshold_ratio")
    ]
    used: Annotated[float, Column("Used then")]
    allowance: Annotated[float, Column("Budget")]
    unit: Annotated[str, Column("Unit")]
    exhausted_at: Annotated[
        datetime | None, Column("Used up", help="as projected at that time", shown_as="hour")
    ]
    period_start: datetime
    period_end: datetime

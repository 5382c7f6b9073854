"""What the read side hands to pages, API and files: frozen rows, no ORM objects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Generic, TypeVar

from apps.clusters.domain.columns import Column
from apps.clusters.domain.window import Window
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.collection import CollectionState

Row = TypeVar("Row")
COVERAGE = Column(
    *("Metrics coverage", "%", "Share of the running time that metrics cover."),
    api_note="0..1: 1 − unmeasured / (allocated − not_running). Null where the divisor is zero.",
)


class TimeStep(StrEnum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


class Grouping(StrEnum):
    CLUSTER = "cluster"
    TIER = "tier"
    TEAM = "team"
    NAMESPACE = "namespace"
    WORKLOAD = "workload"
    GPU_MODEL = "gpu_model"
    CAPACITY_TYPE = "capacity_type"
    NODE = "node"

    @property
    def column(self) -> str:
        """The column of facts that holds it."""
        return self.value if self is Grouping.CAPACITY_TYPE else f"{self.value}_id"


@dataclass(frozen=True, slots=True)
class Filters:
    """Narrow a reading to these names; empty means all. `workload` reads `Kind/name`."""

    cluster: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    workload: tuple[str, ...] = ()
    gpu_model: tuple[str, ...] = ()
    capacity_type: tuple[str, ...] = ()
    node: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """What is asked of the ledger."""

    window: Window
    interval: TimeStep = TimeStep.TOTAL
    group_by: Sequence[Grouping] = ()
    filters: Filters = field(default_factory=Filters)


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One period × one group. `period` carries the report zone's offset; None for a total.

    `groups` holds the names asked for, in the order asked; a workload reads `Kind/name`.
    """

    period: datetime | None
    groups: Mapping[str, str]
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod of the ledger with what it held in the window.

    `ended_at` is when it was over for the ledger: its latest finish, else its deletion as
    observed. A pod that is deleted while it waits has an end and neither binding nor finish.
    """

    cluster: Annotated[str, Column()]
    namespace: Annotated[str, Column()]
    pod: Annotated[str, Column("Pod")]
    uid: Annotated[str, Column()]
    owner_kind: Annotated[
        str,
        Column(help="Kind of the top controller; Pod for a bare pod."),
    ]
    owner: Annotated[str, Column()]
    team: Annotated[str, Column()]
    tier: Annotated[str | None, Column("Tier")]
    gpu_model: Annotated[str | None, Column("GPU model", api_note="Null until it is bound.")]
    node: Annotated[str | None, Column("Node")]
    resource: Annotated[str, Column("Resource", help="As Kubernetes names it: nvidia.com/gpu.")]
    units: Annotated[float, Column("Units", help="Units of the resource.")]
    gpu_equivalents: Annotated[
        float, Column("Size", "GPUs", "Units × weight; a physical GPU is 1.")
    ]
    created_at: Annotated[datetime, Column("Created")]
    bound_at: Annotated[datetime | None, Column("Bound", api_note="Null while it is pending.")]
    started_at: Annotated[datetime | None, Column("Started")]
    finished_at: Annotated[datetime | None, Column("Finished")]
    end_reason: Annotated[str | None, Column("End")]
    amounts: Amounts
    key: str = ""
    ended_at: datetime | None = None

    @property
    def end(self) -> datetime | None:
        """When it was over, as far as that is known; None while it lasts."""
        return self.ended_at or self.finished_at

    @property
    def waited_until(self) -> datetime | None:
        """When it was bound, or went without having been; None while it waits."""
        return self.bound_at or self.end


@dataclass(frozen=True, slots=True)
class RowPage(Generic[Row]):
    """Some rows in order and the cursor of the next ones; None at the end."""

    rows: tuple[Row, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """The data quality of one hour of one cluster."""

    cluster: Annotated[str, Column("Cluster")]
    hour: Annotated[datetime, Column("Hour", help="Start of the hour.", shown_as="hour")]
    state: Annotated[str, Column("State", values=CollectionState)]
    coverage_ratio: Annotated[float | None, COVERAGE]
    samples: Annotated[int, Column("Samples", help="Device samples read.")]
    attempts: Annotated[int, Column("Attempts")]
    error: Annotated[
        str | None,
        Column(
            api_note="What to do; null where there is none or you do not administer the portal.",
            admin=True,
        ),
    ]
    findings: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    ledger_source: Annotated[str, Column("Pods known from", api=False)] = ""
    scrape_interval_seconds: float | None = None
    activity_metric: Annotated[str, Column("Activity metric", api=False)] = ""
    duration_seconds: Annotated[
        float | None, Column("Took", "s", api=False, shown_as="decimal")
    ] = None

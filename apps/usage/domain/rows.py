"""What the read side hands to pages, API and files: frozen rows, no ORM objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from apps.usage.domain.amounts import Amounts

Row = TypeVar("Row")


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
class UsageRow:
    """One period × one group. `period` carries the report zone's offset; None for a total.

    `groups` holds the names asked for, in the order asked; a workload reads `Kind/name`.
    """

    period: datetime | None
    groups: Mapping[str, str]
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class PodRow:
    """One pod of the ledger with what it held within the window.

    `ended_at` is when it was over for the ledger: its latest finish, else its deletion as
    observed. A pod that is deleted while it waits has an end and neither binding nor finish.
    """

    cluster: str
    namespace: str
    pod: str
    uid: str
    owner_kind: str
    owner: str
    team: str
    tier: str | None
    gpu_model: str | None
    node: str | None
    resource: str
    units: float
    gpu_equivalents: float
    created_at: datetime
    bound_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    end_reason: str | None
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
class Page(Generic[Row]):
    """Some rows in order and the cursor of the next ones; None at the end."""

    rows: tuple[Row, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """One hour of one cluster in data health."""

    cluster: str
    hour: datetime
    state: str
    coverage_ratio: float | None
    samples: int
    attempts: int
    error: str | None
    findings: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    ledger_source: str = ""
    scrape_interval_seconds: float | None = None
    activity_metric: str = ""
    duration_seconds: float | None = None

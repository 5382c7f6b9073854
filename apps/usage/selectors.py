"""Reads of facts: the ledger by period and group, pods, and data health."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.clusters.domain.window import Window
from apps.usage.domain.rows import (
    CollectionRow,
    Filters,
    Grouping,
    Interval,
    Page,
    PodRow,
    UsageRow,
)


class GroupingRefused(ValueError):
    """The groups asked for cannot be had together, or not over this window; says why."""


def usage_rows(
    window: Window,
    *,
    interval: Interval,
    group_by: Sequence[Grouping],
    filters: Filters,
    visibility: Visibility,
) -> list[UsageRow]:
    """Return the ledger, ordered by period and then by group names.

    Capacity columns are None where a grouping or filter names team, namespace or workload.
    Groups finer than a team (namespace, workload) hold only what `visibility` shows in detail.
    Raises GroupingRefused.
    """
    raise NotImplementedError


def usage_page(
    window: Window,
    *,
    interval: Interval,
    group_by: Sequence[Grouping],
    filters: Filters,
    visibility: Visibility,
    cursor: str | None,
    page_size: int,
) -> Page[UsageRow]:
    """Return one page of `usage_rows` in the same order, keyset by (period, groups)."""
    raise NotImplementedError


def pod_page(
    window: Window,
    *,
    filters: Filters,
    visibility: Visibility,
    cursor: str | None,
    page_size: int,
) -> Page[PodRow]:
    """Return pods that lived within the window (waiting ones too), newest created first."""
    raise NotImplementedError


def collection_page(
    window: Window | None,
    *,
    filters: Filters,
    states: Sequence[str],
    visibility: Visibility,
    cursor: str | None,
    page_size: int,
) -> Page[CollectionRow]:
    """Return hours of data health, newest first."""
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Freshness:
    """Up to where facts are there, and what is missing in a window.

    `last_hour_end` is the end of the newest collected hour (None: nothing yet); the three lists
    hold starts of hours in the window, oldest first.
    """

    last_hour_end: datetime | None
    missing: tuple[datetime, ...]
    failed: tuple[datetime, ...]
    partial: tuple[datetime, ...]


def freshness(window: Window, *, filters: Filters, visibility: Visibility) -> Freshness:
    """Return how complete the facts of a window are, up to the newest closed hour."""
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pods not bound now: how many, and the GPU-equivalents they ask for."""

    tier: str
    pods: int
    gpu_equivalents: float


def waiting_now(at: datetime, *, visibility: Visibility) -> list[Waiting]:
    """Return what waits at `at`, by tier (summed over all teams: a team-level GPU sum)."""
    raise NotImplementedError


def data_ready() -> bool:
    """Say whether any hour has facts to show."""
    raise NotImplementedError

"""Reads of what exists: clusters, tiers, teams, nodes and the report's settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from apps.accounts.permissions import Visibility


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster as loaded. `source` says where its pod ledger comes from: api or metrics."""

    name: str
    prometheus_url: str
    scrape_interval_seconds: float
    has_kubernetes_api: bool
    watched_until: datetime | None


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier as its newest rule says; built-in tiers have no rule and `sharing` None."""

    name: str
    sharing: str | None
    resources: tuple[str, ...]
    device_classes: tuple[str, ...]
    node_selector: Mapping[str, str]
    promise: str
    allowed_teams: tuple[str, ...]
    builtin: bool


@dataclass(frozen=True, slots=True)
class TeamRow:
    """A team as loaded. `namespaces` is None where the reader may not see them."""

    name: str
    cost_center: str
    leads: tuple[str, ...]
    namespaces: tuple[str, ...] | None
    builtin: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The report's time zone and currency."""

    zone: ZoneInfo
    currency: str


def report() -> Report:
    """Return the report settings; UTC and USD before a catalog was loaded. One query."""
    raise NotImplementedError


def cluster_rows(*, visibility: Visibility) -> list[ClusterRow]:
    """Return active clusters by name. Connection details only for who sees everything."""
    raise NotImplementedError


def tier_rows(*, visibility: Visibility) -> list[TierRow]:
    """Return active tiers in catalog order, built-in ones last."""
    raise NotImplementedError


def team_rows(*, visibility: Visibility) -> list[TeamRow]:
    """Return active teams by name."""
    raise NotImplementedError

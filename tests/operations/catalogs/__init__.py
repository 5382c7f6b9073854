"""Catalogs to load in tests, and what tells what a load did."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Membership, Team
from apps.clusters.models import Cluster, NamespaceTeam, ReportSettings, Tier, TierRule
from apps.costs.models import EnergyFactor, Price
from apps.fairness.models import QueueTimeObjective
from apps.operations.domain.timeline import CatalogDifference
from apps.operations.services import load_catalog
from apps.quotas.models import Budget, Entitlement
from apps.usage.models import ServingObjective

HERE = Path(__file__).parent
DESIGN = (HERE / "design.yaml").read_text(encoding="utf-8")
EVERY_KEY = (HERE / "every-key.yaml").read_text(encoding="utf-8")
MONDAY = datetime(2026, 11, 16, 8, tzinfo=UTC)
TUESDAY = MONDAY + timedelta(days=1)
WEDNESDAY = MONDAY + timedelta(days=2)
_WRITES = ("INSERT", "UPDATE", "DELETE")


Rows = dict[str, list[dict[str, Any]]]


def load(catalog: str | dict[str, Any], now: datetime = MONDAY) -> CatalogDifference:
    text = catalog if isinstance(catalog, str) else yaml.safe_dump(catalog, sort_keys=False)
    return load_catalog(text, "c.yaml", now=now)


def small(**changed: Any) -> dict[str, Any]:
    """Return a catalog of two tiers and two teams, with some sections changed."""
    product = "nvidia.com/gpu.product"
    return {
        "clusters": [{"name": "west", "prometheus": {"url": "http://p:9090"}}],
        "tiers": [
            {
                "name": "a100",
                "sharing": "exclusive",
                "resources": ["nvidia.com/gpu"],
                "node_selector": {product: "A100"},
            },
            {"name": "any", "sharing": "exclusive", "resources": ["nvidia.com/gpu"]},
        ],
        "teams": [
            {"name": "vision", "leads": ["ada"], "namespaces": ["vision", "v-*"]},
            {"name": "speech", "namespaces": ["*-speech"], "entitlements": {"any": 4}},
        ],
        "prices": [
            {
                "gpu_model": "A100",
                "capacity_type": "spot",
                "per_gpu_hour": "1.5",
                "currency": "USD",
            }
        ],
        **changed,
    }


def all_rows() -> Rows:
    """Return every row of the tables that a catalog writes."""
    models = [
        *(Team, Membership, Cluster, Tier, TierRule, NamespaceTeam, ReportSettings),
        *(Entitlement, Budget, Price, EnergyFactor, QueueTimeObjective, ServingObjective),
    ]
    return {m.__name__: list(m._default_manager.order_by("pk").values()) for m in models}


def writes(captured: CaptureQueriesContext) -> list[str]:
    return [q["sql"] for q in captured.captured_queries if q["sql"].startswith(_WRITES)]


def changes(difference: CatalogDifference) -> list[str]:
    return [f"{change.action} {change.what} {change.name}" for change in difference.changes]


def edited(edit: int) -> dict[str, Any]:
    catalog = small()
    if edit & 1:
        catalog["tiers"].insert(0, catalog["tiers"][0] | {"name": "b", "node_selector": {"x": "y"}})
    if edit & 2:
        catalog["teams"].reverse()
        catalog["teams"][0]["entitlements"] = {"any": 7, "a100": 1}
    if edit & 4:
        catalog["tiers"][-2:-1] = []
        catalog["teams"] = [{"name": "speech", "namespaces": ["v-*"], "leads": ["ada"]}]
        catalog["prices"][0]["per_gpu_hour"] = "2"
    return catalog

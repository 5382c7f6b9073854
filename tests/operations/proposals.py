"""A proposal on the small portal, whose catalog says something else than its author saw."""

from datetime import UTC, datetime
from typing import Any

from apps.operations.models import CatalogProposal
from tests.factories import Portal


def make_proposal(portal: Portal, **values: Any) -> CatalogProposal:
    """Make a proposal for the namespaces of vision, by somebody who left."""
    given: dict[str, Any] = {
        "team": portal.vision,
        "kind": "namespaces",
        "before": {"patterns": ["former"]},
        "after": {"patterns": ["vision", "former"]},
        "reason": "A larger model.",
        "author": "emil",
        "created_at": datetime(2025, 10, 27, 12, tzinfo=UTC),
    }
    return CatalogProposal.objects.create(**given | values)

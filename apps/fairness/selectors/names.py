"""Tiers that are read, in the catalog's order, by name."""

from collections.abc import Collection

from apps.clusters.models import Tier


def tier_names(names: Collection[str] = ()) -> dict[int, str]:
    """Return id → name of the tiers of these names, of all where none is given. One query."""
    rows = Tier.objects.filter(name__in=names) if names else Tier.objects.all()
    return dict(rows.order_by("position", "name", "pk").values_list("pk", "name"))

"""What must hold in a catalog beyond the type of each value; every check notes all it finds."""

from datetime import datetime

from apps.operations.domain.checks import clusters, prices, report, teams, tiers
from apps.operations.domain.schema import Catalog
from apps.operations.domain.source_positions import Problems


def check(catalog: Catalog, problems: Problems, *, now: datetime) -> None:
    """Add to `problems` whatever forbids loading the catalog.

    Values that did not fit their type are None here (see `shape`) and are left alone.
    """
    zone = report.check(catalog, problems, now=now)
    clusters.check(catalog, problems)
    tiers.check(catalog, problems)
    teams.check(catalog, problems)
    prices.check(catalog, problems, zone)

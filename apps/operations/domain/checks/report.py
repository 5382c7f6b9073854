"""The report's time zone, and every valid_from, which is read in that zone."""

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from apps.operations.domain.instants import instant, known_zones, zone_problem
from apps.operations.domain.schema import Catalog
from apps.operations.domain.source_positions import Path, Problems, near

_UTC = ZoneInfo("UTC")
_DATED = ("tiers", "teams", "prices")


def check(catalog: Catalog, problems: Problems, *, now: datetime) -> ZoneInfo:
    """Check the time zone, then the dates; return the zone, UTC in place of a wrong one."""
    zone = _checked_zone(catalog, problems, now)
    for path, text in _dates(catalog):
        try:
            instant(text, zone)
        except ValueError as error:
            problems.add(path, str(error))
    return zone


def _checked_zone(catalog: Catalog, problems: Problems, now: datetime) -> ZoneInfo:
    name = catalog.report.time_zone
    wrong = zone_problem(name, now)
    if wrong is None:
        return ZoneInfo(name)
    close = near(name, sorted(known_zones())) if name not in known_zones() else ""
    problems.add(("report", "time_zone"), wrong + close.removesuffix(";"))
    return _UTC


def _dates(catalog: Catalog) -> Iterator[tuple[Path, str]]:
    for section in _DATED:
        for index, item in enumerate(getattr(catalog, section)):
            if item is not None and item.valid_from is not None:
                yield (section, index, "valid_from"), item.valid_from

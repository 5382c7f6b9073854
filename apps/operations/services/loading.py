"""Loading a catalog: read it, plan against what is loaded, and store, in one transaction."""

from datetime import datetime

from django.db import IntegrityError, OperationalError, transaction

from apps.accounts import services as accounts
from apps.clusters import services as clusters
from apps.operations.domain.difference import CatalogDifference
from apps.operations.domain.schema import Catalog
from apps.operations.domain.source_positions import CatalogError, Path, Problems
from apps.operations.services.planning import Loaded, Plans, loaded, plan_catalog
from apps.operations.services.reading import read_catalog
from apps.usage.selectors import data_ready


class CatalogNotStored(Exception):
    """The catalog is right, but the database did not take it; nothing was changed."""


def ensure_builtin() -> None:
    """Create the tiers and the team that always exist, where they are missing."""
    accounts.ensure_builtin()
    clusters.ensure_builtin()


def load_catalog(
    text: str, filename: str, *, now: datetime, dry_run: bool = False
) -> CatalogDifference:
    """Make the portal's catalog what `text` says; return what that changed, or would change.

    `filename` stands in errors only. `now` (aware) is when changes take effect that name no
    `valid_from`. The same text again changes nothing. One transaction; loads wait for each other.
    Raises CatalogError with everything that is wrong, and CatalogNotStored when another process
    got in the way; then nothing is changed.
    """
    catalog, problems = read_catalog(text, filename, now=now)
    if dry_run:
        return _planned(catalog, problems, filename, now).difference()
    try:
        with transaction.atomic():
            ensure_builtin()
            accounts.lock_catalog()
            plans = _planned(catalog, problems, filename, now)
            plans.store()
    except IntegrityError as error:
        raise CatalogNotStored(
            "another process changed the catalog's rows at the same time; load it again"
        ) from error
    except OperationalError as error:
        raise CatalogNotStored(
            f"the database could not be written ({error}); load it again when it is free"
        ) from error
    return plans.difference()


def _planned(catalog: Catalog, problems: Problems, filename: str, now: datetime) -> Plans:
    held = loaded()
    plans = plan_catalog(catalog, held, now=now)
    for path, reason in (*plans.refused(), *_other_zone(catalog, held)):
        problems.add(path, reason)
    if problems.found:
        raise CatalogError(filename, problems.found)
    return plans


def _other_zone(catalog: Catalog, held: Loaded) -> list[tuple[Path, str]]:
    """Refuse a time zone that would cut days otherwise than those that are summed already."""
    zones = {record.time_zone for record in held.report}
    asked = catalog.report.time_zone
    if not zones or asked in zones or not data_ready():
        return []
    (zone,) = zones
    reason = (
        f"{asked} is not the zone of the facts that are there, {zone}, in which days were summed. "
        f"Keep {zone}, or start a new portal with an empty database and collect its past anew"
    )
    return [(("report", "time_zone"), reason)]

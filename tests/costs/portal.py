"""A small portal with prices, for tests of money: what it costs is known by plain arithmetic."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Sum
from msgspec import Struct

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.domain.window import Window, day_window
from apps.costs.domain.costing import Basis, Cause, Policy
from apps.costs.domain.files import FileFormat
from apps.costs.models import PoolCostHour, Price, TeamCostHour, WorkloadCostHour
from apps.costs.selectors import CostQuery, CostRow, Waterfall, cost_rows, waterfalls
from apps.costs.selectors.exported_files import closed_name
from apps.costs.services import price_hours
from apps.quotas.models import Entitlement
from apps.usage.domain.usage_query import Grouping
from apps.usage.models import CollectionWindow, TierHour
from tests.factories import A100, BEGINNING, H100, Portal, make_portal
from tests.shared_rows import remembered

DAY = date(2026, 10, 30)
COLLECTED = datetime(2026, 11, 2, 6, tzinfo=UTC)
NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
PRICES = (
    (H100, "on-demand", "6.88000001"),
    (A100, "spot", "1.23456789"),
    (A100, "on-demand", "3.06"),
)


def make_price(model: str, kind: str, amount: str, **values: Any) -> Price:
    given = {"currency": "USD", "valid_from": BEGINNING, **values}
    return Price.objects.create(
        gpu_model=model, capacity_type=kind, per_gpu_hour=Decimal(amount), **given
    )


class Priced(Struct, frozen=True):
    """The portal with its days collected; `window` is all of them."""

    portal: Portal
    window: Window


@remembered
def make_priced(
    days: int = 2,
    *,
    prices: Iterable[tuple[str, str, str]] = PRICES,
    first: date = DAY,
    now: datetime = NOW,
) -> Priced:
    """Make the portal, its prices and entitlements, collect some days and price them."""
    portal = make_portal()
    for model, kind, amount in prices:
        make_price(model, kind, amount)
    gold, silver = portal.tiers
    for team, tier, gpus in (
        (portal.vision, gold, 3.0),
        (portal.speech, gold, 2.0),
        (portal.speech, silver, 1.5),
    ):
        Entitlement.objects.create(
            team=team, tier=tier, gpus=gpus, weight=gpus, valid_from=BEGINNING
        )
    window = days_from(portal, first, days)
    portal.collect(window)
    CollectionWindow.objects.update(collected_at=COLLECTED)
    price_hours(now=now)
    return Priced(portal, window)


def days_from(portal: Portal, first: date, days: int) -> Window:
    last = first + timedelta(days=days - 1)
    return Window(day_window(first, portal.zone).start, day_window(last, portal.zone).end)


def rows(window: Window, **asked: Any) -> list[CostRow]:
    seen, zone = asked.pop("visibility", EVERYTHING), asked.pop("zone", None)
    return cost_rows(CostQuery(window, **asked), visibility=seen, zone=zone)


def waterfall(
    window: Window, *, visibility: Visibility, before: Window | None = None
) -> list[Waterfall]:
    """Return the waterfalls of what was held in a window, the dollar's first."""
    now = rows(window, waste=True, visibility=visibility)
    then = None if before is None else rows(before, waste=True, visibility=visibility)
    return waterfalls(now, before=then, currency="USD")


def total(found: Iterable[CostRow]) -> int:
    return sum(row.cost or 0 for row in found)


def by_cause(found: Iterable[CostRow]) -> dict[Cause, int]:
    sums: dict[Cause, int] = {}
    for row in found:
        sums[row.cause] = sums.get(row.cause, 0) + (row.cost or 0)
    return {cause: cost for cause, cost in sums.items() if cost}


def cost_of_capacity(window: Window, prices: Sequence[tuple[str, str, str]] = PRICES) -> Fraction:
    """Return Σ capacity × price over pools, exactly, in units of 1e-8."""
    known = {(model, kind): Fraction(amount) for model, kind, amount in prices}
    facts = TierHour.objects.filter(hour__gte=window.start, hour__lt=window.end)
    sums = facts.order_by().values_list("gpu_model__name", "capacity_type")
    return sum(
        (
            Fraction(int(capacity)) / 10**9 * known[model, kind] * 10**8
            for model, kind, capacity in sums.annotate(whole=Sum("capacity"))
            if (model, kind) in known
        ),
        Fraction(0),
    )


def stored() -> dict[str, list[tuple[Any, ...]]]:
    """Return all hourly cost rows without ids, in order."""
    found = {}
    for table in (WorkloadCostHour, TeamCostHour, PoolCostHour):
        names = [f.attname for f in table._meta.concrete_fields if f.name != "id"]
        found[table.__name__] = sorted(table._default_manager.values_list(*names), key=repr)
    return found


CHARGINGS = [(basis, policy) for basis in Basis for policy in Policy]
GROUPS = tuple(g for g in Grouping if g is not Grouping.NODE)


def closed_path(sha256: str, format_: FileFormat) -> Path:
    """Return where the folder of exports has a file of a closed month."""
    return Path(settings.EXPORTS_DIR) / closed_name(sha256, format_)

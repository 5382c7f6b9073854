"""Prices: one for each time, plausible, and none for a cluster or tier that is not there."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from apps.clusters.domain.tiers import model_key
from apps.costs.domain.plausible import doubt
from apps.costs.domain.prices import PriceEntry
from apps.operations.domain.checks.names import check_known, check_once, written
from apps.operations.domain.instants import BEGINNING, instant
from apps.operations.domain.priced import per_gpu_hour
from apps.operations.domain.schema import Catalog, Price
from apps.operations.domain.source_positions import Path, Problems

_SEPARATE = ("gpu_model", "capacity_type", "cluster", "tier", "valid_from")
_AMOUNT = ("gpu_model", "capacity_type", "per_gpu_hour", "currency", "discount", "owned")


def check(catalog: Catalog, problems: Problems, zone: ZoneInfo) -> None:
    """Check every price, then those that would hold at the same time."""
    prices = [(("prices", i), p) for i, p in enumerate(catalog.prices) if p]
    clusters, tiers = written(problems.root, "clusters"), written(problems.root, "tiers")
    for path, price in prices:
        if price.cluster is not None:
            check_known((*path, "cluster"), price.cluster, clusters, problems, what="cluster")
        if price.tier is not None:
            check_known((*path, "tier"), price.tier, tiers, problems, what="tier")
        _check_amount(price, path, problems)
    sound = [
        (path, price)
        for path, price in prices
        if problems.clean(*((*path, field) for field in _SEPARATE))
    ]
    check_once(
        ((path, (*separate(price), _since(price, zone))) for path, price in sound),
        problems,
        what="a second price of the same GPU model, capacity type, cluster, tier and valid_from",
    )
    _check_dated(sound, problems)


def separate(price: Price) -> tuple[str, str, str, str]:
    """Return what keeps one price apart from another at the same time."""
    place = (price.cluster or "", price.tier or "")
    return (*place, model_key(price.gpu_model), price.capacity_type.value)


def _check_amount(price: Price, path: Path, problems: Problems) -> None:
    """Note a price that is given twice or not at all, or that looks like a typing error."""
    if not problems.clean(*((*path, field) for field in _AMOUNT)):
        return
    if (price.per_gpu_hour is None) == (price.owned is None):
        have = "neither" if price.owned is None else "both"
        problems.add(path, f"has {have} of per_gpu_hour and owned; exactly one is needed")
        return
    place = (*path, "per_gpu_hour" if price.owned is None else "owned")
    try:
        reason = None if price.confirmed else doubt(_entry(price))
        _check_pue(price)
    except ValueError as error:
        problems.add(place, str(error))
        return
    if reason is not None:
        problems.add(place, f"{reason} (To confirm it, add confirmed: true)")


def _entry(price: Price) -> PriceEntry:
    return PriceEntry(
        gpu_model=price.gpu_model,
        capacity_type=price.capacity_type.value,
        per_gpu_hour=per_gpu_hour(price),
        currency=price.currency,
        valid_from=BEGINNING,
        discount=Decimal(price.discount),
    )


def _check_pue(price: Price) -> None:
    if price.owned is not None and Decimal(price.owned.pue) < 1:
        raise ValueError(f"pue must be 1 or more, not {price.owned.pue}")


def _check_dated(prices: Sequence[tuple[Path, Price]], problems: Problems) -> None:
    """Note an undated price beside dated ones: which of them holds now could not be said."""
    dated = {separate(price) for _, price in prices if price.valid_from is not None}
    for path, price in prices:
        if price.valid_from is None and separate(price) in dated:
            problems.add(
                path,
                "needs a valid_from: other prices of the same GPU model, capacity type, cluster "
                "and tier have one",
            )


def _since(price: Price, zone: ZoneInfo) -> datetime | None:
    return None if price.valid_from is None else instant(price.valid_from, zone)

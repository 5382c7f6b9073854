"""Prices: one for each time, and none for a cluster that is not there."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from apps.clusters.domain.tiers import model_key
from apps.operations.domain.checks.names import check_known, check_once, written
from apps.operations.domain.instants import instant
from apps.operations.domain.located import Path, Problems
from apps.operations.domain.schema import Catalog, Price

_SEPARATE = ("gpu_model", "capacity_type", "cluster", "valid_from")


def check(catalog: Catalog, problems: Problems, zone: ZoneInfo) -> None:
    """Check every price, then those that would hold at the same time."""
    prices = [(("prices", i), p) for i, p in enumerate(catalog.prices) if p]
    clusters = written(problems.root, "clusters")
    for path, price in prices:
        if price.cluster is not None:
            check_known((*path, "cluster"), price.cluster, clusters, problems, what="cluster")
    sound = [
        (path, price)
        for path, price in prices
        if problems.clean(*((*path, field) for field in _SEPARATE))
    ]
    check_once(
        ((path, (*separate(price), _since(price, zone))) for path, price in sound),
        problems,
        what="a second price of the same GPU model, capacity type, cluster and valid_from",
    )
    _check_dated(sound, problems)


def separate(price: Price) -> tuple[str, str, str]:
    """Return what keeps one price apart from another at the same time."""
    return price.cluster or "", model_key(price.gpu_model), price.capacity_type.value


def _check_dated(prices: Sequence[tuple[Path, Price]], problems: Problems) -> None:
    """Note an undated price beside dated ones: which of them holds now could not be said."""
    dated = {separate(price) for _, price in prices if price.valid_from is not None}
    for path, price in prices:
        if price.valid_from is None and separate(price) in dated:
            problems.add(
                path,
                "needs a valid_from: other prices of the same GPU model, capacity type and "
                "cluster have one",
            )


def _since(price: Price, zone: ZoneInfo) -> datetime | None:
    return None if price.valid_from is None else instant(price.valid_from, zone)

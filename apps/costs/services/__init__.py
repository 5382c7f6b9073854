"""Writes of costs: prices, what hours cost, closed months."""

from apps.costs.services.closing import CloseRefused, close_period, reopen_period, sha256_of_file
from apps.costs.services.prices import PriceRecord, loaded_prices, write_prices
from apps.costs.services.pricing import price_hours, prune

__all__ = [
    "CloseRefused",
    "PriceRecord",
    "close_period",
    "loaded_prices",
    "price_hours",
    "prune",
    "reopen_period",
    "sha256_of_file",
    "write_prices",
]

"""Writes of costs: prices, what hours cost, closed months."""

from apps.costs.services.closing import CloseRefused, close_period, reopen_period, sha256_of_file
from apps.costs.services.exporting import ExportRefused, ask_export
from apps.costs.services.exporting_closed import ClosedCopy, copy_of_month, keep_closed_files
from apps.costs.services.money_alerts import note_money_alerts
from apps.costs.services.prices import PriceRecord, loaded_prices, write_prices
from apps.costs.services.pricing import price_hours, prune
from apps.costs.services.recommendations.daily_run import store_recommendations
from apps.costs.services.recommendations.decisions import (
    DecisionRefused,
    UnknownRecommendation,
    accept_recommendation,
    dismiss_recommendation,
    reopen_recommendation,
)

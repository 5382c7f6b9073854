"""Writes of costs: prices, what hours cost, closed months."""

from apps.costs.services.bills import (
    MOST_BYTES,
    BillInput,
    check_size,
    delete_bill,
    import_bill,
    map_skus,
)
from apps.costs.services.closing import CloseRefused, close_period, reopen_period, sha256_of_file
from apps.costs.services.exports import (
    ClosedCopy,
    ExportRefused,
    ask_export,
    copy_of_month,
    keep_closed_files,
)
from apps.costs.services.messages import ReportFile, note_money_alerts, send_monthly_reports
from apps.costs.services.prices import (
    EnergyFactorRecord,
    PriceRecord,
    loaded_energy_factors,
    loaded_prices,
    write_energy_factors,
    write_prices,
)
from apps.costs.services.pricing import price_hours, prune
from apps.costs.services.recommendation_run import store_recommendations
from apps.costs.services.recommendations import (
    DecisionRefused,
    UnknownRecommendation,
    accept_recommendation,
    dismiss_recommendation,
    reopen_recommendation,
)
from apps.costs.services.replayed_effects import (
    ReplayableChange,
    ReplayedEffects,
    note_replay_gaps,
    note_replayed_effects,
    take_replayable,
)

"""How the sum of recommended savings comes about: one row for each recommendation in it."""

from datetime import datetime

from apps.accounts.permissions import Visibility
from apps.costs.domain.recommendations.recommendation import OF_QUOTA
from apps.costs.selectors.recommendations import (
    RecommendationFilters,
    kept_of,
    recommendation_page,
    recommendation_sums,
)
from apps.usage.domain.explained import Explained, RowColumn, Unit

SAVING = "saving_per_month"
_MOST = 10_000


def explain_saving(
    *, filters: RecommendationFilters, visibility: Visibility, now: datetime, currency: str
) -> Explained:
    """Explain the saving of all open recommendations that the reader sees, in one currency.

    Of alternatives the best alone is in it, nothing of quota (that saves no cash), and nothing that
    somebody keeps. Five queries.
    """
    sums = recommendation_sums(filters=filters, visibility=visibility, now=now)
    value = next((one.saving_per_month for one in sums if one.currency == currency), None)
    page = recommendation_page(filters=filters, visibility=visibility, cursor=None, page_size=_MOST)
    kept = kept_of(page.rows, now=now)
    rows = [
        {
            "kind": row.kind,
            "cluster": row.cluster,
            "namespace": row.namespace,
            "workload": row.workload or row.node,
            "confidence": row.confidence,
            "reason": row.reason,
            "saving": row.saving_per_month,
        }
        for row in page.rows
        if row.currency == currency
        and row.kind not in OF_QUOTA
        and not row.alternative
        and row.pk not in kept
    ]
    texts = ("kind", "cluster", "namespace", "workload", "confidence", "reason")
    return Explained(
        figure=SAVING,
        label="Saving per month",
        meaning="What open recommendations save in a month of 730 hours.",
        anchor="recommendations",
        value=value,
        unit=Unit.MONEY,
        currency=currency,
        formula="sum(saving)",
        columns=(
            *(RowColumn(key, key.capitalize()) for key in texts),
            RowColumn("saving", "Saving", Unit.MONEY),
        ),
        rows=rows,
        origin="Measured use of up to thirty days × the price now.",
        sources=("holding", "activity"),
        nothing="" if value is not None else "No open recommendation has a price.",
    )

"""Explain the savings of recommendations and the waste that they cover."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from apps.accounts.domain.structs import replace
from apps.accounts.permissions import Visibility
from apps.clusters.domain.names import ANY, family_of
from apps.clusters.domain.window import Window
from apps.costs.domain.costing import money
from apps.costs.domain.recommendations.idle_time import TEAM
from apps.costs.domain.recommendations.recommendation import (
    OF_QUOTA,
    SAVED_EACH,
    SAVED_GPU_HOURS,
    RecommendationKind,
)
from apps.costs.selectors.explain_costs import price_rows
from apps.costs.selectors.recommendations import (
    DECIDED_TO_SAVE,
    REALIZED_VERDICTS,
    RecommendationFilters,
    RecommendationRow,
    evidence_window,
    recommendation,
    recommendation_page,
    recommendation_sums,
    retained_of,
    savings,
    waste_covered,
)
from apps.usage.domain.amounts import NANO
from apps.usage.domain.explained import Explained, FigureInput, FigureUnit, RowColumn
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery, UsageRow
from apps.usage.selectors import usage_rows

SAVING, RECOMMENDED = "saving_per_month", "recommendation_saving"
QUOTA_SAVING, COVERED = "quota_saving_per_month", "waste_covered"
REALIZED = "realized_savings"
_HELD = ("allocated", "busy", "underused", "idle", "not_running")
_OF_POOL = ("capacity", "unallocated", "stranded", *_HELD)
_GROUPS = (Grouping.GPU_MODEL, Grouping.CAPACITY_TYPE)
_SUBJECT = ("kind", "cluster", "namespace", "workload")
# A window needs a length; prices are asked for at one moment.
_INSTANT = timedelta(seconds=1)
# Rows of one page: all that the sum is made of are to be listed below it.
_MOST = 10_000


def explain_saving(
    *,
    filters: RecommendationFilters,
    visibility: Visibility,
    now: datetime,
    currency: str,
    of_quota: bool = False,
) -> Explained:
    """Explain the saving of all open recommendations that the reader sees, in one currency.

    Of alternatives the best alone is in it, and nothing that somebody keeps. Quota saves no cash:
    `of_quota` explains its sum instead. Five queries.
    """
    sums = recommendation_sums(
        filters=filters, visibility=visibility, now=None if of_quota else now, of_quota=of_quota
    )
    value = next((one.saving_per_month for one in sums if one.currency == currency), None)
    page = recommendation_page(filters=filters, visibility=visibility, cursor=None, page_size=_MOST)
    kept = {} if of_quota else retained_of(page.rows, now=now)
    rows = [
        {
            **_subject(row),
            "confidence": row.confidence,
            "reason": row.reason,
            "saving": row.saving_per_month,
        }
        for row in page.rows
        # The conditions of the sum: rows must add up to it.
        if row.currency == currency
        and (row.kind in OF_QUOTA) is of_quota
        and not row.alternative
        and row.pk not in kept
    ]
    texts = (*_SUBJECT, "confidence", "reason")
    return Explained(
        figure=QUOTA_SAVING if of_quota else SAVING,
        label="Saving per month",
        meaning="Worth of quota in a month of 730 hours; no cash."
        if of_quota
        else "What these recommendations save in a month of 730 hours.",
        anchor="recommendations",
        value=value,
        unit=FigureUnit.MONEY,
        currency=currency,
        formula="sum(saving)",
        columns=(
            *(RowColumn(key, key.capitalize()) for key in texts),
            RowColumn("saving", "Saving", FigureUnit.MONEY),
        ),
        rows=rows,
        origin="Measured use of up to thirty days × the price now.",
        sources=("holding", "activity"),
        nothing="" if value is not None else "No open recommendation has a price.",
    )


def _subject(row: RecommendationRow) -> dict[str, Any]:
    """Return the columns that say what a recommendation is about."""
    workload = row.workload or row.node
    return dict(zip(_SUBJECT, (row.kind, row.cluster, row.namespace, workload), strict=True))


def explain_realized(
    *, filters: RecommendationFilters, visibility: Visibility, now: datetime, currency: str
) -> Explained:
    """Explain what accepted recommendations saved a month, in one currency. Four queries."""
    found = savings(filters=filters, visibility=visibility, now=now)
    came = (one.saving_per_month for one in found.realized if one.currency == currency)
    # Judged, and nothing came: that is a known 0. Nothing judged: no data.
    value = next(came, Decimal(0) if found.judged else None)
    page = recommendation_page(
        filters=replace(filters, state=DECIDED_TO_SAVE),
        visibility=visibility,
        cursor=None,
        page_size=_MOST,
    )
    rows = [
        {
            **_subject(row),
            "cost_before": row.cost_before,
            "cost_after": row.cost_after,
            "saved": row.saved_per_month,
        }
        for row in page.rows
        if row.currency == currency and row.verdict in REALIZED_VERDICTS and not row.alternative
    ]
    return Explained(
        figure=REALIZED,
        label="Realized savings",
        meaning="What accepted changes cost less a month than before.",
        anchor="realized-savings",
        value=value,
        unit=FigureUnit.MONEY,
        currency=currency,
        formula="sum(saved)",
        columns=(
            *(RowColumn(key, key.capitalize()) for key in _SUBJECT),
            RowColumn("cost_before", "Cost before", FigureUnit.MONEY),
            RowColumn("cost_after", "Cost since", FigureUnit.MONEY),
            RowColumn("saved", "Saved a month", FigureUnit.MONEY),
        ),
        rows=rows,
        origin="GPU-hours before and since the acceptance × the price at acceptance.",
        sources=("holding",),
        nothing="" if found.judged else "No accepted recommendation has seven days since.",
    )


def explain_recommendation(pk: int, *, visibility: Visibility) -> Explained | None:
    """Explain the saving of one recommendation; None where it is not there or not for the reader.

    The rows are what its subject held on the days of the evidence. Ten queries at most.
    """
    row = recommendation(pk, visibility=visibility)
    if row is None:
        return None
    hours, each = row.evidence.get(SAVED_GPU_HOURS), row.evidence.get(SAVED_EACH)
    known = row.saving_per_month is not None and hours is not None and each is not None
    held = _held(row, visibility)
    pools = {(one.groups["gpu_model"], one.groups["capacity_type"]) for one in held}
    groups, amounts = _shape(row)
    grades: Counter[str] = Counter()
    for one in held:
        grades.update(one.amounts.grades)
    return Explained(
        figure=RECOMMENDED,
        label="Saving per month",
        meaning=row.change,
        anchor="recommendations",
        value=row.saving_per_month if known else None,
        unit=FigureUnit.MONEY,
        currency=row.currency or "",
        formula="cents(gpu_hours * price)",
        inputs=(
            FigureInput("gpu_hours", "GPU-hours saved a month", _exact(hours)),
            FigureInput("price", "price saved a GPU-hour", _exact(each), FigureUnit.MONEY),
        ),
        columns=(
            RowColumn("day", "Day"),
            *(RowColumn(name.value, name.value.replace("_", " ").capitalize()) for name in groups),
            *(
                RowColumn(name, name.replace("_", " ").capitalize(), FigureUnit.GPU_HOURS)
                for name in amounts
            ),
        ),
        rows=[_held_row(one, amounts) for one in held],
        grades=dict(grades),
        prices=price_rows(Window(row.last_seen, row.last_seen + _INSTANT), pools),
        origin="Measured use of up to thirty days × the price now.",
        sources=("holding", "activity"),
        nothing="" if known else "It has no price, or it was found before this was recorded.",
    )


def _exact(value: Any) -> Decimal | None:
    return None if value is None else Decimal(str(value))


def _shape(row: RecommendationRow) -> tuple[tuple[Grouping, ...], tuple[str, ...]]:
    """Return the groups and the amounts of the rows below: of a pool its capacity, too."""
    if row.workload:
        return (Grouping.WORKLOAD, *_GROUPS), _HELD
    return _GROUPS, _OF_POOL


def _held_row(row: UsageRow, amounts: Sequence[str]) -> dict[str, Any]:
    day = "" if row.period is None else str(row.period.date())
    known = {name: getattr(row.amounts, name) for name in amounts}
    hours = {name: None if nano is None else nano / NANO for name, nano in known.items()}
    return {"day": day, **row.groups, **hours}


def _held(row: RecommendationRow, visibility: Visibility) -> Sequence[UsageRow]:
    """Return what the subject held by day, pool and workload, on the days of the evidence."""
    window = evidence_window(row.cluster)
    if window is None:
        return ()
    kind, _, name = row.workload.partition("/")
    filters = Filters(cluster=(row.cluster,), tier=(row.tier,) if row.tier else ())
    # The policy for a team has `Team/<name>` in the place of a workload.
    if kind == TEAM and row.kind == RecommendationKind.IDLE_TIMEOUT:
        filters = replace(filters, team=(name,))
    else:
        filters = replace(filters, namespace=(row.namespace,) if row.namespace else ())
    of_workload = (
        name
        and not name.endswith(ANY)
        and row.kind not in (*OF_QUOTA, RecommendationKind.IDLE_TIMEOUT)
    )
    if of_workload:
        filters = replace(filters, workload=(row.workload,))
    groups, _ = _shape(row)
    found = usage_rows(UsageQuery(window, TimeStep.DAY, groups, filters), visibility=visibility)
    # Filters know no patterns: the namespace is read, and the family picked by its stem.
    if name.endswith(ANY):
        return [one for one in found if _family(one.groups["workload"]) == row.workload]
    return found


def _family(workload: str) -> str:
    """Return the family of a workload, both as `Kind/name`."""
    kind, _, name = workload.partition("/")
    return f"{kind}/{family_of(kind, name)}"


def explain_waste_covered(*, filters: RecommendationFilters, visibility: Visibility) -> Explained:
    """Explain which part of the waste open recommendations would avoid. Four queries."""
    found = waste_covered(filters=filters, visibility=visibility)
    return Explained(
        figure=COVERED,
        label="Waste covered",
        meaning="Waste that open recommendations would avoid ÷ all waste; each GPU-hour once.",
        anchor="waste-covered",
        value=found.ratio,
        unit=FigureUnit.RATIO,
        currency=found.currency,
        formula="(waste - sum(not_covered)) / waste",
        inputs=(FigureInput("waste", "waste", money(found.waste), FigureUnit.MONEY),),
        columns=(
            RowColumn("reason", "Reason"),
            RowColumn("not_covered", "Not covered", FigureUnit.MONEY),
        ),
        rows=[{"reason": reason, "not_covered": money(cost)} for reason, cost in found.rest],
        origin=f"Waste from {found.first} to {found.last}.",
        sources=("holding", "activity"),
        nothing="" if found.ratio is not None else "No priced waste was looked at yet.",
    )

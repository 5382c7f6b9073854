"""The tier catalog: what can be asked for, what it promises, and a guide to the one that suits."""

from collections.abc import Sequence
from datetime import timedelta

from django.http import HttpResponseBase

from apps.clusters import selectors as clusters
from apps.clusters.domain.window import Window
from apps.costs.selectors import price_list
from apps.quotas.selectors import entitled_teams
from apps.usage import selectors as usage
from apps.usage.domain.rows import Grouping, UsageQuery, UsageRow
from apps.usage.selectors import WAIT_DAYS, Freshness, recent_waits, tier_wait_times
from apps.web.components.formats import Format, shown
from apps.web.components.links import Query, during
from apps.web.pages import page, respond
from apps.web.query_session import PageRequest, QuerySession, freshness_of, query_session
from apps.web.summaries import glance
from apps.web.summaries.cards import TierWaiting, tier_waiting
from apps.web.tier_catalog import entries as catalog
from apps.web.tier_catalog import guide
from apps.web.tier_catalog.entries import TierEntry

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


@page
def tier_catalog(request: PageRequest) -> HttpResponseBase:
    reading = query_session(request)
    freshness = freshness_of(reading)
    entries = _entries(reading, freshness)
    answers = guide.answered({key: request.GET.get(key, "") for key in request.GET})
    advice = guide.advise(answers)
    fitting = guide.fitting(advice, [(e.name, e.sharing) for e in entries]) if advice else []
    return respond(
        request,
        reading,
        "catalog",
        entries=entries,
        questions=[(q, answers.get(q.key)) for q in guide.QUESTIONS],
        advice=advice,
        asked=bool(answers),
        fitting=[entry for entry in entries if entry.name in fitting],
        best_kind=_is_best_kind(advice, fitting, entries),
        last_hour=_last_hour(reading, freshness),
        wait_days=WAIT_DAYS,
    )


def _entries(reading: QuerySession, freshness: Freshness) -> list[TierEntry]:
    newest = _newest(reading, freshness, _HOUR, [Grouping.TIER])
    # A cluster that lags has no newest hour, and its cards a price all the same.
    priced = _newest(reading, freshness, _DAY, catalog.PRICED)
    since = recent_waits(reading.now)
    known = price_list(reading.now, visibility=reading.visibility)
    waiting = {row.tier: row for row in glance.waiting(reading)}
    pending = glance.known_until(reading)

    def now(tier: str) -> TierWaiting:
        return tier_waiting(tier, waiting.get(tier), pending, reading.query, now=reading.now)

    facts = catalog.TierFacts(
        entitled=entitled_teams(reading.now, visibility=reading.visibility),
        amounts={row.groups[Grouping.TIER]: row.amounts for row in newest},
        prices=catalog.prices(priced, known, reading.query),
        waits=usage.cached(
            "waits",
            (since, reading.filters),
            lambda: tier_wait_times(since, filters=reading.filters, visibility=reading.visibility),
        ),
        waiting=now,
    )
    tiers = clusters.tier_rows(visibility=reading.visibility)
    return catalog.entries(
        tiers, facts, query=reading.query, hour_query=_hour_query(reading, freshness)
    )


def _hour_query(reading: QuerySession, freshness: Freshness) -> Query:
    """Return the query of what `_newest` reads of the newest hour."""
    end, clusters_of = freshness.last_hour_end, reading.filters.cluster
    chosen = [("cluster", name) for name in clusters_of]
    return chosen if end is None else during(end - _HOUR, end, chosen)


def _newest(
    reading: QuerySession, freshness: Freshness, length: timedelta, by: Sequence[Grouping]
) -> list[UsageRow]:
    """Return the ledger of the newest collected hour and those before; none before the first."""
    end = freshness.last_hour_end
    if end is None:
        return []
    return usage.usage_rows(
        UsageQuery(Window(end - length, end), group_by=by, filters=reading.filters),
        visibility=reading.visibility,
    )


def _last_hour(reading: QuerySession, freshness: Freshness) -> str:
    end = freshness.last_hour_end
    return shown(end, Format.HOUR, reading.choice.zone) if end else ""


def _is_best_kind(
    advice: guide.Advice | None, fitting: list[str], entries: list[TierEntry]
) -> bool:
    """Say whether the catalog has a tier of the kind that suits best."""
    best = advice.kinds[0] if advice else None
    return any(entry.sharing is best for entry in entries if entry.name in fitting)

"""Tiers and pending work at a glance."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from zlib import crc32

from msgspec import Struct, field

from apps.clusters.domain.resources import quantity
from apps.clusters.selectors import TierRow
from apps.pending.selectors import PendingKnown, pending_known
from apps.usage import selectors as usage
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.usage_query import Grouping, UsageRow
from apps.usage.selectors import PendingGpus, pending_of_teams
from apps.web.components import tables
from apps.web.components.formats import NOTHING, duration, gpus_text
from apps.web.components.page_query import Query, explain_href, href
from apps.web.components.tables import (
    ALLOCATED_CLASSES,
    StripPart,
    strip,
)
from apps.web.query_session import QuerySession, of_page
from apps.web.usage.comparison import Comparison, Differences, WindowSums, gpu_hours_text


class TierPending(Struct, frozen=True):
    """What pends for a tier: `age` of the oldest in words; the link leads to the pods.

    `as_of` is set where that is not known up to now, but until then; `is_known`: it ever was.
    """

    id: str
    tier: str
    pods: int
    gpu_equivalents: float
    age: str
    href: str | None
    is_known: bool
    as_of: datetime | None

    @property
    def size(self) -> str:
        """The GPUs asked for; a dash where no claim of the pods is known, which ask for some."""
        return quantity(self.gpu_equivalents) if self.gpu_equivalents else NOTHING

    @property
    def size_or_zero(self) -> str:
        """The same, and 0 without pending pods."""
        return self.size if self.pods else "0"


class TierCard(Struct, frozen=True):
    """One tier in a window, or what somebody held on it; `amounts` is None without any facts.

    `sums` are those of the hours known to be collected, and None without any; `changes` are None
    where nothing is compared, `now` where nothing is told of what pends. `scope` and `query` are
    what its figures are explained with.
    """

    name: str
    href: str | None
    rows: Sequence[UsageRow]
    amounts: Amounts | None
    strip: Sequence[StripPart] = ()
    now: TierPending | None = None
    query: Query = ()
    scope: Mapping[str, str] = field(default_factory=dict)
    sums: WindowSums | None = None
    changes: Differences | None = None

    @property
    def allocation_href(self) -> str:
        return explain_href("allocation_ratio", self.query, **self.scope)

    @property
    def allocated_href(self) -> str:
        return explain_href("allocated_gpu_hours", self.query, **self.scope)

    @property
    def utilization_href(self) -> str:
        return explain_href("utilization_ratio", self.query, **self.scope)

    @property
    def not_used_href(self) -> str:
        return explain_href("not_busy_gpu_hours", self.query, **self.scope)

    @property
    def allocated_gpu_hours(self) -> str:
        return gpu_hours_text(self.amounts.allocated) if self.amounts else ""

    @property
    def not_used_gpu_hours(self) -> str:
        return gpu_hours_text(self.amounts.not_used) if self.amounts else ""

    @property
    def allocated_gpus(self) -> str:
        return gpus_text(self.sums.gpus.allocated) if self.sums else ""

    @property
    def busy_gpus(self) -> str:
        return gpus_text(self.sums.gpus.busy) if self.sums else ""

    @property
    def not_used_gpus(self) -> str:
        return gpus_text(self.sums.gpus.not_used) if self.sums else ""


class TierContext(Struct, frozen=True):
    """Data of the tiers of a page: ledger rows, comparison and pending work.

    `pending` says until when pending work is known; it is shown with it alone. `scope` says what
    all of it is of, as `{"team": "vision"}`.
    """

    rows: Sequence[UsageRow]
    waiting: Sequence[PendingGpus]
    comparison: Comparison
    pending: PendingKnown | None = None
    scope: Mapping[str, str] = field(default_factory=dict)


def rows_by(rows: Sequence[UsageRow], grouping: Grouping) -> dict[str, list[UsageRow]]:
    """Return the rows of each group name, in their order."""
    found: dict[str, list[UsageRow]] = {}
    for row in rows:
        found.setdefault(row.groups[grouping], []).append(row)
    return found


def tier_cards(
    tiers: Sequence[TierRow], known: TierContext, query: Query, *, now: datetime
) -> list[TierCard]:
    """Return a summary per tier in catalog order.

    A tier of the catalog has one even without data; built-in tiers and those no longer in the
    catalog only with allocated or pending GPUs.
    """
    by_tier = rows_by(known.rows, Grouping.TIER)
    waits = {row.tier: row for row in known.waiting}
    named = [tier.name for tier in tiers if not tier.builtin]
    # A tier may be known from rows alone: one that left the catalog has facts all the same.
    others = [tier.name for tier in tiers if tier.builtin] + [*by_tier, *waits]
    names = dict.fromkeys([*named, *(n for n in others if n in by_tier or n in waits)])
    return [_card(name, known, query, now) for name in names]


class TeamTiers(Struct, frozen=True):
    """What a team or a workload held in a window: a summary for each tier.

    `total` is set where there are several tiers; of it only amounts count, no ratio: tiers are
    never blended into one.
    """

    cards: Sequence[TierCard]
    total: TierCard | None


def holding(known: TierContext, query: Query) -> TeamTiers:
    """Return what the scope of `known` held, tier by tier."""
    by_tier = rows_by(known.rows, Grouping.TIER)
    cards = [_held_card(name, rows, known, query) for name, rows in by_tier.items()]
    # With a single tier the total would repeat its panel.
    total = _held_card("", known.rows, known, query) if len(cards) > 1 else None
    return TeamTiers(cards, total)


def _held_card(name: str, rows: Sequence[UsageRow], known: TierContext, query: Query) -> TierCard:
    amounts = tables.summed(rows)
    return TierCard(
        name=name,
        href=href("tier", query, name=name) if name else None,
        rows=rows,
        amounts=amounts,
        strip=strip(amounts, ALLOCATED_CLASSES),
        query=query,
        scope={**known.scope, "tier": name},
        sums=known.comparison.sums(name),
        changes=known.comparison.changes(name),
    )


def tier_pending(
    name: str, waiting: PendingGpus | None, pending: PendingKnown, query: Query, *, now: datetime
) -> TierPending:
    """Return what pends for a tier, also when nothing does, and until when that is known."""
    page = href("tier", (*query, ("tab", "pending")), name=name)
    known = pending.of_tier(name)
    return TierPending(
        # Names of tiers may hold anything; an id must not.
        id=f"waiting-{crc32(name.encode()):08x}",
        tier=name,
        pods=waiting.pods if waiting else 0,
        gpu_equivalents=waiting.gpu_equivalents if waiting else 0.0,
        # Ages end when the knowledge ends: what pended then may have been bound since.
        age=_age(waiting, known or now) if waiting else "",
        href=page,
        is_known=known is not None,
        as_of=None if known == now else known,
    )


def _age(waiting: PendingGpus, until: datetime) -> str:
    # Clocks of clusters may be ahead of the portal's.
    return duration(max(0.0, (until - waiting.oldest_at).total_seconds()))


def _card(name: str, known: TierContext, query: Query, now: datetime) -> TierCard:
    rows = [row for row in known.rows if row.groups[Grouping.TIER] == name]
    amounts = tables.summed(rows) if rows else None
    waiting = next((row for row in known.waiting if row.tier == name), None)
    return TierCard(
        name=name,
        href=href("tier", query, name=name),
        rows=rows,
        amounts=amounts,
        now=tier_pending(name, waiting, known.pending, query, now=now) if known.pending else None,
        query=query,
        scope={**known.scope, "tier": name},
        sums=known.comparison.sums(name),
        changes=known.comparison.changes(name),
    )


def pending_by_tier(reading: QuerySession, *, tier: str = "") -> list[PendingGpus]:
    """Return the pending work by tier, of the page's clusters, tiers, teams and namespaces.

    It does not mind GPU models and capacity types.
    """
    own = of_page(reading, tier=tier)
    # The sums by tier below are of all teams: those of some are read on their own.
    if own.team or own.namespace:
        return pending_of_teams(reading.now, filters=own, visibility=reading.visibility)
    rows = usage.pending_by_tier(reading.now, visibility=reading.visibility, filters=own)
    return [row for row in rows if not own.tier or row.tier in own.tier]


def known_until(reading: QuerySession) -> PendingKnown:
    """Return until when it is known what pends on the page's clusters."""
    return pending_known(reading.now, clusters=reading.filters.cluster)


def known_earlier(pending: PendingKnown, now: datetime) -> list[tuple[str, datetime | None]]:
    """Return the clusters of which it is not known what pends now, with until when it was."""
    return [(name, until) for name, until in pending.until.items() if until != now]

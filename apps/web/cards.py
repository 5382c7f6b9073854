"""A tier at a glance: its ledger as a bar, its ratios, and who waits for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apps.clusters.selectors import TierRow
from apps.usage.domain.amounts import Amounts
from apps.usage.domain.rows import Grouping, UsageRow
from apps.usage.selectors import Waiting
from apps.web import tables
from apps.web.ledger import CAPACITY_CLASSES, StripPart, strip
from apps.web.links import Query, href


@dataclass(frozen=True, slots=True)
class TierCard:
    """One tier in a window; `amounts` is None when no hour of it has facts."""

    name: str
    promise: str
    href: str | None
    rows: Sequence[UsageRow]
    amounts: Amounts | None
    strip: Sequence[StripPart]
    waiting: Waiting | None


def rows_by(rows: Sequence[UsageRow], grouping: Grouping) -> dict[str, list[UsageRow]]:
    """Return the rows of each group name, in their order."""
    found: dict[str, list[UsageRow]] = {}
    for row in rows:
        found.setdefault(row.groups[grouping], []).append(row)
    return found


def tier_cards(
    tiers: Sequence[TierRow], rows: Sequence[UsageRow], waiting: Sequence[Waiting], query: Query
) -> list[TierCard]:
    """Return a card per tier in catalog order.

    A tier of the catalog has one even when nothing is known of it; built-in tiers and those no
    longer in the catalog only when they hold something or somebody waits for them.
    """
    known = {tier.name: tier for tier in tiers}
    by_tier = rows_by(rows, Grouping.TIER)
    waits = {row.tier: row for row in waiting}
    named = [tier.name for tier in tiers if not tier.builtin]
    others = [tier.name for tier in tiers if tier.builtin] + [*by_tier, *waits]
    names = dict.fromkeys([*named, *(n for n in others if n in by_tier or n in waits)])
    return [
        _card(name, known.get(name), by_tier.get(name, []), waits.get(name), query)
        for name in names
    ]


def tier_card(
    tier: TierRow, rows: Sequence[UsageRow], waiting: Mapping[str, Waiting], query: Query
) -> TierCard:
    """Return the card of one tier; `rows` are its own."""
    return _card(tier.name, tier, rows, waiting.get(tier.name), query)


def _card(
    name: str,
    tier: TierRow | None,
    rows: Sequence[UsageRow],
    waiting: Waiting | None,
    query: Query,
) -> TierCard:
    amounts = tables.summed(rows) if rows else None
    return TierCard(
        name=name,
        promise=tier.promise if tier else "",
        href=href("tier", query, name=name),
        rows=rows,
        amounts=amounts,
        strip=strip(amounts, CAPACITY_CLASSES) if amounts else (),
        waiting=waiting,
    )

"""Quota keys: the query of the page, a row for each key, sums of teams, and unused quota."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from urllib.parse import quote, unquote

from django.http import QueryDict
from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.quotas.domain.keys import QuotaRef, QuotaSource
from apps.quotas.selectors import QuotaBand, QuotaFilters, QuotaRow, QuotaSum, UnusedRow
from apps.web.components import page_query
from apps.web.components.formats import Format, Value, duration
from apps.web.components.page_query import Query, explain_href, figure_hrefs, href
from apps.web.components.tables import (
    Column,
    LaterRows,
    Table,
    TableRow,
    declared_columns,
    declared_values,
)
from apps.web.query_session import QuerySession

TAKES = ("tier", "team", "namespace")
SOURCES = tuple(source.value for source in QuotaSource)


class QuotaPageQuery(Struct, frozen=True):
    """`query` reproduces what is asked here, for links; `problem` says what makes no sense."""

    sources: tuple[str, ...]
    band: QuotaBand
    query: Query
    problem: str

    def filters(self, reading: QuerySession) -> QuotaFilters:
        return reading.filters.of_kind(QuotaFilters, source=self.sources)


def query_of(params: QueryDict) -> QuotaPageQuery:
    """Return what an address asks; what is not understood narrows nothing and is told.

    A name is looked for among all limits.
    """
    sources, no_source = page_query.names_from(params, "source", SOURCES)
    bands, no_band = page_query.names_from(params, "show", tuple(QuotaBand))
    usual = QuotaBand.ALL if params.get("q", "").strip() else QuotaBand.TIGHT
    return QuotaPageQuery(
        sources=sources,
        band=QuotaBand(bands[0]) if bands else usual,
        query=(
            *(("source", name) for name in sources),
            *(("show", name) for name in bands[:1]),
        ),
        problem=" ".join(text for text in (no_source, no_band) if text),
    )


NO_NAMESPACE = "-"
"""Stands for the namespace of a queue, which has none, in an address."""
_UNUSED_HOURS = Column("unused_hours", "Unused quota-hours", Format.NUMBER)


class Saturation(Struct, frozen=True):
    """A quota as a bar, in percent of what is drawn: hard, or all that is asked for if more.

    `limit` is where hard ends in it.
    """

    held: float
    pending: float
    suppressed: float
    limit: float


class KeyLine(TableRow, frozen=True):
    """A line of the list: the values of a file, and what the page says of the key."""

    row: QuotaRow | None = None
    href: str | None = None
    team_href: str | None = None
    tier_links: Sequence[tuple[str, str | None]] = ()
    bar: Saturation | None = None
    full: str = ""
    unused: float | None = None
    whose: str = ""
    ask: str = ""


def key_href(ref: QuotaRef, query: Query = ()) -> str | None:
    """Return the address of the page of a key; None where there cannot be one."""
    return href("quota", query, **ref._replace(namespace=ref.namespace or NO_NAMESPACE)._asdict())


def ref_text(ref: QuotaRef) -> str:
    """Return `cluster/source/namespace/name/key`, escaped; only the key keeps its slashes."""
    parts = (ref.cluster, ref.source, ref.namespace or NO_NAMESPACE, ref.name)
    return "/".join([*(quote(part, safe="") for part in parts), quote(ref.key, safe="/")])


def ref_in(text: str) -> QuotaRef | None:
    """Return the key that `ref_text` wrote; None for any other text."""
    # Split before it is unescaped: a name may hold an escaped slash.
    parts = [unquote(part) for part in text[:2000].split("/", 4)]
    if len(parts) < 5 or not all(parts) or any("\0" in part for part in parts):
        return None
    cluster, source, namespace, name, key = parts
    return QuotaRef(source, "" if namespace == NO_NAMESPACE else namespace, name, key, cluster)


_EXPLAINS = {
    "saturation_ratio": "quota_usage",
    "full": "quota_hours_left",
    "used": "quota_used",
    "held": "quota_allocated",
    "pending": "quota_pending",
    "suppressed": "quota_blocked",
    "headroom": "quota_headroom",
    "borrowed": "quota_borrowed",
    "ceiling": "quota_ceiling",
    "unused": "unused_quota_hours",
}


def _explains(
    figures: Mapping[str, str], row: QuotaRow | UnusedRow, query: Query, **names: str
) -> dict[str, str]:
    """Return where figures of a key are explained, by column."""
    own = {name: getattr(row, name) for name in ("cluster", "source", "namespace", "name", "key")}
    return figure_hrefs(figures, query, **own, **names)


def saturation(row: QuotaRow) -> Saturation | None:
    """Return the bar of a key; None of one that limits nothing, or of which nothing is known."""
    if not row.effective or row.used is None:
        return None
    held, pending, suppressed = row.held or 0.0, row.pending or 0.0, row.suppressed or 0.0
    whole = max(row.hard, held + pending + suppressed)
    # A limit of 0 without usage or demand: the bar is its frame alone.
    if whole <= 0:
        return Saturation(0.0, 0.0, 0.0, 100.0)

    def percent(amount: float) -> float:
        return round(100 * amount / whole, 2)

    return Saturation(percent(held), percent(pending), percent(suppressed), percent(row.hard))


def unused_by_key(rows: Iterable[UnusedRow]) -> dict[QuotaRef, float]:
    """Return what was held but unused by key; a namespace that moved has several rows."""
    found: dict[QuotaRef, float] = {}
    for row in rows:
        found[row.ref] = found.get(row.ref, 0.0) + row.unused
    return found


def key_line(row: QuotaRow, reading: QuerySession, unused: Mapping[QuotaRef, float]) -> KeyLine:
    """Return the line of a key."""
    left = unused.get(row.ref)
    return KeyLine(
        _values(row, left),
        row=row,
        href=key_href(row.ref, reading.query),
        team_href=href("team", reading.query, name=row.team) if row.team else None,
        tier_links=[(tier, href("tier", reading.query, name=tier)) for tier in row.tiers],
        bar=saturation(row),
        full=_full(row, reading.now),
        unused=left,
        whose=_whose(row),
        explains=_explains(_EXPLAINS, row, reading.query),
    )


def _whose(row: QuotaRow) -> str:
    if row.team:
        return row.team
    return "several teams" if row.team_count else "used by no team"


def _full(row: QuotaRow, now: datetime) -> str:
    """Return when a key is full; of a cluster that is not watched, when it was or would be."""
    if row.exhausted_at is None:
        return ""
    left = (row.exhausted_at - now).total_seconds()
    if left > 0:
        return f"full in {duration(left)}"
    if not row.stale:
        return "full now"
    known = row.as_of is not None and row.exhausted_at <= row.as_of
    return "was full" if known else "may be full"


def _values(row: QuotaRow, unused: float | None) -> dict[str, Value]:
    return declared_values(row) | {"unused_hours": unused}


_ON_PAGE = ("key", "tiers", "team", "used", "suppressed", "saturation_ratio", "exhausted_at")


def key_table(
    lines: Sequence[KeyLine],
    reading: QuerySession,
    *,
    title: str,
    empty: str,
    every: Callable[[], Iterable[KeyLine]],
) -> Table:
    """Return the list; `every` gives the lines of a file, each with what was unused."""
    return Table(
        id="keys",
        title=f"Limits: {title}",
        columns=[
            replace(column, in_files=column.key not in _ON_PAGE)
            for column in declared_columns(QuotaRow, _UNUSED_HOURS)
        ],
        rows=lines,
        zone=reading.choice.zone,
        empty=empty,
        every=every,
    )


# ---------------------------------------------------------------- teams


def sum_table(rows: Sequence[QuotaSum], reading: QuerySession) -> Table:
    """Return what quotas allow each team, of the reading's teams and tiers."""
    teams, tiers = reading.filters.team, set(reading.filters.tier)
    own = [
        row
        for row in rows
        if (not teams or row.team in teams) and (not tiers or tiers & set(row.tiers))
    ]
    return Table(
        id="sums",
        title="Teams",
        columns=declared_columns(QuotaSum),
        on_phone=("team", "resource", "saturation_ratio", "used", "hard"),
        rows=LaterRows(own, lambda row: _sum(row, reading)),
        zone=reading.choice.zone,
        empty="No ResourceQuota limits GPUs of these teams.",
        note=_of_sums(own),
    )


def _of_sums(rows: Sequence[QuotaSum]) -> str:
    if not rows:
        return ""
    told = "ResourceQuotas without scopes, of all clusters. Everyone sees these sums."
    if any(None in (row.used, row.held, row.suppressed) for row in rows):
        told += " A dash: part of the sum is not known."
    if not any(row.stale for row in rows):
        return told
    return (
        f"{told} Clusters that are not watched show their last known values, see the last column."
    )


def _sum(row: QuotaSum, reading: QuerySession) -> TableRow:
    return TableRow(
        declared_values(row) | {"tiers": ", ".join(row.tiers)},
        {"team": href("team", reading.query, name=row.team)},
        explains=figure_hrefs(
            _SUM_EXPLAINS, reading.query, team=row.team, resource=row.resource, unit=row.unit
        ),
    )


_SUM_EXPLAINS = {
    "saturation_ratio": "team_quota_usage",
    "hard": "team_quota_limit",
    "used": "team_quota_used",
    "held": "team_quota_allocated",
    "suppressed": "team_quota_blocked",
}

# ---------------------------------------------------------------- held but unused

_TEAMLESS = "Totals exclude hours in which the quota's team is not known, such as before the watch."


def unused_table(rows: Sequence[UnusedRow], reading: QuerySession) -> Table:
    """Return the unused quota of the window, the most first."""
    return Table(
        id="unused",
        title="Unused quota",
        columns=declared_columns(UnusedRow),
        rows=LaterRows(rows, lambda row: _unused(row, reading)),
        zone=reading.choice.zone,
        empty="No quota of your teams was known in this window, or all of it was used.",
        note="" if reading.visibility.everything else _TEAMLESS,
    )


def _unused(row: UnusedRow, reading: QuerySession) -> TableRow:
    return TableRow(
        declared_values(row) | {"tiers": ", ".join(row.tiers)},
        {
            "name": key_href(row.ref, reading.query),
            "team": href("team", reading.query, name=row.team) if row.team else None,
        },
        explains=_unused_explains(row, reading.query),
    )


_UNUSED_EXPLAINS = {
    "unused_ratio": "unused_quota_ratio",
    "unused_hours": "unused_quota_hours",
    "hard_hours": "quota_limit_hours",
    "used_hours": "quota_used_hours",
}


def _unused_explains(row: UnusedRow, query: Query) -> dict[str, str]:
    found = _explains(_UNUSED_EXPLAINS, row, query, team=row.team or "")
    # Idle time is known by tier: of a key of several nothing says which part is its own.
    if len(row.tiers) == 1 and row.team:
        scope = {"cluster": row.cluster, "namespace": row.namespace, "team": row.team}
        found["idle_gpu_hours"] = explain_href("idle_gpu_hours", query, tier=row.tiers[0], **scope)
    return found

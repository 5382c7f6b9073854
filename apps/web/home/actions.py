"""What a reader should do next: five actions at most, each with one button."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice, zip_longest

from apps.costs.selectors import UnusedCost
from apps.pending.selectors import PendingPage, PendingRow, pending_now
from apps.quota_requests.permissions import Actor
from apps.quota_requests.selectors import upcoming_bookings
from apps.quotas.selectors import BurnRow, QuotaFilters, QuotaRow, fullest_quota_rows
from apps.web.components import formats
from apps.web.components.formats import gpus_text, gpus_words
from apps.web.components.page_query import href
from apps.web.pending.pending_table import of_asker
from apps.web.query_session import QuerySession
from apps.web.quota_requests.request_input import Asker
from apps.web.quotas.keys import key_href
from apps.web.usage.team_figures import TeamScope
from apps.web.usage.unused_workloads import Action, unused_actions

MOST = 5
_OF_EACH = 3
_PENDING_ROWS = 100
_OVER_PACE = 1.05


def actions_of(
    scope: TeamScope,
    asker: Asker,
    actor: Actor,
    *,
    budgets: Sequence[BurnRow],
    workloads: Sequence[UnusedCost],
) -> list[Action]:
    """Return what to act on: of each sort the worst first, in turns, five at most."""
    sorts = (
        iter(unused_actions(workloads, scope)),
        _full_quotas(scope, asker),
        _budgets(budgets, scope),
        _misconfigured(scope),
    )
    # In turns, or one sort with many findings would hide all others.
    in_turns = zip_longest(*(islice(one, _OF_EACH) for one in sorts))
    found = (one for turn in in_turns for one in turn if one is not None)
    # Bookings ask for nothing: they have the place that is left.
    return [*islice(chain(found, bookings(scope.reading, actor, teams=tuple(scope.teams))), MOST)]


def _full_quotas(scope: TeamScope, asker: Asker) -> Iterator[Action]:
    own = scope.reading.filters
    filters = QuotaFilters(cluster=own.cluster, team=scope.teams, tier=own.tier, effective=True)
    rows = fullest_quota_rows(
        scope.reading.now, filters=filters, visibility=scope.reading.visibility, at_most=50
    )
    # A quota that is nearly full blocks no work yet: it needs no action.
    blocking = [row for row in rows if row.suppressed or (row.saturation_ratio or 0) >= 1]
    for row in sorted(blocking, key=lambda row: -(row.suppressed or 0)):
        link = asker.ask_href(row, scope.reading.query)
        button = "Request change" if link else "View"
        yield Action(
            row.namespace or row.name,
            _quota_text(row),
            button,
            link or key_href(row.ref, scope.reading.query) or "",
        )


def _quota_text(row: QuotaRow) -> str:
    unit = "" if row.unit == "GPUs" else f" {row.unit}"
    used = f"{gpus_text(row.used)}/{gpus_text(row.hard)}{unit} used"
    return f"{used}, {gpus_text(row.suppressed)} blocked" if row.suppressed else used


def _budgets(rows: Sequence[BurnRow], scope: TeamScope) -> Iterator[Action]:
    over = [row for row in rows if (row.burn_rate or 0) > _OVER_PACE]
    for row in sorted(over, key=lambda row: -(row.burn_rate or 0)):
        share = formats.percent(float(row.used) / float(row.allowance)) if row.allowance else "–"
        query = [("team", row.team), *scope.reading.query]
        yield Action(
            f"{row.team} budget",
            f"{share}, {row.burn_rate:.2f}× pace",
            "View",
            href("budgets", query) or "",
        )


def _misconfigured(scope: TeamScope) -> Iterator[Action]:
    page = PendingPage(size=_PENDING_ROWS)
    # The counts are read already: without such a cause the rows need not be.
    if not any(of_asker(one.cause) for one in scope.pending.causes):
        return
    rows = pending_now(
        scope.reading.now,
        filters=scope.reading.pending_filters,
        visibility=scope.reading.visibility,
        page=page,
    ).rows
    for row in rows:
        if of_asker(row.cause):
            yield Action(_name(row), f"{row.cause} issue", "How to fix", _detail(row, scope))


def bookings(
    reading: QuerySession, actor: Actor, *, teams: tuple[str, ...] = (), to_come: bool = False
) -> Iterator[Action]:
    """Yield the approved bookings that begin or end within a week, as the reader sees them.

    Without `teams` those of all teams; `to_come`: only those that begin.
    """
    for row in upcoming_bookings(reading.now, teams, actor=actor):
        chosen = reading.filters.tier
        tiers = ", ".join(one for one in row.tiers if not chosen or one in chosen)
        runs = row.start <= reading.now
        if not tiers or (runs and to_come):
            continue
        at = formats.clock_text(row.end if runs else row.start, reading.choice.zone)
        yield Action(
            row.team if not teams or len(teams) > 1 else tiers,
            f"{gpus_words(row.gpus)} booked {'until' if runs else 'from'} {at}",
            "View",
            href("request", reading.query, pk=str(row.id)) or "",
        )


def _name(row: PendingRow) -> str:
    return row.workload.partition("/")[2] or row.name


def _detail(row: PendingRow, scope: TeamScope) -> str:
    query = scope.reading.query
    return href("pending-detail", query, cluster=row.cluster, uid=row.uid) or ""

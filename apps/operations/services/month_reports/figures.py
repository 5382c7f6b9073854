"""The monthly report: the figures of the pages over a month and the month before."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.permissions import Visibility
from apps.accounts.selectors import team_names
from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window, day_start, month_before
from apps.clusters.selectors import report
from apps.costs import selectors as costs
from apps.costs.domain.costing import Cause, money
from apps.costs.domain.recommendations.recommendation import FollowUpOutcome
from apps.costs.selectors import CostQuery, MonthState, RecommendationFilters, RecommendationRow
from apps.fairness import selectors as fairness
from apps.fairness.selectors import ObjectiveRow, TierFairness
from apps.operations.domain.month_report import (
    DayGpus,
    FigureValue,
    MonthFigure,
    MonthPage,
    MonthReport,
    TeamLine,
    TierQueueTime,
)
from apps.usage import selectors as usage
from apps.usage.domain.amounts import NANO, Amounts, nano
from apps.usage.domain.explained import FigureUnit
from apps.usage.domain.usage_query import Filters, Grouping, TimeStep, UsageQuery, UsageRow
from apps.usage.selectors import Freshness, TierQueueTimes
from gpuportal.queries import read_once

ALL = ""
UNUSED = (Cause.UNDERUSED, Cause.IDLE, Cause.NOT_RUNNING)
_HOUR = timedelta(hours=1)
_FEW = 5_000
"""More accepted recommendations than these are not read for one report."""
_Costs = Mapping[str, Mapping[Cause, int]]


class UnknownTeamReport(LookupError):
    """There is no such team, or the reader does not see it in detail."""


class _MonthRead(Struct, frozen=True):
    """What was read of one month; teams by name, ALL for their sum with the capacity."""

    usage: Mapping[str, Amounts]
    carbon: Mapping[str, float | None]
    without_factor_kwh: float
    fairness: Mapping[str, TierFairness]
    tier_queue_times: Mapping[str, TierQueueTimes]
    held: _Costs
    charged: Mapping[str, int]
    priced: bool
    accepted: Sequence[RecommendationRow]
    objectives: Mapping[str, ObjectiveRow]
    currency: str
    other_currencies: frozenset[str]
    unpriced: int


def month_report(
    month: date, *, team: str = ALL, visibility: Visibility, now: datetime
) -> MonthReport:
    """Return the report of a month: of one team, or of all that the reader sees in detail.

    The page of all is for who sees everything. The figures are those of the pages over the same
    days. About thirty queries, however many teams and tiers there are. Raises UnknownTeamReport.
    """
    zone = report().zone
    window = costs.month_window(month, zone)
    teams = _teams(team, visibility)
    reader = _MonthReader(month, zone, visibility, now)
    read, earlier = reader.read(month), reader.read(month_before(month))
    # A team that is asked for has its page even where it held nothing.
    names = teams if team else [name for name in teams if _is_there(name, read, earlier)]
    days = _days(window, zone, now, visibility, reader.sums)
    fresh = usage.freshness(window, filters=Filters(), visibility=visibility, now=now)
    # Work without a team needs no page of its own: its line on the page of all is enough.
    pages = [_team_page(name, read, earlier, days) for name in names if team or name != UNASSIGNED]
    if visibility.everything and not team:
        pages.insert(0, _all_page(names, read, earlier, days))
    until = min(fresh.last_hour_end, window.end) if fresh.last_hour_end else None
    return MonthReport(
        month=month,
        before=month_before(month),
        time_zone=zone.key,
        state=_state(month, window, now).value,
        runs=window.end > now,
        until=until if until and until > window.start else None,
        notes=_notes(read, fresh, window, until),
        pages=pages,
    )


def _teams(team: str, visibility: Visibility) -> list[str]:
    seen = sorted(name for pk, name in team_names().items() if visibility.sees(pk))
    if not team:
        return seen
    if team not in seen:
        raise UnknownTeamReport(f"There is no team “{team[:80]}” that you see in detail.")
    return [team]


def _is_there(team: str, *read: _MonthRead) -> bool:
    return any(
        team in one.usage
        or team in one.held
        or any(own.team == team for tier in one.fairness.values() for own in tier.teams)
        for one in read
    )


def _state(month: date, window: Window, now: datetime) -> MonthState:
    if costs.closed_period(month) is not None:
        return MonthState.CLOSED
    return MonthState.CURRENT if window.end > now else MonthState.OPEN


def _notes(read: _MonthRead, fresh: Freshness, window: Window, until: datetime | None) -> list[str]:
    """Return what totals exclude."""
    lost = len({*fresh.missing, *fresh.failed})
    notes = [f"Totals exclude {lost} h."] if lost else []
    if fresh.first_hour is not None and window.start < fresh.first_hour < window.end:
        notes.append(f"Data starts {fresh.first_hour.astimezone(report().zone):%-d %b}.")
    if until is None or until <= window.start or not read.usage:
        notes.append("No data for this month.")
    if read.unpriced:
        notes.append(f"{read.unpriced / NANO:,.1f} GPU-hours have no price.")
    if read.without_factor_kwh:
        notes.append(
            f"{read.without_factor_kwh:,.1f} kWh are not in Carbon: no factor, or not priced yet."
        )
    if read.other_currencies:
        notes.append(f"Amounts in {', '.join(sorted(read.other_currencies))} are on the Cost page.")
    return notes


# ---------------------------------------------------------------- reading


class _MonthReader:
    """Reads a month and the one before; what both are summed of is read once."""

    def __init__(self, month: date, zone: ZoneInfo, visibility: Visibility, now: datetime) -> None:
        self._zone, self._visibility, self._now = zone, visibility, now
        months = month_before(month), month
        windows = [costs.month_window(one, zone) for one in months]
        self._whole = Window(windows[0].start, windows[1].end)
        self.sums = _day_sums(self._whole, zone, visibility)
        waits = usage.tier_queue_times_of(windows, filters=Filters(), visibility=visibility)
        self._waits = dict(zip(months, waits, strict=True))
        rows = fairness.fairness_history(windows, now=now, visibility=visibility)
        self._fairness = dict(zip(months, rows, strict=True))

    def read(self, month: date) -> _MonthRead:
        """Return what a report tells of one of the months."""
        window = costs.month_window(month, self._zone)
        visibility = self._visibility
        by_team = (Grouping.TEAM,)
        currency = report().currency
        ledger, carbon, without = self._ledger(month, window)
        held_rows = costs.cost_rows(
            CostQuery(window, group_by=by_team, waste=True), visibility=visibility
        )
        bill = costs.monthly_report(month, visibility=visibility)
        future = window.start >= self._now
        return _MonthRead(
            usage=ledger,
            carbon=carbon,
            # Without any factor there is no Carbon that they could be missing from.
            without_factor_kwh=without if carbon.get(ALL) is not None else 0.0,
            fairness={row.tier: row for row in self._fairness[month]},
            tier_queue_times=self._waits[month],
            held=_by_team(held_rows, currency),
            charged=dict(bill.teams.get(currency, ())),
            priced=bool(bill.totals),
            accepted=_accepted(window, visibility),
            # Of a month that has not begun nothing can be attained yet.
            objectives={} if future else _objectives(window, visibility, self._now),
            currency=currency,
            other_currencies=frozenset(set(bill.totals) - {currency}),
            unpriced=bill.unpriced,
        )

    def _ledger(
        self, month: date, window: Window
    ) -> tuple[dict[str, Amounts], dict[str, float | None], float]:
        """Return usage and kg of CO2e by team, and the kWh of all without a factor."""
        ledger: dict[str, Amounts] = {}
        for (team, day), amounts in self.sums.items():
            if day.replace(day=1) == month:
                ledger.setdefault(team, Amounts()).add(amounts)
        carbon: dict[str, float | None] = {}
        without = 0.0
        for groups in ((Grouping.TEAM,), ()):
            query = UsageQuery(window, group_by=groups)
            rows = [
                UsageRow(None, {Grouping.TEAM: team} if groups else {}, amounts)
                for team, amounts in ledger.items()
                # The sum of all is asked without groups, teams are asked by team.
                if (team == ALL) is not bool(groups)
            ]
            grams = costs.carbon_of(rows, query, visibility=self._visibility, zone=self._zone)
            for row, (of_row, without_factor) in zip(rows, grams, strict=True):
                team = row.groups.get(Grouping.TEAM, ALL)
                carbon[team] = None if of_row is None else of_row / 1000
                without = (without_factor or 0.0) if team == ALL else without
        return ledger, carbon, without


def _day_sums(
    window: Window, zone: ZoneInfo, visibility: Visibility
) -> Mapping[tuple[str, date], Amounts]:
    """Return the ledger by team and day, and that of all with the capacity."""
    sums: dict[tuple[str, date], Amounts] = {}
    for groups in ((), (Grouping.TEAM,)):
        asked = UsageQuery(window, TimeStep.DAY, groups)
        for row in usage.usage_rows(asked, visibility=visibility):
            if row.period is not None:
                name = row.groups[Grouping.TEAM] if groups else ALL
                sums[name, row.period.astimezone(zone).date()] = row.amounts
    return sums


def _objectives(
    window: Window, visibility: Visibility, now: datetime
) -> Mapping[str, ObjectiveRow]:
    """Return the queue-time objectives over a month, as they are at its end."""
    at = min(window.end, fairness.closed_hour(now))
    rows = fairness.queue_time_objectives(at, since=window.start, visibility=visibility)
    return {row.tier: row for row in rows}


def _by_team(rows: Iterable[costs.CostRow], currency: str) -> _Costs:
    found: dict[str, dict[Cause, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        # Amounts of other currencies are named in a note, never added.
        if row.currency == currency and row.cost is not None:
            found[row.groups[Grouping.TEAM]][row.cause] += row.cost
    return found


def _accepted(window: Window, visibility: Visibility) -> list[RecommendationRow]:
    """Return the recommendations accepted within the window."""
    return [
        row
        for row in _all_accepted(visibility)
        if row.decided_at is not None and window.start <= row.decided_at < window.end
    ]


@read_once
def _all_accepted(visibility: Visibility) -> Sequence[RecommendationRow]:
    filters = RecommendationFilters(state=costs.DECIDED_TO_SAVE)
    return costs.recommendation_page(
        filters=filters, visibility=visibility, cursor=None, page_size=_FEW
    ).rows


# ---------------------------------------------------------------- figures


def _all_page(
    teams: Sequence[str], read: _MonthRead, earlier: _MonthRead, days: "_DaySums"
) -> MonthPage:
    figures = _figures(ALL, read, earlier)
    capacity = _figure(
        "capacity", "Capacity", FigureUnit.GPU_HOURS, *(_capacity(r) for r in (read, earlier))
    )
    unallocated = _figure(
        "unallocated",
        "Unallocated cost",
        FigureUnit.MONEY,
        *(_platform_cost(r, Cause.UNALLOCATED) for r in (read, earlier)),
        currency=read.currency,
    )
    return MonthPage(
        team=ALL,
        figures=[
            capacity,
            *figures,
            unallocated,
            *_outage_figures(read, earlier),
            *_energy_figures(ALL, read, earlier),
        ],
        queue_times=_tier_queue_times(read, earlier),
        days=days.of(ALL),
        teams=[TeamLine(name, _figures(name, read, earlier)) for name in teams],
    )


def _outage_figures(read: _MonthRead, earlier: _MonthRead) -> Iterator[MonthFigure]:
    """Yield what planned outages cost, where one of the two months had any."""
    now, before = (_platform_cost(r, Cause.PLANNED_OUTAGE) for r in (read, earlier))
    if now or before:
        yield _figure(
            "planned_outage",
            "Planned outage cost",
            FigureUnit.MONEY,
            now,
            before,
            currency=read.currency,
        )


def _team_page(team: str, read: _MonthRead, earlier: _MonthRead, days: "_DaySums") -> MonthPage:
    both = (read, earlier)
    entitled = _figure(
        "entitled", "Entitlement", FigureUnit.GPU_HOURS, *(_entitled(team, r) for r in both)
    )
    return MonthPage(
        team=team,
        figures=[
            entitled,
            *_figures(team, read, earlier),
            *_energy_figures(team, read, earlier),
        ],
        queue_times=_team_queue_times(team, read, earlier),
        days=days.of(team),
    )


def _figure(
    key: str,
    label: str,
    unit: FigureUnit,
    value: FigureValue,
    before: FigureValue,
    *,
    currency: str = "",
) -> MonthFigure:
    return MonthFigure(key, label, unit, value, before, currency)


def _figures(team: str, read: _MonthRead, earlier: _MonthRead) -> list[MonthFigure]:
    """Return the figures that every page has, in their order."""
    both = (read, earlier)
    hours, ratio, cost = FigureUnit.GPU_HOURS, FigureUnit.RATIO, FigureUnit.MONEY
    currency = read.currency
    return [
        _figure("allocated", "Allocated", hours, *(_allocated(team, r) for r in both)),
        _figure("utilization", "GPU utilization", ratio, *(_utilization(team, r) for r in both)),
        _figure("unmet", "Unmet fair share", hours, *(_unmet(team, r) for r in both)),
        _figure("charged", "Charged", cost, *(_charged(team, r) for r in both), currency=currency),
        _figure(
            "unused",
            "Unused allocation",
            cost,
            *(_unused(team, r) for r in both),
            currency=currency,
        ),
        _figure("unused_ratio", "Unused", ratio, *(_unused_ratio(team, r) for r in both)),
        _figure(
            "saved", "Realized savings", cost, *(_saved(team, r) for r in both), currency=currency
        ),
    ]


def _energy_figures(team: str, read: _MonthRead, earlier: _MonthRead) -> list[MonthFigure]:
    """Return energy, and carbon where there is a factor; nothing where no exporter shows energy."""
    both = (read, earlier)
    energy = [r.usage[team].energy_kwh if team in r.usage else None for r in both]
    carbon = [r.carbon.get(team) for r in both]
    found = []
    # Every team has the same figures: they are the columns of a table.
    if any(one.energy_mwh for r in both for one in r.usage.values()):
        found.append(_figure("energy", "Energy", FigureUnit.KWH, *energy))
    if any(value is not None for r in both for value in r.carbon.values()):
        found.append(_figure("carbon", "Carbon", FigureUnit.KG_CO2E, *carbon))
    return found


def _capacity(read: _MonthRead) -> int | None:
    return read.usage[ALL].capacity if ALL in read.usage else None


def _entitled(team: str, read: _MonthRead) -> int | None:
    """Return the nano-GPU-hours that a team could count on in the known hours of all tiers."""
    known = [tier for tier in read.fairness.values() if tier.hours.known]
    if not known:
        return None
    return nano(
        sum(
            one.entitlement_gpus * tier.hours.known
            for tier in known
            for one in tier.teams
            if one.team == team
        )
    )


def _allocated(team: str, read: _MonthRead) -> int | None:
    """Return nano-GPU-hours: a team without any held none, if the month has facts at all."""
    if ALL not in read.usage:
        return None
    return read.usage[team].allocated if team in read.usage else 0


def _utilization(team: str, read: _MonthRead) -> float | None:
    return read.usage[team].utilization_ratio if team in read.usage else None


def _unmet(team: str, read: _MonthRead) -> int | None:
    known = [tier for tier in read.fairness.values() if tier.hours.known]
    if not known:
        return None
    own = (one for tier in known for one in tier.teams if not team or one.team == team)
    return nano(sum(one.denied_gpu_hours for one in own))


def _charged(team: str, read: _MonthRead) -> Decimal | None:
    if not read.priced:
        return None
    if team:
        return money(read.charged.get(team, 0))
    # Unallocated capacity is the platform's, and has a figure of its own.
    return money(sum(cost for name, cost in read.charged.items() if name != costs.PLATFORM_NAME))


def _platform_cost(read: _MonthRead, cause: Cause) -> Decimal | None:
    if not read.priced:
        return None
    return money(read.held.get(costs.PLATFORM_NAME, {}).get(cause, 0))


def _causes(team: str, read: _MonthRead) -> Iterable[tuple[Cause, int]]:
    for name, of_cause in read.held.items():
        if name != costs.PLATFORM_NAME and (not team or name == team):
            yield from of_cause.items()


def _unused(team: str, read: _MonthRead) -> Decimal | None:
    if not read.priced:
        return None
    return money(sum(cost for cause, cost in _causes(team, read) if cause in UNUSED))


def _unused_ratio(team: str, read: _MonthRead) -> float | None:
    """Return unused ÷ allocated cost, without the hours that have no metrics."""
    measured = [
        (cause, cost) for cause, cost in _causes(team, read) if cause in (*UNUSED, Cause.BUSY)
    ]
    whole = sum(cost for _, cost in measured)
    return sum(cost for cause, cost in measured if cause in UNUSED) / whole if whole else None


def _saved(team: str, read: _MonthRead) -> Decimal | None:
    """Return what changes accepted in the month save each month; None until one is judged."""
    if ALL not in read.usage:
        return None
    # Two accepted changes of one subject measure the same cost.
    accepted = (row for row in read.accepted if not row.alternative)
    own = [row for row in accepted if not team or row.team == team]
    # Also where nothing was accepted, as `all` of nothing is true.
    if all(row.verdict in {"", FollowUpOutcome.TOO_EARLY.value} for row in own):
        return None
    came = (
        row.saved_per_month
        for row in own
        if row.verdict in costs.REALIZED_VERDICTS
        and row.currency == read.currency
        and row.saved_per_month
    )
    return sum(came, Decimal(0))


def _tier_queue_times(read: _MonthRead, earlier: _MonthRead) -> list[TierQueueTime]:
    now, then = read.tier_queue_times, earlier.tier_queue_times
    return [
        TierQueueTime(
            tier,
            now[tier].p50_seconds if tier in now else None,
            now[tier].p95_seconds if tier in now else None,
            then[tier].p50_seconds if tier in then else None,
            then[tier].p95_seconds if tier in then else None,
            *_objective(tier, read),
        )
        for tier in sorted({*now, *then, *read.objectives})
    ]


def _team_queue_times(team: str, read: _MonthRead, earlier: _MonthRead) -> list[TierQueueTime]:
    now, then = _waits(team, read), _waits(team, earlier)
    return [
        TierQueueTime(
            *(tier, *now.get(tier, (None, None)), *then.get(tier, (None, None))),
            *_objective(tier, read),
        )
        for tier in sorted({*now, *then})
    ]


def _objective(tier: str, read: _MonthRead) -> tuple[int | None, float | None]:
    row = read.objectives.get(tier)
    return (row.p95_seconds, row.attainment_ratio) if row else (None, None)


def _waits(team: str, read: _MonthRead) -> dict[str, tuple[float | None, float | None]]:
    return {
        tier.tier: (own.wait_p50_seconds, own.wait_p95_seconds)
        for tier in read.fairness.values()
        for own in tier.teams
        if own.team == team and own.waits_ended
    }


# ---------------------------------------------------------------- days


class _DaySums(Struct, frozen=True):
    """Ledger sums by team and day, and the hours with facts of each day."""

    hours: Mapping[date, float]
    partial: frozenset[date]
    sums: Mapping[tuple[str, date], Amounts]

    def of(self, team: str) -> list[DayGpus]:
        return [self._day(team, day, hours) for day, hours in self.hours.items()]

    def _day(self, team: str, day: date, hours: float) -> DayGpus:
        # A day with facts on which a team held nothing is zero; one without facts is a gap.
        known = hours > 0 and (ALL, day) in self.sums
        own = self.sums.get((team, day), Amounts()) if known else None
        if own is None:
            return DayGpus(day, None, None, None, None, None, None, None)
        return DayGpus(
            day,
            active=own.busy / NANO / hours,
            unused=own.not_used / NANO / hours,
            no_metrics=own.unmeasured / NANO / hours,
            unallocated=None if own.unallocated is None else own.unallocated / NANO / hours,
            unavailable=None if own.unhealthy is None else own.unhealthy / NANO / hours,
            planned_outage=(
                None if own.planned_outage is None else own.planned_outage / NANO / hours
            ),
            capacity=None if own.capacity is None else own.capacity / NANO / hours,
            partial=day in self.partial,
        )


def _days(
    window: Window,
    zone: ZoneInfo,
    now: datetime,
    visibility: Visibility,
    sums: Mapping[tuple[str, date], Amounts],
) -> _DaySums:
    fresh = usage.freshness(window, filters=Filters(), visibility=visibility, now=now)
    until = min(window.end, fresh.last_hour_end or window.start)
    lost = [hour.astimezone(zone).date() for hour in {*fresh.missing, *fresh.failed}]
    hours, partial = {}, set()
    day = window.start.astimezone(zone).date()
    # By starts of local days, which have 23 to 25 hours.
    while day_start(day, zone) < window.end:
        begin, end = day_start(day, zone), day_start(day + timedelta(days=1), zone)
        span = (min(end, until) - begin) / _HOUR
        hours[day] = max(0.0, span - lost.count(day))
        if begin < until < end:
            partial.add(day)
        day += timedelta(days=1)
    return _DaySums(hours, frozenset(partial), sums)

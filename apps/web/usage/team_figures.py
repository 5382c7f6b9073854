"""What some teams hold, use, wait for and leave unused, in four figures and three pictures."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.accounts.domain.structs import replace
from apps.clusters.domain.window import Window, day_of
from apps.costs.domain.costing import money
from apps.costs.selectors import UnusedCost, unused_costs
from apps.pending.selectors import (
    PendingKnown,
    WorkloadCounts,
    count_workloads,
    not_diagnosed,
)
from apps.quotas.selectors import EntitledTeam, entitled_over, entitled_teams
from apps.usage.domain.amounts import NANO
from apps.usage.domain.usage_query import Grouping, TimeStep
from apps.usage.selectors import AllocatedGpus, CoverageGap, Freshness, allocated_now, gap_tiers
from apps.web.components import formats
from apps.web.components.drawings import (
    BarPart,
    BulletRow,
    Panel,
    TimeAxis,
    bullet_bars,
    small_multiples,
    stacked_bar,
)
from apps.web.components.drawings.bars import BulletBars, StackedBar
from apps.web.components.drawings.panels import SmallMultiples
from apps.web.components.figure_row import KeyFigure, PeriodChange, Tone, Verdict, no_data
from apps.web.components.formats import duration, gpus_text, gpus_words
from apps.web.components.page_query import Query, explain_href, href, without, workload_href
from apps.web.pending.pending_table import class_of
from apps.web.query_session import HOUR, STALE_AFTER, QuerySession, usage_of
from apps.web.usage import glance
from apps.web.usage.comparison import Comparison, compared

PENDING_ID = "pending-now"
_BULLETS = 5
_HOURLY_UP_TO = timedelta(days=8)
_DAY = timedelta(days=1)
_SAME_POINTS = 0.005
_UTC = ZoneInfo("UTC")


class TeamScope(Struct, frozen=True, dict=True):
    """The teams that a page is about; what is read of them is read once.

    `leads`: the reader leads one, and decides; else what the workloads do comes first. `reading`
    is narrowed to `teams`; `query` names them, for links that are about them alone.
    """

    teams: tuple[str, ...]
    reading: QuerySession
    leads: bool = True

    @classmethod
    def of(cls, teams: Sequence[str], reading: QuerySession, *, leads: bool) -> "TeamScope":
        filters = replace(reading.filters, team=tuple(teams))
        return cls(tuple(teams), replace(reading, filters=filters), leads)

    @property
    def query(self) -> Query:
        return [*without(self.reading.query, "team"), *(("team", name) for name in self.teams)]

    @cached_property
    def held(self) -> Mapping[str, AllocatedGpus]:
        """What is held and pending now, by tier; on all clusters."""
        found: dict[str, AllocatedGpus] = {}
        tiers = self.reading.filters.tier
        now = allocated_now(self.reading.now, visibility=self.reading.visibility)
        for (team, tier), own in now.items():
            if team in self.teams and (not tiers or tier in tiers):
                sums = found.setdefault(tier, AllocatedGpus())
                sums.held += own.held
                sums.waiting += own.waiting
        return found

    @cached_property
    def _entitlements(self) -> Sequence[EntitledTeam]:
        return entitled_teams(self.reading.now, visibility=self.reading.visibility)

    @cached_property
    def entitled(self) -> Mapping[str, float]:
        """What they may count on now, by tier; for all clusters."""
        found: dict[str, float] = {}
        tiers = self.reading.filters.tier
        for row in self._entitlements:
            if row.team in self.teams and (not tiers or row.tier in tiers):
                found[row.tier] = found.get(row.tier, 0.0) + row.gpus
        return found

    @cached_property
    def comparison(self) -> Comparison:
        return compared(self.reading)

    @cached_property
    def gaps(self) -> Sequence[CoverageGap]:
        """The hours without knowledge of tiers that the teams use, or may use.

        A tier in which others are entitled and these teams are not is theirs only if they use it.
        """
        used = {row.groups[Grouping.TIER] for row in self.comparison.rows if row.amounts.allocated}
        of_others = {row.tier for row in self._entitlements} - {*used, *self.entitled, *self.held}
        lacking = {tier for _, tier in self.comparison.gaps} - of_others
        if not lacking:
            return ()
        return gap_tiers(
            self.reading.window, visibility=self.reading.visibility, tiers=sorted(lacking)
        )

    @cached_property
    def known(self) -> PendingKnown:
        """Until when it is known what is pending."""
        return glance.known_until(self.reading)

    @cached_property
    def pending(self) -> WorkloadCounts:
        """The workloads that pend now, of teams that the reader sees."""
        reading = self.reading
        return count_workloads(
            reading.now, visibility=reading.visibility, filters=reading.pending_filters
        )

    @cached_property
    def unchecked(self) -> str:
        """Why nothing is listed where a cluster was not diagnosed yet; empty once all were."""
        return unchecked_text(self.reading)

    @cached_property
    def unused_of_all(self) -> Sequence[UnusedCost]:
        """What they did not use, by currency, as far as costs are computed."""
        return unused_costs(
            self.reading.window,
            by=(),
            filters=self.reading.filters,
            visibility=self.reading.visibility,
            zone=self.reading.choice.zone,
        )

    @property
    def unused(self) -> UnusedCost | None:
        """The cost of what they did not use; None without one that the reader may see."""
        # Rows come with the largest first: a figure has room for one currency.
        return next((row for row in self.unused_of_all if row.currency), None)


class WorkloadBar(Struct, frozen=True):
    """A workload: what it did not use as text and share, `width` in percent of the largest."""

    name: str
    href: str
    text: str
    share: str
    width: float


def figures_of(scope: TeamScope) -> list[KeyFigure]:
    """Return the four figures: allocated, utilization, pending and unused."""
    return [
        allocated_figure(scope),
        utilization_figure(scope),
        pending_figure(scope),
        unused_figure(scope),
    ]


def allocated_figure(scope: TeamScope) -> KeyFigure:
    """Return what is allocated now of what is entitled."""
    held = sum(one.held for one in scope.held.values())
    entitled = sum(scope.entitled.values())
    return KeyFigure(
        "Allocated",
        gpus_text(held),
        f"of {gpus_words(entitled)}" if entitled else "GPUs",
        exact=f"{held:,.2f} GPUs allocated, {entitled:,.2f} entitled",
        basis="now",
        href=href("teams", scope.query) or "",
    )


def utilization_figure(scope: TeamScope) -> KeyFigure:
    """Return the utilization in the window, against the period before."""
    sums = scope.comparison.sums()
    ratio = sums.amounts.utilization_ratio if sums else None
    if ratio is None:
        return no_data("Utilization", "Nothing of these teams has metrics in this time.")
    return KeyFigure(
        "Utilization",
        formats.percent(ratio),
        exact=f"{ratio * 100:.2f} %",
        change=utilization_change(scope.comparison),
        basis="average",
        href=explain_href("utilization_ratio", scope.query),
    )


def utilization_change(comparison: Comparison) -> PeriodChange | None:
    """Return how the utilization differs from the period before; None where it does not."""
    now, before = comparison.sums(), comparison.sums_before()
    if now is None or before is None:
        return None
    ratios = (now.amounts.utilization_ratio, before.amounts.utilization_ratio)
    if ratios[0] is None or ratios[1] is None:
        return None
    difference = ratios[0] - ratios[1]
    than = f"{comparison.words}: {formats.percent(ratios[1])}"
    if abs(difference) < _SAME_POINTS:
        return None
    verdict = Verdict.BETTER if difference > 0 else Verdict.WORSE
    return PeriodChange(formats.points(difference), verdict, than)


def pending_figure(scope: TeamScope) -> KeyFigure:
    """Return how many workloads pend now and since when; no data where no cluster tells."""
    if is_pending_unknown(scope.known):
        return pending_unknown(NO_SOURCE, scope.query)
    if not scope.pending.count and scope.unchecked:
        return pending_unknown(scope.unchecked, scope.query)
    return pending_counted(scope.pending, scope.reading.now, scope.query)


NO_SOURCE = "No cluster tells yet what is pending."


def is_pending_unknown(known: PendingKnown) -> bool:
    """Say whether there are clusters, and what pends is known of none."""
    return bool(known.until) and not any(known.until.values())


def unchecked_text(reading: QuerySession) -> str:
    """Return which clusters were not diagnosed yet; empty once all were. One query."""
    names = not_diagnosed(clusters=reading.filters.cluster)
    return f"Not checked yet: {', '.join(names)}." if names else ""


def pending_unknown(why: str, query: Query) -> KeyFigure:
    """Return the figure of pending work where there is no data."""
    return replace(no_data("Pending", why, href=href("pending", query) or ""), id=PENDING_ID)


def pending_counted(found: WorkloadCounts, now: datetime, query: Query) -> KeyFigure:
    """Return how many workloads pend, and for how long the oldest does."""
    age = max(0.0, (now - found.since).total_seconds()) if found.since else None
    return KeyFigure(
        "Pending",
        f"{found.count:,}",
        f"workload{'' if found.count == 1 else 's'}",
        basis="now",
        href=href("pending", query) or "",
        note="" if age is None else f"oldest {duration(age)}",
        tone=Tone.WARNING if found.count else Tone.NONE,
        id=PENDING_ID,
    )


def unused_figure(scope: TeamScope, *, of_cost: bool = False) -> KeyFigure:
    """Return the cost of the unused allocation, as a share or of the cost of all of it.

    In GPUs where there is no price, or none that the reader may see.
    """
    sums, cost = scope.comparison.sums(), scope.unused
    if sums is None:
        return no_data("Unused", "No hour of this time has data of these teams.")
    gpus = gpus_words(sums.gpus.not_used)
    link = explain_href("not_busy_gpu_hours", scope.query)
    if cost is None:
        return KeyFigure("Unused", gpus, basis="average", href=link, note="no price")
    if cost.ratio is None and cost.known and not cost.unused:
        # Nothing was measured: that no unused time was found is no zero.
        return no_data("Unused", "No metrics of these teams in this time.")
    share = "" if cost.ratio is None else formats.percent(cost.ratio)
    # The page of costs adds energy, and hours without metrics.
    whole = f"of {formats.money(money(cost.known), cost.currency)} for GPUs"
    return KeyFigure(
        "Unused",
        formats.money(money(cost.unused), cost.currency),
        whole if of_cost else share,
        exact=f"{money(cost.unused):f} of {money(cost.known):f} {cost.currency}, without energy",
        href=href("waste", scope.query) or "",
        note=f"{share}, {gpus}" if of_cost and share else f"{gpus} average",
    )


def tier_bars(scope: TeamScope) -> BulletBars:
    """Return allocation against entitlement now, tier by tier, the largest first."""
    tiers = {*scope.held, *scope.entitled}
    rows = []
    for tier in tiers:
        own, entitled = scope.held.get(tier, AllocatedGpus()), scope.entitled.get(tier)
        if own.held or own.waiting or entitled:
            # What pends is drawn on top of what is held: together they are what the team wants.
            wanted = own.held + own.waiting if own.waiting else None
            link = href("tier", scope.query, name=tier) or ""
            rows.append(BulletRow(tier, own.held, entitled, wanted, href=link))
    rows.sort(key=lambda row: (-max(row.allocated or 0, row.entitlement or 0), row.label))
    return bullet_bars(
        "entitlements",
        "Allocation vs. entitlement · now",
        rows,
        label="Tier",
        open_rows=_BULLETS,
        empty="No GPU is allocated to these teams now, and none is entitled.",
    )


def workload_bars(scope: TeamScope, rows: Sequence[UnusedCost]) -> list[WorkloadBar]:
    """Return the workloads with the largest unused allocation, for bars against the first."""
    most = max((row.unused or row.gpu_hours for row in rows), default=0)
    return [
        WorkloadBar(
            name=row.groups["workload"].partition("/")[2],
            href=workload_href(
                row.groups["cluster"],
                row.groups["namespace"],
                row.groups["workload"],
                scope.reading.query,
            )
            or "",
            text=unused_text(row),
            share="" if row.ratio is None else formats.percent(row.ratio),
            width=round(100 * (row.unused or row.gpu_hours) / most, 1) if most else 0.0,
        )
        for row in rows
    ]


def unused_text(row: UnusedCost) -> str:
    """Return what a workload did not use, in money where it has a price."""
    if row.currency:
        return formats.money(money(row.unused), row.currency)
    return f"{formats.shown(row.gpu_hours, formats.Format.GPU_HOURS, _UTC)} GPU-h"


def reasons_bar(scope: TeamScope) -> StackedBar:
    """Return the pending workloads by class of reason, each leading to its list."""
    link = href("pending", scope.query) or ""
    joint = "&" if "?" in link else "?"
    by_class = defaultdict(list)
    for one in scope.pending.causes:
        by_class[class_of(one.cause)].append(one)
    parts = []
    for cls, causes in by_class.items():
        count = sum(one.workloads for one in causes)
        address = link + joint + urlencode([("cause", one.cause) for one in causes])
        # The class may carry a shape too, which a bar does not draw.
        css = cls.css.split()[0]
        parts.append(BarPart(cls.label, float(count), f"{count:,}", css, address))
    parts.sort(key=lambda part: (-part.amount, part.label))
    return stacked_bar(
        *("reasons", "Pending by reason", parts),
        unit="workloads",
        empty=(not parts and scope.unchecked) or "Nothing is pending.",
    )


def gpus_over_time(scope: TeamScope, freshness: Freshness) -> SmallMultiples:
    """Return average GPUs allocated over time with the entitlement, by the hour up to a week."""
    reading = scope.reading
    window, choice = _until_data(reading, freshness), reading.choice
    by_hour = window.end - window.start <= _HOURLY_UP_TO
    step = TimeStep.HOUR if by_hour else TimeStep.DAY
    hours = int((window.end - window.start) / HOUR)
    days = [at for at in choice.periods if at < window.end]
    periods = [window.start + n * HOUR for n in range(hours)] if by_hour else days
    rows = usage_of(reading, by=(), interval=step)
    # In UTC: an hour of autumn has two local times, which equal no others.
    amounts = {row.period.astimezone(UTC): row.amounts for row in rows if row.period}
    lost = {*freshness.missing, *freshness.failed}
    ends = [*periods[1:], window.end]
    allocated: list[float | None] = []
    active: list[float | None] = []
    for start, end in zip(periods, ends, strict=True):
        # Hours that are lost divide nothing: they are unknown and do not lower the average.
        known = (min(end, reading.now) - start) / HOUR - sum(start <= at < end for at in lost)
        own = amounts.get(start)
        # A period without rows held nothing, but only where its hours were collected.
        none = freshness.last_hour_end is None or start >= freshness.last_hour_end or known <= 0
        allocated.append(None if none else (own.allocated / NANO / known if own else 0.0))
        active.append(None if none else (own.busy / NANO / known if own else 0.0))
    steps = entitled_over(
        reading.window,
        visibility=reading.visibility,
        teams=scope.teams,
        tiers=reading.filters.tier,
    )
    entitlement = [_entitled_at(start, steps) for start in periods]
    spans = zip(periods, ends, strict=True)
    drawn = [span for span, n in zip(spans, allocated, strict=True) if n is not None]
    zone = reading.choice.zone
    today = [at for at in periods if day_of(at, zone) == day_of(reading.now, zone)]
    axis = TimeAxis(
        periods,
        choice.zone,
        by_hour=by_hour,
        # The day that runs is drawn as wide as it has come.
        elapsed=min(1.0, (window.end - today[0]) / _DAY) if today and not by_hour else 1.0,
        incomplete=_incomplete(drawn, (*lost, *freshness.partial)),
        today=len(today) if by_hour else 0,
    )
    panel = Panel(", ".join(scope.teams), allocated, entitlement, active=active)
    return small_multiples("gpus", "Average GPUs", [panel], axis)


def _incomplete(
    periods: Iterable[tuple[datetime, datetime]], hours: Collection[datetime]
) -> list[datetime]:
    """Return the starts of the periods that lack some of their hours, or parts of these."""
    return [start for start, end in periods if any(start <= hour < end for hour in hours)]


def _until_data(reading: QuerySession, freshness: Freshness) -> Window:
    """Return the window without the hours that are not due yet; what is late stays a gap."""
    window, last = reading.window, freshness.last_hour_end
    # Late data must be seen as a gap, so the chart is not cut there.
    if last is None or reading.now - last > STALE_AFTER or not window.start < last < window.end:
        return window
    return Window(window.start, last)


def _entitled_at(at: datetime, steps: Sequence[tuple[datetime, float]]) -> float:
    return next((gpus for start, gpus in reversed(steps) if start <= at), 0.0)

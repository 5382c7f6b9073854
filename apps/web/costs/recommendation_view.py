"""One recommendation as pages show it: its words, links, evidence and what came of it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from apps.clusters.domain.names import ANY
from apps.clusters.domain.resources import quantity
from apps.costs.domain.recommendations.recommendation import (
    DECIDABLE,
    OF_QUOTA,
    REPLAYED_KINDS,
    SAVED_EACH,
    SAVED_GPU_HOURS,
    FollowUpOutcome,
    LoweredLimit,
    RecommendationKind,
    RecommendationState,
    ReplayGap,
    change_values_of,
)
from apps.costs.selectors import (
    DECIDED_TO_SAVE,
    RECOMMENDED,
    RecommendationRow,
    RetainedWorkload,
)
from apps.quotas.domain.keys import QuotaRef
from apps.web.alerts.alert_list import retained_words
from apps.web.components import formats
from apps.web.components.figure_row import FigureRow, KeyFigure, figure_row, no_data
from apps.web.components.formats import Format
from apps.web.components.page_query import Query, figure_href, href, workload_href
from apps.web.query_session import QuerySession
from apps.web.quota_requests.request_input import ask_href

KINDS: Mapping[RecommendationKind, str] = {
    RecommendationKind.FEWER_GPUS: "Fewer GPUs",
    RecommendationKind.MIG_PROFILE: "MIG profile",
    RecommendationKind.SHARED_TIER: "Shared tier",
    RecommendationKind.SMALLER_MODEL: "Smaller model",
    RecommendationKind.STOP_IDLE_NOTEBOOK: "Stop idle notebook",
    RecommendationKind.UNUSED_QUOTA: "Lower quota",
    RecommendationKind.MIG_LAYOUT: "MIG layout",
    RecommendationKind.SPOT: "Spot capacity",
    RecommendationKind.EMPTY_NODES: "Empty nodes",
    RecommendationKind.IDLE_START: "Idle start",
    RecommendationKind.IDLE_END: "Idle end",
    RecommendationKind.IDLE_TIMEOUT: "Idle timeout",
    RecommendationKind.SCALE_TO_DEMAND: "Scale to demand",
    RecommendationKind.EMPTY_HOURS: "Empty hours",
    RecommendationKind.LEND_QUOTA: "Lend quota",
}
STATES: Mapping[RecommendationState, tuple[str, str]] = {
    RecommendationState.OPEN: ("open", "none"),
    RecommendationState.ACCEPTED: ("accepted", "partial"),
    RecommendationState.DISMISSED: ("dismissed", "none"),
    RecommendationState.DONE: ("done", "complete"),
    RecommendationState.GONE: ("no longer found", "none"),
}
_VERDICTS: Mapping[str, str] = {
    FollowUpOutcome.TOO_EARLY: "Too early to say: seven days have to be collected since.",
    FollowUpOutcome.CAME: "The saving came.",
    FollowUpOutcome.PARTLY: "A part of the saving came.",
    FollowUpOutcome.DID_NOT: "The saving did not come.",
}
_FIGURES: Mapping[str, tuple[str, Format, str]] = {
    "days": ("Evidence", Format.NUMBER, "days"),
    "weeks": ("Evidence", Format.COUNT, "weeks"),
    "gpu_hours": ("Allocated", Format.NUMBER, "GPU-hours"),
    "coverage_ratio": ("Metrics coverage", Format.RATIO, ""),
    "mean_activity": ("Mean activity", Format.RATIO, ""),
    "p95_activity": ("p95 activity", Format.RATIO, ""),
    "idle_ratio": ("Idle", Format.RATIO, ""),
    "idle_hours_now": ("Idle up to now", Format.NUMBER, "hours"),
    "memory_peak_mib": ("Peak GPU memory", Format.COUNT, "MiB"),
    "card_memory_mib": ("GPU memory", Format.COUNT, "MiB"),
    "memory_there_mib": ("GPU memory there", Format.COUNT, "MiB"),
    "expected_p95_activity": ("p95 activity there", Format.RATIO, ""),
    "gpus_per_pod": ("GPUs per pod", Format.COUNT, ""),
    "gpus_never_active": ("GPUs never active", Format.COUNT, ""),
    "profile": ("Profile", Format.TEXT, ""),
    "profile_share": ("Share of GPU", Format.RATIO, ""),
    "price_per_gpu_hour": ("Price", Format.TEXT, "per GPU-hour"),
    "price_there": ("Price there", Format.TEXT, "per GPU-hour"),
    "spot_price_per_gpu_hour": ("Spot price", Format.TEXT, "per GPU-hour"),
    "restarts": ("Restarts", Format.COUNT, ""),
    "finished_after_restart": ("Finished after restart", Format.COUNT, ""),
    "hard": ("Limit", Format.NUMBER, ""),
    "peak_used": ("Peak used", Format.NUMBER, ""),
    "unallocated_gpus": ("Unallocated in tier", Format.NUMBER, "GPUs"),
    "cards": ("GPUs", Format.COUNT, ""),
    "stranded_slices_now": ("Stranded slices now", Format.COUNT, "of a GPU"),
    "stranded_slices_then": ("Stranded slices then", Format.COUNT, "of a GPU"),
    "most_held": ("Peak allocated", Format.TEXT, ""),
    "empty_node_hours_per_week": ("Empty per week", Format.COUNT, "node-hours"),
    "gpus_per_node": ("GPUs per node", Format.COUNT, ""),
    "quiet_gpu_hours": ("Quiet", Format.NUMBER, "GPU-hours"),
    "freed_gpu_hours": ("Freed", Format.NUMBER, "GPU-hours"),
    "pending_gpu_hours_at_most": ("Pending at most", Format.NUMBER, "GPU-hours"),
    "workloads_hit": ("Workloads affected", Format.COUNT, ""),
    "pods_hit": ("Pods affected", Format.COUNT, ""),
    "most_hit": ("Most affected", Format.TEXT, ""),
    "most_replicas_held": ("Peak replicas", Format.NUMBER, ""),
    "most_replicas_needed": ("Replicas needed", Format.COUNT, ""),
    "empty_gpu_hours": ("Empty", Format.NUMBER, "GPU-hours"),
    "usual_gpu_hours": ("Usually empty", Format.NUMBER, "GPU-hours"),
    "always_empty_gpus": ("Always empty", Format.COUNT, "GPUs"),
    "usual_used": ("p90 used", Format.NUMBER, ""),
    "free_unit_hours": ("Free while pending", Format.NUMBER, "quota-hours"),
    "pending_unit_hours": ("Pending demand", Format.NUMBER, "quota-hours"),
    "saved_gpu_hours_per_month": ("Saved", Format.NUMBER, "GPU-hours a month"),
    "saved_per_gpu_hour": ("Price saved", Format.TEXT, "per GPU-hour"),
    "members": ("Workloads judged", Format.COUNT, ""),
}
_OF_POOLS = (RecommendationKind.EMPTY_NODES, RecommendationKind.EMPTY_HOURS)
_NOT_REPLAYED: Mapping[str, str] = {
    RecommendationKind.SMALLER_MODEL: "how fast the work runs on the other model was never seen",
    RecommendationKind.STOP_IDLE_NOTEBOOK: "idle timeouts are replayed for a whole team instead",
    RecommendationKind.SPOT: "when spot nodes are taken away is not known",
    RecommendationKind.IDLE_START: "how the work loads without its GPUs was never seen",
    RecommendationKind.IDLE_END: "when the work would have ended is not known",
    RecommendationKind.SCALE_TO_DEMAND: "which replicas end is the choice of an autoscaler",
}
_GAPS: Mapping[str, str] = {
    ReplayGap.NOTHING_RECORDED: "no node of the cluster is recorded in the last day",
    ReplayGap.NO_WORK: "no such work was recorded in the last 14 days",
    ReplayGap.NOT_OFFERED: "no node offers what the work would request",
    ReplayGap.OTHER_LAYOUT: "the node has another layout by now",
}
_NO_WORKLOAD = (
    *OF_QUOTA,
    *_OF_POOLS,
    RecommendationKind.IDLE_TIMEOUT,
)
UNPRICED = "unpriced"
_PRICE_DIGITS = 4
_UNKNOWN = "This cannot be told: not everything since was priced, or not at comparable prices."


class RecommendationLine(Struct, frozen=True):
    """One recommendation ready for a page: `ask` is the form of the change that it proposes."""

    row: RecommendationRow
    kind: str
    subject: str
    saving: str
    state: str
    css: str
    hrefs: Mapping[str, str | None]
    evidence: Sequence[tuple[str, str]]
    replayed: Sequence[tuple[str, str]]
    followed: Sequence[str]
    decides: bool
    ask: str = ""
    retained: str = ""

    @property
    def risk(self) -> str:
        return self.row.risk

    @property
    def effects(self) -> str:
        """Say why no replay is behind the figures, or what it takes for granted."""
        if self.row.kind not in REPLAYED_KINDS:
            return f"Effects of this kind are not replayed: {_NOT_REPLAYED[self.row.kind]}."
        replay = self.row.replay
        if not replay:
            gap = _GAPS.get(self.row.replay_gap)
            why = f": {gap}" if gap else " yet"
            return f"Effects of this change have not been replayed{why}."
        if self.row.kind in _OF_POOLS:
            return "Away in the replay are GPUs that were free in the same hour without it."
        if "replayed_works" not in replay:
            return ""
        assumed = "The work is taken to run as long as it did: its speed then was never seen."
        if replay["replayed_works_started"] == replay["replayed_works"]:
            return assumed
        return f"{assumed} What did not start had no free unit or no quota in these days."

    @property
    def cash(self) -> bool:
        return self.row.cash


def line_of(
    row: RecommendationRow,
    reading: QuerySession,
    led: Collection[int] | None,
    back: Query,
    retained: RetainedWorkload | None = None,
) -> RecommendationLine:
    """Return a line; `led` are the teams whose recommendations the reader decides on, None: all.

    `back` is the query of the list, which the page of one leads back to. For a quota to lower, a
    reader who may decide can also request the change: `ask` opens the form.
    """
    state, css = STATES[RecommendationState(row.state)]
    # None: an administrator, who also decides on what is of no team.
    may = led is None or (row.team_id is not None and row.team_id in led)
    lowered = _lowered(row)
    return RecommendationLine(
        row=row,
        kind=KINDS[RecommendationKind(row.kind)],
        subject=_subject(row, lowered),
        saving=money(row.saving_per_month, row.currency),
        state=state,
        css=css,
        hrefs=_hrefs(row, reading.query, back),
        evidence=_evidence(row.evidence, row.currency or ""),
        replayed=list(_replayed(row, reading.choice.zone)),
        followed=_followed(row),
        decides=may and row.state in DECIDABLE,
        ask=_ask(row, lowered, reading.query) if may and row.state in DECIDABLE else "",
        retained=retained_words(retained, reading.choice.zone),
    )


def _lowered(row: RecommendationRow) -> LoweredLimit | None:
    """Return what a recommendation lowers; None for those of other kinds."""
    values = change_values_of(row.kind, row.change_values)
    return values if isinstance(values, LoweredLimit) else None


def _subject(row: RecommendationRow, lowered: LoweredLimit | None) -> str:
    """Return what a recommendation is about, beside its team, tier and cluster."""
    if row.kind == RecommendationKind.IDLE_TIMEOUT:
        return "All workloads"
    if row.kind in _OF_POOLS and row.workload:
        # A pool is kept in the place of a workload; names of models may have slashes.
        _, paid, model = row.workload.split("/", 2)
        return f"{model}, {paid}"
    if lowered is None:
        return row.workload or row.node or "All GPUs"
    key, before, after = lowered
    whose = row.namespace or row.workload.partition("/")[2]
    return f"{whose}: {key} {quantity(before)} → {quantity(after)}"


def _ask(row: RecommendationRow, lowered: LoweredLimit | None, query: Query) -> str:
    source, _, name = row.workload.partition("/")
    # Only a quota with a name of its own can be asked for.
    if lowered is None or not name:
        return ""
    key, _before, after = lowered
    ref = QuotaRef(source, row.namespace, name, key, row.cluster)
    # Without separators of thousands: it is what the form's field takes.
    return ask_href(ref, after=quantity(after).replace(",", ""), query=query)


def money(amount: Decimal | None, currency: str | None) -> str:
    """Write an amount; what has no price says so."""
    return UNPRICED if amount is None else formats.money(amount, currency or "")


def _hrefs(row: RecommendationRow, query: Query, back: Query) -> dict[str, str | None]:
    workload = None
    # Some are about a place or about several workloads, which have no page.
    if row.workload and not row.workload.endswith(("/", ANY)) and row.kind not in _NO_WORKLOAD:
        workload = workload_href(row.cluster, row.namespace, row.workload, query)
    saving = figure_href(RECOMMENDED, query, recommendation=str(row.pk))
    return {
        # What was found before these numbers were retained cannot be explained.
        "saving": saving if SAVED_EACH in row.evidence else None,
        "own": href("recommendation", back, pk=str(row.pk)),
        "workload": workload,
        "team": href("team", query, name=row.team) if row.team else None,
        "tier": href("tier", query, name=row.tier) if row.tier else None,
    }


def _evidence(found: Mapping[str, Any], currency: str) -> list[tuple[str, str]]:
    """Return (what, how much) of the figures that it rests on, in a fixed order."""
    # What a later version recorded and this one does not know has no words here.
    known = [name for name in _FIGURES if name in found]
    return [(_FIGURES[name][0], _figure(name, found[name], currency)) for name in known]


def _replayed(row: RecommendationRow, zone: ZoneInfo) -> Iterator[tuple[str, str]]:
    """Yield (what, how much) of its replay, without the change and with it."""
    # What was replayed by an earlier version has fewer figures.
    found = {key.removeprefix("replayed_"): value for key, value in (row.replay or {}).items()}

    def pair(name: str, kind: Format) -> str:
        # None of queue times: nothing started.
        values = (found.get(name.format(when)) for when in ("before", "after"))
        return " → ".join(formats.shown(one, kind, zone) for one in values)

    if "days" in found:
        yield "Replayed", f"{_number(found['days'], Format.NUMBER)} days"
    if "freed_gpu_hours" in found:
        yield "Freed in replay", f"{_number(found['freed_gpu_hours'], Format.NUMBER)} GPU-hours"
    if "unmet_before_gpu_hours" in found:
        yield "Unmet", f"{pair('unmet_{}_gpu_hours', Format.NUMBER)} GPU-hours"
    if {"p95_before_seconds", "p95_after_seconds"} & found.keys():
        yield "p95 queue time", pair("p95_{}_seconds", Format.SECONDS)
    if "works" in found:
        yield "Started with it", f"{found['works_started']:,} of {found['works']:,}"
    if "saving_per_month" in found:
        yield (
            "Saving in replay",
            f"{money(Decimal(found['saving_per_month']), row.currency)} a month",
        )


def _figure(name: str, value: Any, currency: str) -> str:
    _, kind, unit = _FIGURES[name]
    if unit == "per GPU-hour":
        return f"{formats.plain(round(Decimal(str(value)), _PRICE_DIGITS))} {currency} {unit}"
    text = str(value) if kind is Format.TEXT or isinstance(value, str) else _number(value, kind)
    return f"{text} {unit}".strip()


def _number(value: float, kind: Format) -> str:
    if kind is Format.RATIO:
        return formats.percent(value)
    return f"{value:,.0f}" if kind is Format.COUNT else f"{value:,.1f}".removesuffix(".0")


def _followed(row: RecommendationRow) -> list[str]:
    """Return what came of an accepted one, in sentences; both costs, so that one can judge."""
    if row.state not in DECIDED_TO_SAVE:
        return []
    # Without its cost before there is nothing that its cost since could be held against.
    if row.cost_before is None or row.days_before is None:
        return ["Whether its saving comes cannot be told: its own cost before is not known."]
    not_told = _UNKNOWN if row.days_after is not None else _VERDICTS[FollowUpOutcome.TOO_EARLY]
    said = [_VERDICTS.get(row.verdict, not_told)]
    if row.saved_per_month is not None:
        said[0] += f" It costs {money(row.saved_per_month, row.currency)} a month less than before."
    said.append(_cost("Before", row.cost_before, row.days_before, row.currency))
    if row.cost_after is not None and row.days_after is not None:
        said.append(_cost("Since", row.cost_after, row.days_after, row.currency))
    return said


def _cost(when: str, cost: Decimal, days: float, currency: str | None) -> str:
    return f"{when}: {money(cost, currency)} in {_number(days, Format.NUMBER)} days."


def figures_of(line: RecommendationLine) -> FigureRow:
    """Return the figures of one recommendation: its saving, and what of it is realized."""
    row = line.row
    hours, days = row.evidence.get(SAVED_GPU_HOURS), row.evidence.get("days")
    figures = [
        KeyFigure(
            "Saving",
            line.saving,
            "" if row.saving_per_month is None else "a month",
            href=line.hrefs["saving"] or "",
            note="" if line.cash else "worth of quota, no cash",
        ),
        no_data("GPU-hours", "Found before these were recorded.")
        if hours is None
        else KeyFigure("GPU-hours", f"{hours:,.0f}", "a month"),
        KeyFigure(
            "Confidence",
            row.confidence.capitalize(),
            note=f"from {_number(days, Format.NUMBER)} days" if days else "",
        ),
    ]
    if row.state in DECIDED_TO_SAVE:
        figures.append(_realized(row))
    return figure_row(*figures)


def _realized(row: RecommendationRow) -> KeyFigure:
    if row.saved_per_month is None:
        return no_data("Realized", _followed(row)[0])
    return KeyFigure("Realized", money(row.saved_per_month, row.currency), "a month")

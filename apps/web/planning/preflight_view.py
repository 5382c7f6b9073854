"""The answers of a preflight as its page shows them."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from apps.clusters.domain.resources import counted
from apps.pending.domain.diagnosis import Cause
from apps.planning.domain.measured_use import ENDING, FamilyHistory
from apps.planning.domain.verdicts import QuotaTouched, Verdict
from apps.planning.services import (
    AlternativeBasis,
    AlternativeRow,
    PreflightReport,
    PreflightResult,
    QueueTimeRange,
)
from apps.quotas.domain.keys import QuotaRef
from apps.web.components.figure_row import FigureRow, KeyFigure, Tone, figure_row, no_data
from apps.web.components.formats import (
    Format,
    duration,
    gpus_text,
    gpus_words,
    mebibytes,
    money,
    percent,
    shown,
    unit_words,
)
from apps.web.components.page_query import href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.pending.pending_table import Badge, badge, of_asker
from apps.web.pending.suggestions import FixStep, FixTarget, help_of
from apps.web.query_session import QuerySession
from apps.web.quotas.keys import key_href

VERDICTS = {
    Verdict.STARTS.value: ("Starts now", Tone.GOOD),
    Verdict.WAITS.value: ("Pending", Tone.WARNING),
    Verdict.NEVER.value: ("Cannot start", Tone.DANGER),
}
_NOTHING = ("Nothing requested", Tone.NONE)
_QUEUEING = (Cause.QUEUE.value, Cause.CAPACITY.value, Cause.GANG.value)
"""Causes of work that stands in a queue; what a quota refuses does not."""
_NO_HISTORY = "Fewer than 5 such pods started in the last 30 days"
_BASES = {
    AlternativeBasis.STARTS_NOW: "starts now",
    AlternativeBasis.MEASURED_USE: "fits measured use",
}


class PreflightAnswer(Struct, frozen=True):
    """The answer for pods alike: `verdict` first, then figures, cause and fixes."""

    verdict: str
    tone: Tone
    title: str
    name: str
    figures: FigureRow
    explanation: str
    badge: Badge | None
    of_owner: bool
    helps: Sequence[FixStep]
    quotas: Table
    alternatives: Table
    assumptions: Sequence[str]


def answers_of(
    report: PreflightReport, cluster: str, reading: QuerySession
) -> list[PreflightAnswer]:
    """Return the answers in the order of the manifest."""
    return [
        _answer(one, f"{number}", cluster, reading)
        for number, one in enumerate(report.results, start=1)
    ]


def summary_of(report: PreflightReport) -> str:
    """Return how many of several workloads start now; empty for a single one."""
    if len(report.results) < 2:
        return ""
    # What requests nothing does not start either.
    asking = [one for one in report.results if not _is_none(one)]
    starting = sum(one.verdict == Verdict.STARTS.value for one in asking)
    return f"{starting} of {len(asking)} start now" if asking else "Nothing is requested"


def _answer(
    one: PreflightResult, number: str, cluster: str, reading: QuerySession
) -> PreflightAnswer:
    verdict, tone = _NOTHING if _is_none(one) else VERDICTS[one.verdict]
    target = FixTarget(cluster, one.namespace, suggestions=one.suggestions)
    return PreflightAnswer(
        verdict=verdict,
        tone=tone,
        title=f"{one.kind} {one.role}".rstrip(),
        name=one.name,
        figures=figure_row(*_figures(one, tone), name=f"Answer for {one.name}"),
        explanation=one.explanation,
        badge=badge(one.cause, one.detail) if one.cause else None,
        of_owner=of_asker(one.cause),
        helps=help_of(target, reason=_reason(one)),
        quotas=_quota_table(one, f"quotas-{number}", cluster, reading),
        alternatives=_alternative_table(one, f"alternatives-{number}", reading),
        assumptions=list(_assumptions(one)),
    )


def _is_none(one: PreflightResult) -> bool:
    """Say whether no pods are requested; a DaemonSet that no node takes has a cause."""
    return not one.pods and not one.cause


def _reason(one: PreflightResult) -> str:
    """Return the reason that a request of more quota begins with; no name of a manifest is in it.

    The address of the form carries it.
    """
    pods = f"{one.pods:,} pod{'s' * (one.pods != 1)}"
    lacking = next((quota for quota in one.quotas if not quota.fits), None)
    left = "" if lacking is None else f"; {lacking.key} leaves {_amount(lacking, lacking.left)}"
    return f"Planned: {pods} with {one.units:g} × {one.resource}{left}."


# ---------------------------------------------------------------- figures


def _figures(one: PreflightResult, tone: Tone) -> Iterable[KeyFigure]:
    if _is_none(one):
        return
    # A DaemonSet whose pods no node takes has none, so there are no amounts to show.
    if not one.pods:
        return
    of = f"of {counted(one.pods, 'pod')}"
    yield KeyFigure("Starting now", f"{one.could_start:,}", of, tone=tone)
    if one.tier:
        size = gpus_text(one.gpu_equivalents)
        each = f"{one.units:g} × {one.resource}"
        yield KeyFigure("Size", size, unit_words(size, "GPUs"), note=one.tier, exact=each)
    if one.verdict == Verdict.WAITS.value and one.cause in _QUEUEING:
        yield _position(one)
    # What never starts has no queue time, however long others were pending.
    if one.tier and one.verdict != Verdict.NEVER.value:
        yield _queue_time(one)
    if one.tier:
        yield from _costs(one)


def _position(one: PreflightResult) -> KeyFigure:
    found = one.position
    if found is None:
        return no_data("Position", "The order of its queue is not known.")
    note = found.queue or "by priority, then age"
    return KeyFigure("Position", f"{found.place:,}", f"of {found.of:,}", note=note)


def _queue_time(one: PreflightResult) -> KeyFigure:
    starts = one.verdict == Verdict.STARTS.value
    label = "Usual queue time" if starts else "Expected queue time"
    found = one.expected_wait
    if found is None:
        return no_data(label, _NO_HISTORY)
    return KeyFigure(label, range_text(found), basis="p10–p90", note=f"p50 {duration(found.p50)}")


def range_text(found: QueueTimeRange | None) -> str:
    """Return a range of queue times as `1m – 9m`; empty without one."""
    return "" if found is None else f"{duration(found.p10)} – {duration(found.p90)}"


def _costs(one: PreflightResult) -> Iterable[KeyFigure]:
    if one.cost_per_hour is None:
        yield no_data("Cost per hour", "No price is known for these GPUs.")
        return
    yield KeyFigure("Cost per hour", money(one.cost_per_hour, one.currency, cents=True))
    if one.cost_per_run is not None and one.family is not None:
        note = f"median of {one.family.runs:,} run{'s' * (one.family.runs != 1)}"
        yield KeyFigure(
            "Cost per run", money(one.cost_per_run, one.currency, cents=True), note=note
        )
    else:
        yield no_data("Cost per run", _no_run(one))


def _no_run(one: PreflightResult) -> str:
    # The nearest reason first: a family is found by name before its runs are counted.
    if one.family is None:
        return "No workload of the last 30 days is called like it."
    if one.kind not in ENDING:
        return "It runs until it is stopped."
    return "No run like it ended in the last 30 days."


# ---------------------------------------------------------------- what it rests on


def _assumptions(one: PreflightResult) -> Iterable[str]:
    if one.expected_wait is not None and one.expected_wait.basis == "replay":
        yield "Queue time: what runs and is pending is replayed with durations from history."
        yield "Queue time: demand is drawn from earlier days; CPU and memory are never short."
    elif one.expected_wait is not None:
        yield (
            f"Queue time: pods of half to twice the size on {one.tier} that started in the last 30 "
            "days."
        )
    yield from _of_family(one.family)
    if one.position is not None and not one.position.queue:
        yield "Position: among pods that wait for GPUs of the same kind."
    yield from one.unchecked


def _of_family(family: FamilyHistory | None) -> Iterable[str]:
    if family is None:
        return
    if family.run_seconds is not None:
        lasted = duration(family.run_seconds)
        runs = f"{family.runs:,} run{'s' * (family.runs != 1)}"
        yield f"Run length: {lasted}, the median of {runs} of {family.name} in the last 30 days."
    use = family.use
    if use is None or use.memory_peak_mib is None:
        return
    days = f"{use.days} day{'s' * (use.days != 1)}"
    active = "" if use.p95_activity is None else f" and {percent(use.p95_activity)} activity (p95)"
    memory = mebibytes(use.memory_peak_mib)
    yield f"Measured use: {memory} of memory{active} per {use.gpu_model} on {days}, {family.name}."


# ---------------------------------------------------------------- quotas and alternatives


def _amount(quota: QuotaTouched, value: float) -> str:
    """Write an amount of a key: bytes as GiB, anything else as a number."""
    _, _, resource = quota.key.rpartition("/")
    resource = resource.removeprefix("requests.").removeprefix("limits.")
    if resource in ("memory", "ephemeral-storage", "storage"):
        return mebibytes(value / 2**20)
    return gpus_text(value)


def _quota_table(one: PreflightResult, id_: str, cluster: str, reading: QuerySession) -> Table:
    return Table(
        id=id_,
        title=f"Quotas and queues of {one.name}",
        columns=[
            Column("name", "Quota"),
            Column("key", "Key"),
            Column("needs", "Needs", Format.NUMBER),
            Column("left", "Left", Format.NUMBER),
            Column("limit", "Limit", Format.NUMBER),
            Column("result", "Result"),
        ],
        rows=[_quota(quota, cluster, reading) for quota in one.quotas],
        zone=reading.choice.zone,
        empty="No quota or queue counts it.",
        ordered=True,
        on_phone=("key", "needs", "left"),
    )


def _quota(quota: QuotaTouched, cluster: str, reading: QuerySession) -> TableRow:
    ref = QuotaRef(quota.source, quota.namespace, quota.name, quota.key, cluster)
    short = quota.needs - quota.left
    return TableRow(
        {
            "name": quota.name,
            "key": quota.key,
            "needs": _amount(quota, quota.needs),
            "left": _amount(quota, quota.left),
            "limit": _amount(quota, quota.limit),
            "result": "fits" if quota.fits else f"short by {_amount(quota, short)}",
        },
        {"key": key_href(ref, reading.query)},
        details={"name": quota.source},
    )


def _alternative_table(one: PreflightResult, id_: str, reading: QuerySession) -> Table:
    return Table(
        id=id_,
        title=f"Alternatives to {one.name}",
        columns=[
            Column("request", "Request per pod"),
            Column("tier", "Tier"),
            Column("starts", "Verdict"),
            Column("wait", "Queue time", hint="p10–p90, by replay or history", absent="no data"),
            Column("cost", "Cost per hour", Format.NUMBER, absent="no data"),
            Column("basis", "Basis"),
        ],
        rows=[_alternative(other, reading) for other in one.alternatives],
        zone=reading.choice.zone,
        empty="No other request is known to start.",
        ordered=True,
        on_phone=("request", "tier", "cost"),
    )


def _alternative(other: AlternativeRow, reading: QuerySession) -> TableRow:
    cost = other.cost_per_hour
    units = shown(other.units, Format.NUMBER, reading.choice.zone)
    labels = ", ".join(f"{key}={value}" for key, value in sorted(other.node_selector.items()))
    return TableRow(
        {
            "request": f"{units} × {other.resource}",
            "tier": other.tier,
            "starts": VERDICTS[other.verdict][0],
            # None, not empty text: the column then says that there is no data.
            "wait": range_text(other.expected_wait) or None,
            "cost": None if cost is None else money(cost, other.currency, cents=True),
            "basis": _BASES[other.basis],
        },
        {"tier": href("tier", reading.query, name=other.tier)},
        details={"request": labels, "tier": gpus_words(other.gpu_equivalents)},
    )

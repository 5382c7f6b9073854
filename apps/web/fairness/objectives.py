"""Queue-time objectives of tiers: a line, a figure and a table of what a selector returns."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from apps.accounts.domain.formats import whole_duration
from apps.clusters.domain.window import Window
from apps.fairness.domain.objectives import Burn
from apps.fairness.selectors import (
    OBJECTIVES,
    ObjectiveRow,
    closed_hour,
    queue_time_objectives,
)
from apps.web.components import formats
from apps.web.components.figure_row import KeyFigure, Tone
from apps.web.components.formats import Format, clock_text
from apps.web.components.page_query import href
from apps.web.components.tables import Column, Table, TableRow
from apps.web.query_session import QuerySession
from gpuportal.queries import BoundQuery


class ObjectiveLine(Struct, frozen=True):
    """How an objective stands, in a few words; `title` has all of it."""

    text: str
    title: str
    tone: Tone


def objectives_by_tier(reading: QuerySession) -> Mapping[str, ObjectiveRow]:
    """Return the objectives up to the last full hour, by tier."""
    # The hour that runs has too few pods yet for its burn rate to say much.
    rows = queue_time_objectives(closed_hour(reading.now), visibility=reading.visibility)
    return {row.tier: row for row in rows}


def objectives_query(reading: QuerySession) -> BoundQuery:
    """Return the query that `objectives_by_tier` begins with, to be read with others."""
    return OBJECTIVES.query(closed_hour(reading.now), None)


def objective_line(row: ObjectiveRow) -> ObjectiveLine:
    """Return `82 % within 30m`, with the target and the error budget on hover."""
    limit = whole_duration(row.p95_seconds)
    target = formats.percent(row.target_ratio)
    aim = f"Objective: {target} of the work within {limit}, over {row.days} days."
    if row.attainment_ratio is None:
        return ObjectiveLine(f"no work to hold against {limit}", aim, Tone.NONE)
    text = f"{formats.percent(row.attainment_ratio)} within {limit}"
    return ObjectiveLine(text, f"{aim} {_budget(row)}", tone_of(row))


def objectives_text(window: Window, tiers: Collection[str], reading: QuerySession) -> str:
    """Return how the objectives of these tiers stood in a window so far; empty without any.

    They are of all teams together: an objective is a tier's, not a team's.
    """
    at = min(window.end, closed_hour(reading.now))
    if at <= window.start:
        return ""
    rows = queue_time_objectives(at, since=window.start, visibility=reading.visibility)
    told = (f"{row.tier} {_attained(row)}" for row in rows if row.tier in tiers)
    return "; ".join(told)


def _attained(row: ObjectiveRow) -> str:
    text = objective_line(row).text
    if row.budget_left_ratio is None:
        return text
    least = "" if row.complete else " at most: pending work of a cluster is not known"
    return f"{text}, error budget left {_left(row)}{least}"


def _left(row: ObjectiveRow) -> str:
    left = row.budget_left_ratio
    return formats.NOTHING if left is None else formats.percent(left).replace("-", formats.MINUS)


def _budget(row: ObjectiveRow) -> str:
    pending = f", {row.missed_pending} of them pending" if row.missed_pending else ""
    least = "" if row.complete else " At least: pending work of a cluster is not known now."
    return f"{row.missed} of {row.total} missed{pending}; error budget left {_left(row)}.{least}"


def tone_of(row: ObjectiveRow) -> Tone:
    """Return how loud an objective is: missed, or about to be."""
    # A fast burn misses the objective soon: an alert after that would be too late.
    if row.met is False or row.burn == Burn.FAST:
        return Tone.DANGER
    return Tone.WARNING if row.burn else Tone.NONE


def objectives_figure(reading: QuerySession, tiers: Collection[str]) -> KeyFigure | None:
    """Return how many of these tiers meet their objective; None where none has one."""
    rows = [row for row in objectives_by_tier(reading).values() if row.tier in tiers]
    if not rows:
        return None
    known = [row for row in rows if row.attainment_ratio is not None]
    if not known:
        missing = "No work to hold against an objective yet."
        return KeyFigure("Queue objectives", formats.NOTHING, missing=missing)
    worst = min(known, key=lambda row: (row.attainment_ratio or 0.0, row.tier))
    met = sum(row.met is True for row in known)
    line = objective_line(worst)
    return KeyFigure(
        "Queue objectives",
        f"{met}/{len(known)}",
        "tiers met",
        exact=f"{worst.tier}: {line.title}",
        href=href("tier", reading.query, name=worst.tier) or "",
        # The loudest of all tiers, not that of the worst: another may burn its budget faster.
        tone=max((tone_of(row) for row in known), key=list(Tone).index),
    )


def objective_table(row: ObjectiveRow, reading: QuerySession) -> Table:
    """Return the objective of a tier in numbers, with its burn rates."""
    zone = reading.choice.zone

    def ratio(value: float | None) -> str:
        # A true minus: files quote what begins like a formula.
        written = "" if value is None else formats.percent(value, digits=1).replace("-", "−")
        return written or formats.NOTHING

    def rate(value: float | None) -> str:
        return formats.NOTHING if value is None else f"{value:.1f}×"

    rates = (row.burn_rate_1h, row.burn_rate_6h, row.burn_rate_3d)
    pairs: Sequence[tuple[str, str]] = (
        ("Objective", f"{ratio(row.target_ratio)} within {whole_duration(row.p95_seconds)}"),
        (f"Attainment, {row.days} days", ratio(row.attainment_ratio)),
        ("Missed", f"{row.missed:,} of {row.total:,}"),
        ("Missed, pending", f"{row.missed_pending:,}" + ("" if row.complete else " at least")),
        ("Error budget left", ratio(row.budget_left_ratio)),
        ("Burn rate 1 h / 6 h / 3 d", " / ".join(rate(one) for one in rates)),
        *(
            [("Estimated until", clock_text(row.estimated_until, zone))]
            if row.estimated_until
            else []
        ),
    )
    return Table(
        id="objective",
        title="Queue-time objective",
        columns=[
            Column("figure", "Figure"),
            Column("value", "Value", Format.TEXT, hint="all teams together, to the last full hour"),
        ],
        rows=[TableRow({"figure": label, "value": text}) for label, text in pairs],
        zone=zone,
        empty="No objective.",
        ordered=True,
    )

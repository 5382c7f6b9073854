"""The period before, which costs are held against, and why there may be none."""

from collections.abc import Sequence

from msgspec import Struct

from apps.clusters.domain.window import Window
from apps.costs.selectors import CostRow, not_priced
from apps.usage import selectors as usage
from apps.usage.domain.usage_query import Filters
from apps.web.components import formats, window_picker
from apps.web.components.page_query import HOUR
from apps.web.query_session import QuerySession

# Of the period's hours: sums of money are smaller by what they lack, unlike averages.
_ENOUGH = 0.95


class PreviousCosts(Struct, frozen=True):
    """The rows of the period before; `problem` says why there are none although asked for."""

    words: str = ""
    problem: str = ""
    rows: Sequence[CostRow] | None = None
    window: Window | None = None


def window_before(reading: QuerySession) -> tuple[Window | None, PreviousCosts]:
    """Return the window to compare with, and how it is called; None where that makes no sense.

    It is refused where hours of it lack facts or prices. Two queries, none without a comparison.
    """
    if not reading.compares:
        return None, PreviousCosts()
    window, words = (
        window_picker.before(reading.choice),
        window_picker.before_words(reading.choice),
    )
    problem = comparison_problem(window, words, reading, reading.filters)
    return None if problem else window, PreviousCosts(words, problem)


def comparison_problem(window: Window, words: str, reading: QuerySession, filters: Filters) -> str:
    """Say why costs cannot be compared with those of a window; empty where they can.

    Each cluster has to have nearly all of its hours, with facts and prices. Two queries, and those
    of `freshness` where they do not.
    """
    sees = reading.visibility
    there, _ = usage.collected_hours(window, filters=filters, visibility=sees)
    unpriced = {
        one.cluster: one.hours for one in not_priced(window, filters=filters, visibility=sees)
    }
    known = {name: count - unpriced.get(name, 0) for name, count in there.items()}
    every = round((window.end - window.start) / HOUR)
    name = min(known, key=lambda one: (known[one], one), default="")
    # The cluster that lacks most decides: sums of all would hide that one was away.
    least = known.get(name, 0)
    if least >= _ENOUGH * every:
        return ""
    # Named only where clusters differ.
    of = f" on {name}" if len(set(known.values())) > 1 else ""
    what = "data and were priced" if unpriced.get(name) else "data"
    said = f"No comparison: only {least} of {every} hours of {words}{of} have {what}."
    first = usage.freshness(window, filters=filters, visibility=sees).first_hour
    if first is None or first <= window.start:
        return said
    return f"{said} Data starts {formats.day_text(first, reading.choice.zone)}."


def compared_words(before: PreviousCosts) -> str:
    """Say what the figures are held against; empty without a comparison."""
    return f"Compared with {before.words}." if before.rows is not None else before.problem

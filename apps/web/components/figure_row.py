"""The row of figures at the head of a page: number first, then what it is compared with.

    row = figure_row(
        KeyFigure("Allocated", "85", "of 96 GPUs", exact="85.25 GPUs", basis="now", href=tier_href),
        KeyFigure("Utilization", "64.6 %", change=PeriodChange("−2 pp", Verdict.WORSE)),
        KeyFigure("Pending", "15", "workloads", note="oldest 8h 13m", tone=Tone.WARNING),
        no_data("Unused", "No price before 1 Nov"),
    )

    {% include "components/_figure_row.html" with row=row %}

Values come formatted (see `formats`); `exact` is the same in full, shown on hover. `href` leads to
the page behind the figure or to its explanation. Six figures at most: what needs more is a table.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from apps.web.components.formats import unit_words

MOST = 6
NOTE_WORDS = 6


class Tone(StrEnum):
    """How loud a figure is; the word says which edge it has."""

    NONE = ""
    GOOD = "good"
    WARNING = "warning"
    DANGER = "danger"


class Verdict(StrEnum):
    """Whether a change is for the better; an amount that just moved is neutral."""

    BETTER = "better"
    WORSE = "worse"
    NEUTRAL = "neutral"


class PeriodChange(Struct, frozen=True):
    """The comparison with another period: `+4 pp`; `than` says which one, on hover."""

    text: str
    verdict: Verdict = Verdict.NEUTRAL
    than: str = ""


class KeyFigure(Struct, frozen=True):
    """One figure: `of` is its unit or whole, `basis` says `now` or `average`, `note` is short.

    `missing` is the reason why there is no data; the value is then not shown. A figure with an
    `id` can be swapped alone, by `components/_key_figure.html`.
    """

    label: str
    value: str
    of: str = ""
    exact: str = ""
    change: PeriodChange | None = None
    href: str = ""
    note: str = ""
    basis: str = ""
    tone: Tone = Tone.NONE
    missing: str = ""
    id: str = ""

    @property
    def unit(self) -> str:
        """What is said after the value: `GPUs`, of one `GPU`; a whole stays as it is."""
        return self.of if self.of.startswith("of ") else unit_words(self.value, self.of)

    @property
    def shown_note(self) -> str:
        """The note's first six words; names from a cluster may make it longer."""
        words = self.note.split(" ")
        return self.note if len(words) <= NOTE_WORDS else " ".join(words[:NOTE_WORDS]) + " …"


class FigureRow(Struct, frozen=True):
    """The figures in order; `name` is for screen readers."""

    figures: Sequence[KeyFigure]
    name: str = "Key figures"


def figure_row(*figures: KeyFigure, name: str = "Key figures") -> FigureRow:
    """Return the row of these figures. Raises ValueError for more than six."""
    if len(figures) > MOST:
        raise ValueError(f"a row has {MOST} figures at most, not {len(figures)}")
    return FigureRow(figures, name)


def no_data(label: str, reason: str, *, href: str = "", note: str = "") -> KeyFigure:
    """Return a figure of which there is no data: neither zero nor unknown to the reader alone."""
    return KeyFigure(label, "", href=href, note=note, missing=reason)

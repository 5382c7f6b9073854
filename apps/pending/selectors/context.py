"""What all reads of one page have in common, read once: whose namespaces are, how fresh it is."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from apps.clusters.domain.tiers import UNASSIGNED
from apps.clusters.domain.window import Window
from apps.clusters.models import Namespace
from apps.clusters.selectors import TeamSpan, team_spans
from apps.pending.selectors.freshness import Freshness, freshness

INSTANT = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace of a cluster, and whether that is still active."""

    cluster: str
    name: str
    active: bool


@dataclass(frozen=True, slots=True)
class Owned:
    """A namespace and whose it is at a moment."""

    cluster: str
    name: str
    team_id: int
    team: str


class Context:
    """Namespaces and whose they were throughout a window; give one to all selectors of a page.

    `spaces` are by id, `spans` by name, as `team_spans` gives them. Three queries when made.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        rows = Namespace.objects.order_by("pk")
        columns = ("pk", "cluster__name", "name", "cluster__active")
        self.spaces = {pk: Space(*values) for pk, *values in rows.values_list(*columns)}
        self.spans = team_spans(window, {space.name for space in self.spaces.values()})
        self._owned: dict[datetime, dict[int, Owned]] = {}
        self._fresh: dict[datetime, dict[int, Freshness]] = {}

    @classmethod
    def at(cls, at: datetime) -> "Context":
        """Return the context of one moment."""
        return cls(Window(at, at + INSTANT))

    @classmethod
    def over(cls, window: Window, *, now: datetime) -> "Context":
        """Return the context of a page that shows a window and what is now."""
        return cls(Window(min(window.start, now), max(window.end, now + INSTANT)))

    def owned(self, at: datetime) -> dict[int, Owned]:
        """Return by id the namespaces of active clusters as they were owned at a moment.

        Raises ValueError for a moment outside of the window.
        """
        if not self.window.start <= at < self.window.end:
            raise ValueError(f"{at} is not within {self.window}")
        if at not in self._owned:
            self._owned[at] = self._owned_at(at)
        return self._owned[at]

    def _owned_at(self, at: datetime) -> dict[int, Owned]:
        holding = {
            name: next(span for span in spans if span.start <= at < span.end)
            for name, spans in self.spans.items()
        }
        return {
            pk: _owned(space, holding[space.name])
            for pk, space in self.spaces.items()
            if space.active
        }

    def freshness(self, at: datetime) -> dict[int, Freshness]:
        """Return how fresh waiting is, as `freshness` does; one query for each moment."""
        if at not in self._fresh:
            self._fresh[at] = freshness(at)
        return self._fresh[at]


def _owned(space: Space, span: TeamSpan) -> Owned:
    return Owned(space.cluster, space.name, span.team_id, span.team or UNASSIGNED)

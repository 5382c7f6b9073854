"""Hours in which a pod held GPUs and did next to nothing: at its start, its end and in between.

Everything is told of one pod and one local day, so that a day is made anew from its own hours
alone. What reaches over midnight is told too low, never too high.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

QUIET_BELOW = 0.1
"""An hour is quiet when its mean activity is below this fraction."""
HOURS_OF_DAY = 25
"""A local day has this many hours at most: the one on which clocks are set back."""


class PodHourAmounts(NamedTuple):
    """A pod's hour in nano-GPU-hours; `place` is the number of the hour in its local day."""

    place: int
    not_running: int
    unmeasured: int
    idle: int
    underused: int
    busy: int

    @property
    def waste(self) -> int:
        return self.not_running + self.idle + self.underused

    @property
    def is_active(self) -> bool:
        """Whether it is known to have worked."""
        return self.busy > QUIET_BELOW * (self.idle + self.underused + self.busy)

    @property
    def is_quiet(self) -> bool:
        """Whether it was measured throughout and did next to nothing, or did not run yet."""
        return not self.unmeasured and not self.is_active


@dataclass(slots=True)
class QuietTime:
    """Waste of quiet hours in nano-GPU-hours.

    `head` lies before a pod's first active hour, `tail` after its last one. `after` has by hour
    of the day what a stop after one whole quiet hour would have freed, `stopped` how many pods it
    would have stopped.
    """

    head: int = 0
    tail: int = 0
    after: list[int] = field(default_factory=lambda: [0] * HOURS_OF_DAY)
    stopped: int = 0

    def add(self, hours: Sequence[PodHourAmounts], *, begins: bool, ends: bool) -> None:
        """Add one pod's hours of the day, in order; whether it was bound or ended on that day."""
        active = [number for number, hour in enumerate(hours) if hour.is_active]
        if active and begins:
            self.head += sum(hour.waste for hour in hours[: active[0]] if hour.is_quiet)
        if active and ends:
            self.tail += sum(hour.waste for hour in hours[active[-1] + 1 :] if hour.is_quiet)
        freed = [
            hour
            for before, hour in pairwise(hours)
            if hour.place == before.place + 1 and _is_idle(before) and _is_idle(hour)
        ]
        for hour in freed:
            self.after[min(hour.place, HOURS_OF_DAY - 1)] += hour.idle + hour.underused
        self.stopped += bool(freed)


def _is_idle(hour: PodHourAmounts) -> bool:
    return hour.is_quiet and not hour.not_running

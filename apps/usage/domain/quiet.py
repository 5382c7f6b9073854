"""Hours in which a pod held GPUs and did next to nothing: at its start, its end and in between.

Everything is told of one pod and one local day, so that a day is made anew from its own hours
alone. What reaches over midnight is told too low, never too high.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

QUIET_BELOW = 0.1
"""An hour is quiet when its mean activity is below this fraction."""
GRACE_HOURS = 1.0
"""How long something is idle before it is stopped."""
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
    def ran(self) -> int:
        """What was measured; of a quiet hour all but what did not run."""
        return self.idle + self.underused + self.busy

    @property
    def held(self) -> int:
        return self.not_running + self.unmeasured + self.ran

    @property
    def waste(self) -> int:
        return self.not_running + self.idle + self.underused

    @property
    def is_active(self) -> bool:
        """Whether it is known to have worked."""
        return self.busy > QUIET_BELOW * self.ran

    @property
    def is_quiet(self) -> bool:
        """Whether it was measured throughout and did next to nothing, or did not run yet."""
        return not self.unmeasured and not self.is_active


@dataclass(slots=True)
class QuietTime:
    """Waste of quiet hours in nano-GPU-hours.

    `head` lies before a pod's first active hour, `tail` after its last one. `after` has by hour
    of the day what a stop after GRACE_HOURS would have freed, `stopped` how many pods it
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
        self.stopped += self._stop(hours)

    def _stop(self, hours: Sequence[PodHourAmounts]) -> bool:
        """Add what a stop after an idle hour would have freed; say whether it would have come.

        How long a pod was held in an hour is told by its fullest one, which is a whole hour where
        it was there before and after it. Without such an hour nothing is said.
        """
        places = {hour.place for hour in hours}
        if not any({place - 1, place + 1} <= places for place in places):
            return False
        whole = max(hour.held for hour in hours)
        idle, last, stops = 0.0, -1, False
        for hour in hours:
            if not hour.is_quiet or not hour.ran:
                idle = 0.0
                continue
            if hour.place != last + 1:
                idle = 0.0
            last = hour.place
            lasted = hour.ran / whole
            after = min(1.0, max(0.0, (idle + lasted - GRACE_HOURS) / lasted))
            idle += lasted
            freed = int((hour.idle + hour.underused) * after)
            self.after[min(hour.place, HOURS_OF_DAY - 1)] += freed
            stops = stops or freed > 0
        return stops

"""How active devices were in half-hour slots, and the hours in which a pod's were quiet.

Twenty classes of five points each, one for values under 1 % (counters of idle GPUs flicker) and one
for exactly nothing. A percentile is the upper edge of its class, so it is at most five points too
high and never too low (docs/definitions.md#ledger).
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from msgspec import Struct, field

CLASSES = 22
LETTERS = "0123456789abcdefghijkl"
JOINT = "/"
ALMOST_NOTHING = 0.01
_FIRST_STEP = 2
_STEPS = 20
# What a sum of samples misses a class's edge by does not put it into the next class.
_HAIR = 1e-9

QUIET_BELOW = 0.1
"""An hour is quiet when its mean activity is below this fraction."""
GRACE_HOURS = 1.0
"""How long something is idle before it is stopped."""
HOURS_OF_DAY = 25
"""A local day has this many hours at most: the one on which clocks are set back."""


def class_of(activity: float) -> int:
    """Return the class of a mean activity 0..1; its upper edge belongs to a class."""
    if activity >= ALMOST_NOTHING:
        # Means may exceed 1 by rounding: they belong to the last class.
        return min(CLASSES - 1, _FIRST_STEP - 1 + ceil(activity * _STEPS - _HAIR))
    return 1 if activity > 0.0 else 0


def upper_edge(class_: int) -> float:
    """Return the most that a class holds, 0..1."""
    return (0.0, ALMOST_NOTHING)[class_] if class_ < _FIRST_STEP else (class_ - 1) / _STEPS


def lower_edge(class_: int) -> float:
    """Return the least that a class holds, 0..1."""
    if class_ <= _FIRST_STEP:
        return ALMOST_NOTHING if class_ == _FIRST_STEP else 0.0
    return (class_ - _FIRST_STEP) / _STEPS


def written(activities: Iterable[float | None]) -> str:
    """Return one slot's devices as letters, in order; those without metrics are left out."""
    return "".join([LETTERS[class_of(one)] for one in activities if one is not None])


def joined(slots: Iterable[str]) -> str:
    """Return the slots of an hour as one text; those in which nothing was measured are left out."""
    return JOINT.join([slot for slot in slots if slot])


def counted(texts: Iterable[str]) -> list[int]:
    """Return how many devices and slots there were of each class."""
    whole = "".join(texts)
    return [whole.count(letter) for letter in LETTERS]


def percentile(counts: Sequence[int], share: float) -> float | None:
    """Return the activity that `share` of all slots do not exceed; None without any."""
    wanted = ceil(sum(counts) * share - _HAIR)
    passed = 0
    for class_, count in enumerate(counts):
        passed += count
        if count and passed >= wanted:
            return upper_edge(class_)
    return None


def summed(rows: Iterable[Sequence[int]]) -> list[int]:
    """Return histograms added up."""
    total = [0] * CLASSES
    for row in rows:
        total = [a + b for a, b in zip(total, row, strict=True)]
    return total


# ---------------------------------------------------------------- device by device


def highest(slots: Iterable[str], devices: int) -> str:
    """Return each device's highest class over slots, as letters; empty where none tells.

    Only slots in which all devices were seen can be told device by device: there their order,
    that of their UUIDs, is always the same. Of a slot that misses one it is not known which: where
    more were active in it than are known to have been, one of the others was, and none tells.
    """
    seen = list(slots)
    whole = [slot for slot in seen if len(slot) == devices]
    letters = "".join(map(max, zip(*whole, strict=True)))
    known = _active(letters)
    # A slot that misses a device may hide the only one that worked.
    return "" if any(_active(slot) > known for slot in seen if len(slot) != devices) else letters


def _active(letters: str) -> int:
    """Return how many devices did more than flicker."""
    return sum(letter >= LETTERS[_FIRST_STEP] for letter in letters)


def most_active_first(pods: Mapping[str, str]) -> list[int]:
    """Return the highest class of each rank of device over pods: of the most active, the next, …

    Which of its devices a pod leaves idle differs from pod to pod, how many does not: what stands
    at a rank is the most that a device of this rank did in any pod. Empty where pods have
    different numbers of devices.
    """
    if len({len(letters) for letters in pods.values()}) != 1:
        return []
    ranked = [sorted(letters, reverse=True) for letters in pods.values()]
    return [LETTERS.index(max(rank)) for rank in zip(*ranked, strict=True)]


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


class QuietTime(Struct):
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
            # An hour without facts between two: whether it was idle then is not known.
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

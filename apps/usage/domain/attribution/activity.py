"""How active devices were in half-hour slots, as letters: one device and slot is one letter.

Twenty classes of five points each, one for what lies under 1 % (counters of idle cards flicker)
and one for exactly nothing. A percentile is told as the upper edge of its class, so it is at most
five points too high and never too low (docs/definitions.md#ledger).
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

CLASSES = 22
LETTERS = "0123456789abcdefghijkl"
JOINT = "/"
ALMOST_NOTHING = 0.01
_FIRST_STEP = 2
_STEPS = 20
# What a sum of samples misses a class's edge by does not put it into the next class.
_HAIR = 1e-9


def class_of(activity: float) -> int:
    """Return the class of a mean activity 0..1; its upper edge belongs to a class."""
    if activity >= ALMOST_NOTHING:
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
    """Return one slot's devices as letters, in the order given; unmeasured ones are left out."""
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

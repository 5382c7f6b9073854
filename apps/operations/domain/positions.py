"""Numbers that keep a catalog's order, moving as few rows as possible when it is edited.

A position is part of a rule, so renumbering would close and reopen rules that nobody changed.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

STEP = 65_536
# Below the positions of built-in tiers and the largest integer of a database column.
HIGHEST = 1_900_000_000


def positions(names: Sequence[str], held: Mapping[str, int]) -> dict[str, int]:
    """Return increasing positions for `names`; as many as possible keep the one they have.

    When no room is left between two neighbours, all are numbered anew.
    """
    fixed = _longest_increasing([(name, held[name]) for name in names if name in held])
    numbered: dict[str, int] = {}
    low = -1
    for run, end in _runs(names, fixed):
        low = max(low, 0) if end is None else low
        high = low + STEP * (len(run) + 1) if end is None else fixed[end]
        if high - low <= len(run) or high > HIGHEST:
            return _anew(names)
        gap = high - low
        for place, name in enumerate(run, start=1):
            numbered[name] = low + gap * place // (len(run) + 1)
        if end is not None:
            low = numbered[end] = high
    return numbered


def _anew(names: Sequence[str]) -> dict[str, int]:
    step = min(STEP, HIGHEST // (len(names) + 1))
    return {name: step * place for place, name in enumerate(names, start=1)}


def _runs(names: Sequence[str], fixed: Mapping[str, int]) -> Iterator[tuple[list[str], str | None]]:
    """Yield names without a place of their own, with the fixed name after them (None: the end)."""
    run: list[str] = []
    for name in names:
        if name in fixed:
            yield run, name
            run = []
        else:
            run.append(name)
    if run:
        yield run, None


def _longest_increasing(placed: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Return the longest part of `placed`, in its order, whose positions increase."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for index, (_, position) in enumerate(placed):
        length = bisect_left(tails, position)
        before.append(ends[length - 1] if length else None)
        tails[length : length + 1] = [position]
        ends[length : length + 1] = [index]
    kept: dict[str, int] = {}
    at = ends[-1] if ends else None
    while at is not None:
        kept[placed[at][0]] = placed[at][1]
        at = before[at]
    return kept

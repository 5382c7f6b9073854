"""Products of parameters and drawn examples of which each run takes a part, check-full more."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import hypothesis
import pytest

_USUAL_EXAMPLES = 50  # of the profiles of each run: see conftest


def thinned(*axes: Iterable[Any], together: int = 1) -> list[Any]:
    """Return every combination as cases for `parametrize`; most are for check-full alone.

    Each value stands in a case of every run; with `together=2` each pair of values does.
    """
    values = [list(axis) for axis in axes]
    cases = list(product(*(range(len(axis)) for axis in values)))
    parts = {case: set(combinations(enumerate(case), together)) for case in cases}
    missing = set().union(*parts.values())
    chosen = set()
    while missing:
        # The case that adds most: few are enough.
        case = max(cases, key=lambda one: len(parts[one] & missing))
        chosen.add(case)
        missing -= parts[case]
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(values, case, strict=True)),
            marks=() if case in chosen else pytest.mark.exhaustive,
        )
        for case in cases
    ]


def examples(few: int, **others: Any) -> hypothesis.settings:
    """Return settings for a property whose examples are dear: each run takes so many.

    check-full takes more, as much as it does of the other properties.
    """
    part = hypothesis.settings().max_examples / _USUAL_EXAMPLES
    return hypothesis.settings(max_examples=max(few, round(few * part)), **others)

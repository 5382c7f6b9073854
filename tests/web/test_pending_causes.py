"""Causes as pages show them: every one has words, a class, and a colour that is told apart."""

import itertools
import re
from pathlib import Path

import pytest

from apps.pending.domain.diagnosis import FROM_SERIES, OF_DEMAND, Cause
from apps.web.pending.history import ByClass
from apps.web.pending.pending_table import (
    CLASSES,
    MEANINGS,
    MISCONFIGURED,
    OTHER,
    SERIES,
    badge,
    class_of,
    of_asker,
)
from tests.web.test_palette import (
    THEMES,
    VISIONS,
    Colour,
    clipped,
    contrast,
    distance,
    linear,
    times,
    token,
)

SHEET = (Path(__file__).parents[2] / "static" / "css" / "pending.css").read_text()


def colour(name: str, theme: str) -> Colour:
    """Return a token of the style sheet as linear RGB."""
    found = re.search(rf"{name}: light-dark\(#(\w{{6}}), #(\w{{6}})\);", SHEET)
    assert found is not None, name
    text = found[THEMES.index(theme) + 1]
    red, green, blue = (linear(int(text[i : i + 2], 16) / 255) for i in (0, 2, 4))
    return red, green, blue


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_words_and_a_class(cause: Cause) -> None:
    assert MEANINGS[cause]
    assert badge(cause, "x").meaning == MEANINGS[cause]
    assert class_of(cause) in CLASSES


def test_causes_of_demand_have_a_class_each_and_the_others_are_to_fix() -> None:
    own = {class_of(cause) for cause in OF_DEMAND}
    assert {class_of(cause) for cause in FROM_SERIES} == {SERIES}
    assert len(own) == len(OF_DEMAND - FROM_SERIES) + 1
    rest = {class_of(cause) for cause in Cause if cause not in OF_DEMAND}
    assert rest == {MISCONFIGURED, OTHER}
    assert not own & rest


def test_a_cause_of_another_version_is_shown_as_it_came() -> None:
    shown = badge("weather", "rain")
    assert (shown.cause, shown.meaning, shown.css) == ("weather", "", OTHER.css)
    assert class_of("weather") is OTHER


def test_starting_is_not_held_against_who_asks() -> None:
    assert not of_asker("starting")
    assert of_asker("taint")
    assert not of_asker("capacity")


def test_sums_of_a_day_have_a_field_for_each_class() -> None:
    assert list(ByClass.__struct_fields__) == [cls.key for cls in CLASSES]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_classes_look_alike_to_anybody(theme: str, vision: str) -> None:
    seen = {c.key: clipped(times(VISIONS[vision], colour(c.token, theme))) for c in CLASSES}
    pairs = itertools.combinations(seen.items(), 2)
    near = {(a, b): distance(one, other) for (a, one), (b, other) in pairs}
    assert {pair: d for pair, d in near.items() if d < 10} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_neighbours_in_a_bar_differ_by_pattern_too(theme: str) -> None:
    for one, other in itertools.pairwise(CLASSES):
        assert one.pattern != other.pattern
    for cls in CLASSES:
        if cls.pattern:
            assert contrast(colour(cls.token, theme), token("--portal-card", theme)) >= 3

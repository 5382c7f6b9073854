"""The colours of the ledger's classes, as the style sheet gives them, in both themes."""

import itertools
import re
from pathlib import Path

import pytest

from apps.web.components.tables import BUSY, CAPACITY_CLASSES, IDLE, UNALLOCATED, UNMEASURED

TOKENS = (Path(__file__).parents[2] / "static" / "css" / "tokens.css").read_text()
DRAWINGS = (Path(__file__).parents[2] / "static" / "css" / "heat_maps.css").read_text()
THEMES = ("light", "dark")
Colour = tuple[float, float, float]

# Machado, Oliveira and Fernandes 2009: what is seen of linear RGB without one kind of cone.
VISIONS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# Oklab: linear RGB to cone responses, and their cube roots to lightness and two opponents.
CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
OPPONENTS = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def token(name: str, theme: str) -> Colour:
    """Return a token as linear RGB."""
    found = re.search(rf"{name}: light-dark\(#(\w{{6}}), #(\w{{6}})\);", TOKENS)
    assert found is not None, name
    text = found[THEMES.index(theme) + 1]
    red, green, blue = (linear(int(text[i : i + 2], 16) / 255) for i in (0, 2, 4))
    return red, green, blue


def linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def times(matrix: tuple[Colour, ...], colour: Colour) -> Colour:
    a, b, c = (sum(m * v for m, v in zip(row, colour, strict=True)) for row in matrix)
    return a, b, c


def clipped(colour: Colour) -> Colour:
    red, green, blue = (min(1.0, max(0.0, v)) for v in colour)
    return red, green, blue


def oklab(colour: Colour) -> Colour:
    one, two, three = (max(v, 0) ** (1 / 3) for v in times(CONES, colour))
    return times(OPPONENTS, (one, two, three))


def distance(one: Colour, other: Colour) -> float:
    """Return the distance of two colours in Oklab, in hundredths."""
    pairs = zip(oklab(one), oklab(other), strict=True)
    return float(100 * sum((a - b) ** 2 for a, b in pairs) ** 0.5)


def contrast(one: Colour, other: Colour) -> float:
    """Return the contrast ratio of WCAG."""
    weights = (0.2126, 0.7152, 0.0722)
    low, high = sorted(
        sum(w * v for w, v in zip(weights, c, strict=True)) + 0.05 for c in (one, other)
    )
    return high / low


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_no_two_classes_look_alike_to_anybody(theme: str, vision: str) -> None:
    seen = {c.key: clipped(times(VISIONS[vision], token(c.token, theme))) for c in CAPACITY_CLASSES}
    near = {
        (a, b): distance(one, other)
        for (a, one), (b, other) in itertools.combinations(seen.items(), 2)
    }
    assert {pair: d for pair, d in near.items() if d < 10} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_the_busy_stands_out_before_the_idle_and_the_unallocated_recedes(theme: str) -> None:
    card = token("--portal-card", theme)
    weight = {c.key: contrast(token(c.token, theme), card) for c in CAPACITY_CLASSES}
    assert weight[BUSY.key] > 1.3 * weight[IDLE.key]
    assert weight[UNALLOCATED.key] == min(weight.values()) < 1.7


@pytest.mark.parametrize("theme", THEMES)
def test_lines_of_a_hatch_are_seen_on_a_gpu(theme: str) -> None:
    assert contrast(token(UNMEASURED.token, theme), token("--portal-card", theme)) >= 3


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", ["ground", "card", "raised", "hover", "field"])
@pytest.mark.parametrize("text", ["text", "subtle", "link"])
def test_text_can_be_read_on_every_ground(text: str, ground: str, theme: str) -> None:
    assert contrast(token(f"--portal-{text}", theme), token(f"--portal-{ground}", theme)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        ("on-link", "link"),
        ("text", "warning-ground"),
        ("warning-edge", "card"),
        ("text", "danger-ground"),
        ("danger-edge", "card"),
        ("good-edge", "card"),
        ("chart-text", "card"),
        ("text", "code-ground"),
    ],
)
def test_words_of_a_state_can_be_read(text: str, ground: str, theme: str) -> None:
    assert contrast(token(f"--portal-{text}", theme), token(f"--portal-{ground}", theme)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_the_edge_of_a_field_is_seen(theme: str) -> None:
    edge = token("--portal-field-border", theme)
    assert contrast(edge, token("--portal-card", theme)) >= 3
    assert contrast(edge, token("--portal-ground", theme)) >= 3


BESIDE = ("allocated", "demand", "borrowed", "unmet")
"""Amounts that stand together in charts of fairness, on the ground of the unallocated."""


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_amounts_beside_each_other_look_different_to_anybody(theme: str, vision: str) -> None:
    names = (*BESIDE, "unallocated")
    seen = {
        name: clipped(times(VISIONS[vision], token(f"--ledger-{name}", theme))) for name in names
    }
    near = {
        (a, b): distance(one, other)
        for (a, one), (b, other) in itertools.combinations(seen.items(), 2)
    }
    assert {pair: d for pair, d in near.items() if d < 10} == {}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", BESIDE)
def test_a_hue_means_one_thing_and_is_seen_on_a_panel(theme: str, name: str) -> None:
    colour = token(f"--ledger-{name}", theme)
    assert contrast(colour, token("--portal-card", theme)) >= 2.9
    near = {c.key: distance(colour, token(c.token, theme)) for c in CAPACITY_CLASSES}
    assert {key: d for key, d in near.items() if d < 9} == {}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("hue", ["allocated-cell", "borrowed"])
def test_text_is_read_on_the_strongest_cell_of_a_heat_map(theme: str, hue: str) -> None:
    level = re.search(r"^\.heat-10 \{\s+--heat: (\d+)%", DRAWINGS, flags=re.MULTILINE)
    assert level is not None
    part = int(level[1]) / 100
    cell = mixed(coded(f"--ledger-{hue}", theme), coded("--portal-hover", theme), part)
    assert contrast(cell, token("--portal-text", theme)) >= 4.5


def coded(name: str, theme: str) -> Colour:
    """Return a token as it is written, 0..1, which is how the style sheet mixes colours."""
    red, green, blue = (
        12.92 * v if v <= 0.0031308 else 1.055 * v ** (1 / 2.4) - 0.055 for v in token(name, theme)
    )
    return red, green, blue


def mixed(one: Colour, other: Colour, part: float) -> Colour:
    red, green, blue = (linear(part * a + (1 - part) * b) for a, b in zip(one, other, strict=True))
    return red, green, blue


GROUPS = [f"--ledger-group-{name}" for name in (*range(1, 7), "other")]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_teams_are_neutral_and_told_apart_by_anybody(theme: str, vision: str) -> None:
    colours = {name: token(name, theme) for name in GROUPS}
    assert all(max(oklab(c)[1] ** 2, oklab(c)[2] ** 2) < 0.04**2 for c in colours.values())
    seen = {name: clipped(times(VISIONS[vision], colour)) for name, colour in colours.items()}
    near = {
        (a, b): distance(one, other)
        for (a, one), (b, other) in itertools.combinations(seen.items(), 2)
    }
    assert {pair: d for pair, d in near.items() if d < 10} == {}
    card = token("--portal-card", theme)
    assert min(contrast(colour, card) for colour in colours.values()) > 1.4

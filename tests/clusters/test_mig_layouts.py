"""MIG layouts against the placements and combinations that NVIDIA publishes."""

from itertools import combinations_with_replacement

import pytest

from apps.clusters.domain.devices.mig import PARTS, MigModel, fewest_gpus, part_of
from apps.clusters.domain.devices.mig_layouts import fits, fullest_layouts, layouts, stranded

A100, A30 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A30"
# MIG user guide, "Supported MIG profiles": A100 without profiles of double memory, from the left.
PUBLISHED_A100 = [
    "7g.40gb",
    "4g.20gb 3g.20gb",
    "4g.20gb 2g.10gb 1g.5gb",
    "4g.20gb 1g.5gb 1g.5gb 1g.5gb",
    "3g.20gb 3g.20gb",
    "3g.20gb 2g.10gb 2g.10gb",
    "3g.20gb 2g.10gb 1g.5gb 1g.5gb",
    "3g.20gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb",
    "2g.10gb 2g.10gb 2g.10gb 1g.5gb",
    "2g.10gb 2g.10gb 1g.5gb 1g.5gb 1g.5gb",
    "2g.10gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb",
    "1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb",
]
PUBLISHED_A30 = [
    "4g.24gb",
    "2g.12gb 2g.12gb",
    "2g.12gb 1g.6gb 1g.6gb",
    "1g.6gb 1g.6gb 1g.6gb 1g.6gb",
]


def part_named(name: str) -> MigModel:
    found = part_of(name)
    assert found is not None
    return found


def as_text(layout: dict[str, int]) -> str:
    return " ".join(name for name, n in sorted(layout.items(), reverse=True) for _ in range(n))


def test_the_fullest_layouts_are_those_published() -> None:
    plain = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
    a100 = fullest_layouts(part_named(A100), plain)
    assert sorted(map(as_text, a100)) == sorted(PUBLISHED_A100)
    a30 = part_named(A30)
    assert sorted(map(as_text, fullest_layouts(a30, a30.profiles))) == sorted(PUBLISHED_A30)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_layouts_are_all_sets_that_can_be_placed_and_each_fits_on_a_gpu(part: MigModel) -> None:
    found = {frozenset(layout.items()) for layout in layouts(part)}
    assert len(found) == sum(1 for _ in layouts(part))
    most = max(cut.most for cut in part.profiles.values())
    tried = 0
    for count in range(most + 2):
        for chosen in combinations_with_replacement(part.profiles, count):
            layout = {name: chosen.count(name) for name in chosen}
            assert (frozenset(layout.items()) in found) is fits(layout, part), layout
            tried += 1
    assert tried > len(found)
    for layout in map(dict, found):
        assert stranded(layout, part) >= 0
        assert not layout or fewest_gpus(layout, part.name) == 1


@pytest.mark.parametrize(
    ("layout", "is_valid"),
    [
        ({}, True),
        ({"3g.20gb": 2}, True),
        ({"3g.20gb": 2, "1g.5gb": 1}, False),
        ({"4g.20gb": 1, "3g.20gb": 1}, True),
        ({"4g.20gb": 2}, False),
        ({"1g.10gb": 4}, True),
        ({"1g.10gb": 4, "1g.5gb": 1}, False),
        ({"2g.10gb": 3, "1g.10gb": 1}, True),
        ({"2g.10gb": 4}, False),
        ({"1g.99gb": 1}, False),
    ],
)
def test_examples(layout: dict[str, int], is_valid: bool) -> None:
    assert fits(layout, part_named(A100)) is is_valid

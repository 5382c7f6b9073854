"""Which sets of MIG devices fit on one GPU, by the start positions that NVIDIA publishes.

A device of a profile takes consecutive memory slices from one of its start positions on
(`nvidia-smi mig -lgipp`). A layout is valid where all its devices find positions that do not
overlap, and where they need no more compute slices than the GPU has.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from apps.clusters.domain.devices.mig import Geometry, MigModel

Layout = Mapping[str, int]
"""How many devices of each profile a GPU is cut into."""

# (compute slices of the GPU, those of the profile, its memory slices) → first memory slices.
_STARTS: Mapping[tuple[int, int, int], tuple[int, ...]] = {
    (7, 1, 1): (0, 1, 2, 3, 4, 5, 6),
    (7, 1, 2): (0, 2, 4, 6),
    (7, 2, 2): (0, 2, 4),
    (7, 3, 4): (0, 4),
    (7, 4, 4): (0,),
    (7, 7, 8): (0,),
    (4, 1, 1): (0, 1, 2, 3),
    (4, 2, 2): (0, 2),
    (4, 4, 4): (0,),
}


def starts(cut: Geometry) -> tuple[int, ...]:
    """Return the memory slices at which a device of such a profile may begin."""
    return _STARTS[cut.compute_total, cut.compute, cut.memory]


def layouts(part: MigModel) -> Iterator[dict[str, int]]:
    """Yield every set of profiles that fits on one GPU of the part, the empty one too."""
    for layout in _layouts(tuple(part.profiles.items())):
        yield dict(layout)


def fullest_layouts(part: MigModel, profiles: Collection[str]) -> list[dict[str, int]]:
    """Return the layouts of these profiles to which none of them can be added."""
    own = tuple((name, cut) for name, cut in part.profiles.items() if name in profiles)
    found = {frozenset(layout): dict(layout) for layout in _layouts(own) if layout}

    def has_room(layout: Layout) -> bool:
        more = ({**layout, name: layout.get(name, 0) + 1} for name, _ in own)
        return any(frozenset(one.items()) in found for one in more)

    return [layout for layout in found.values() if not has_room(layout)]


def fits(layout: Layout, part: MigModel) -> bool:
    """Say whether a GPU can be cut so; False also for a profile that the part lacks."""
    if any(count and name not in part.profiles for name, count in layout.items()):
        return False
    cuts = [part.profiles[name] for name, count in layout.items() for _ in range(count)]
    if sum(cut.compute for cut in cuts) > slices(part):
        return False
    return _placed(sorted(cuts, key=lambda cut: len(starts(cut))), 0)


def slices(part: MigModel) -> int:
    """Return the compute slices of a GPU."""
    return next(iter(part.profiles.values())).compute_total


def stranded(layout: Layout, part: MigModel) -> int:
    """Return how many compute slices of a GPU a layout leaves over."""
    cuts = part.profiles
    return slices(part) - sum(cuts[name].compute * n for name, n in layout.items() if name in cuts)


def _placed(cuts: Sequence[Geometry], taken: int) -> bool:
    """Say whether all find room beside the `taken` memory slices (bits)."""
    if not cuts:
        return True
    size = (1 << cuts[0].memory) - 1
    places = (size << start for start in starts(cuts[0]))
    return any(_placed(cuts[1:], taken | place) for place in places if not taken & place)


@lru_cache(maxsize=256)
def _layouts(profiles: tuple[tuple[str, Geometry], ...]) -> tuple[tuple[tuple[str, int], ...], ...]:
    part = MigModel("", 0, dict(profiles))
    found: list[tuple[tuple[str, int], ...]] = [()]
    for name, cut in profiles:
        found += [
            (*layout, (name, count))
            for layout in found
            for count in range(1, cut.most + 1)
            if fits({**dict(layout), name: count}, part)
        ]
    return tuple(found)

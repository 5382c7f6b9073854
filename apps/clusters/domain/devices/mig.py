"""MIG geometry: the share of its GPU that a MIG device is, and how many fit on one.

The name of a profile does not give its share: `1g.24gb` is one of seven compute slices of an
H100 NVL and one of four of an RTX PRO 6000. So the table is keyed by part and profile.
Figures: NVIDIA's MIG user guide and the default layouts of its GPU operator.

A driver that can partition GPUs publishes, beside a GPU, every part that may be cut from it. These
are candidates: those on one GPU exclude each other. So a class counts the whole GPU, or as many of
its parts as fit at once.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from apps.clusters.domain.pods.ledger import ClaimedDevice, OfferedDevice

_LEADING = re.compile(r"(\d+)g\.(\d+)gb")

_HAIR = 1e-9


class Geometry(NamedTuple):
    """Compute and memory slices of a profile and of its GPU, and how many fit on one GPU."""

    compute: int
    compute_total: int
    memory: int
    memory_total: int
    most: int


class MigModel(NamedTuple):
    """A GPU that can be partitioned: its board memory in GB and its profiles."""

    name: str
    board_gb: int
    profiles: Mapping[str, Geometry]


# The six families of parts with seven compute and eight memory slices, as their profiles are
# listed below: small, small with double memory, two, three, four and all seven slices.
_OF_SEVEN = (
    Geometry(1, 7, 1, 8, 7),
    Geometry(1, 7, 2, 8, 4),
    Geometry(2, 7, 2, 8, 3),
    Geometry(3, 7, 4, 8, 2),
    Geometry(4, 7, 4, 8, 1),
    Geometry(7, 7, 8, 8, 1),
)
_OF_FOUR = (Geometry(1, 4, 1, 4, 4), Geometry(2, 4, 2, 4, 2), Geometry(4, 4, 4, 4, 1))


def _part(name: str, gigabytes: str) -> MigModel:
    sizes = [int(size) for size in gigabytes.split()]
    families = _OF_SEVEN if len(sizes) == len(_OF_SEVEN) else _OF_FOUR
    profiles = {
        f"{family.compute}g.{size}gb": family for family, size in zip(families, sizes, strict=True)
    }
    return MigModel(name, sizes[-1], profiles)


PARTS: tuple[MigModel, ...] = (
    _part("A100-40GB", "5 10 10 20 20 40"),
    _part("A100-80GB", "10 20 20 40 40 80"),
    _part("H100-80GB", "10 20 20 40 40 80"),
    _part("H100-NVL-94GB", "12 24 24 47 47 94"),
    _part("H100-96GB", "12 24 24 48 48 96"),
    _part("H200-141GB", "18 35 35 71 71 141"),
    _part("GH200-144GB", "18 36 36 72 72 144"),
    _part("B200-180GB", "23 45 45 90 90 180"),
    _part("GB200-186GB", "23 47 47 93 93 186"),
    _part("GB200-189GB", "23 47 47 95 95 189"),
    _part("B300-269GB", "34 67 67 135 135 269"),
    _part("GB300-278GB", "35 70 70 139 139 278"),
    _part("A30-24GB", "6 12 24"),
    _part("RTX-PRO-6000-96GB", "24 48 96"),
)
_BY_NAME = {part.name: part for part in PARTS}

# Words that a model's name has (without blanks and dashes) → the part; the first that fits.
_KNOWN: tuple[tuple[tuple[str, ...], str], ...] = (
    (("rtxpro6000",), "RTX-PRO-6000-96GB"),
    (("gb300",), "GB300-278GB"),
    (("b300",), "B300-269GB"),
    (("gb200", "189gb"), "GB200-189GB"),
    (("gb200",), "GB200-186GB"),
    (("gh200", "144g"), "GH200-144GB"),
    (("gh200",), "H100-96GB"),
    (("b200",), "B200-180GB"),
    (("h200",), "H200-141GB"),
    (("h100nvl",), "H100-NVL-94GB"),
    (("h100", "94gb"), "H100-NVL-94GB"),
    (("h100", "96gb"), "H100-96GB"),
    (("h100",), "H100-80GB"),
    (("h800",), "H100-80GB"),
    (("h20",), "H100-96GB"),
    (("a100", "40gb"), "A100-40GB"),
    (("a100", "80gb"), "A100-80GB"),
    (("a800", "40gb"), "A100-40GB"),
    (("a800",), "A100-80GB"),
    (("a30",), "A30-24GB"),
)


@lru_cache(maxsize=1024)
def geometry(profile: str, model: str) -> Geometry | None:
    """Return the geometry of a profile such as `3g.40gb` on a GPU model as anybody writes it.

    Of a model or profile that the table lacks, compute is the leading number of seven slices (of
    four where the model says so), and memory its GB to the nearest eighth of the board's, which
    is taken to be the smallest that has the profile. None for what is no profile.
    """
    match = _LEADING.match(profile)
    if match is None:
        return None
    part = part_of(model)
    if part is None:
        part = next((one for one in PARTS if match[0] in one.profiles), None)
    known = part.profiles.get(match[0]) if part else None
    return known or _guessed(int(match[1]), int(match[2]), part)


def _guessed(compute: int, gigabytes: int, part: MigModel | None) -> Geometry:
    total, memory_total = 7, 8
    if part is not None:
        one = next(iter(part.profiles.values()))
        total, memory_total = one.compute_total, one.memory_total
    compute = max(1, min(compute, total))  # anybody may ask for `mig-0g.0gb`
    memory = compute
    if part is not None:
        memory = round(gigabytes * memory_total / part.board_gb)
    memory = max(1, min(memory, memory_total))
    return Geometry(
        compute, total, memory, memory_total, min(total // compute, memory_total // memory)
    )


@lru_cache(maxsize=1024)
def part_of(model: str) -> MigModel | None:
    """Return the part that a model's name stands for; None for one that the table lacks."""
    key = model.replace(" ", "").replace("-", "").lower()
    for words, name in _KNOWN:
        if all(word in key for word in words):
            return _BY_NAME[name]
    return None


def profile_name(profile: str) -> str:
    """Return a profile as labels and resources write it: `1g.10gb.me` for `1g.10gb+me`."""
    return profile.replace("+", ".")


def mig_part(profile: str, model: str) -> float:
    """Return the share of a GPU's compute slices that a MIG profile has; 1 for no profile."""
    found = geometry(profile, model)
    return 1.0 if found is None else found.compute / found.compute_total


def fewest_gpus(counts: Mapping[str, int], model: str) -> int:
    """Return the fewest GPUs on which so many MIG devices of each profile fit, by their slices.

    Compute and memory slices bound it from below, and so does the number of one profile that fits
    on a GPU; layouts in use meet that bound.
    """
    compute = memory = 0.0
    gpus = 0
    for profile, count in counts.items():
        found = geometry(profile, model)
        if found is None or count <= 0:
            continue
        compute += count * found.compute / found.compute_total
        memory += count * found.memory / found.memory_total
        gpus = max(gpus, -(-count // found.most))
    return max(gpus, _whole(compute), _whole(memory))


def _whole(amount: float) -> int:
    """Round up; sums of sevenths miss whole numbers by a hair."""
    return int(-(-(amount - 1e-9) // 1))


class Devices(Struct, frozen=True):
    """Device class → how many there are, and how many are free."""

    offered: dict[str, int]
    free: dict[str, int]


def devices_of(offered: Iterable[OfferedDevice], held: Iterable[ClaimedDevice]) -> Devices:
    """Count the devices of a node by class; `held` are what open claims were given on its GPUs.

    A device that a taint keeps pods off counts as offered and not as free. Of one that is given
    out by shares some is free while these are not all of it.
    """
    by_gpu: dict[str, list[OfferedDevice]] = defaultdict(list)
    for device in offered:
        by_gpu[device.card].append(device)
    given: dict[str, list[ClaimedDevice]] = defaultdict(list)
    for one in held:
        given[one.card].append(one)
    there, free = defaultdict[str, int](int), defaultdict[str, int](int)
    for uuid, devices in by_gpu.items():
        for name in sorted({name for device in devices for name in device.classes}):
            of_class = [device for device in devices if name in device.classes]
            there[name] += _fit(of_class, devices, ())
            usable = [device for device in of_class if device.allocatable]
            free[name] += _fit(usable, devices, given.get(uuid, ()))
    return Devices(dict(there), dict(free))


def _fit(
    wanted: Sequence[OfferedDevice],
    every: Sequence[OfferedDevice],
    given: Sequence[ClaimedDevice],
) -> int:
    """Return how many of these devices of one GPU can be allocated beside the allocated ones."""
    shares: dict[str, float] = defaultdict(float)
    for one in given:
        shares[one.profile] += one.share
    by_profile = Counter(device.profile for device in wanted)
    if len(every) > 1 and any(not device.profile for device in every):
        model = every[0].model
        return max((_room(p, n, shares, model) for p, n in by_profile.items()), default=0)
    return sum(max(0, n - _filled(shares[profile])) for profile, n in by_profile.items())


def _room(profile: str, count: int, shares: Mapping[str, float], model: str) -> int:
    """Return how many of one profile's candidates fit on a GPU beside its allocated devices."""
    whole = shares.get("", 0.0)
    parts = {p: max(1, _filled(share)) for p, share in shares.items() if p and share > 0}
    if not profile:
        return 0 if parts or _filled(whole) else 1
    if whole:
        return 0
    held = parts.get(profile, 0)
    fits = (n for n in range(count, held, -1) if fewest_gpus({**parts, profile: n}, model) <= 1)
    return next(fits, held) - held


def _filled(share: float) -> int:
    """Return how many devices shares fill; one that is not full can still be given out."""
    return int(share + _HAIR)

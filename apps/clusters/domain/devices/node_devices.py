"""How many devices of each class a node has, and how many of these nobody has been given.

A driver that can partition cards publishes, beside a card, every part that may be cut from it:
these are candidates, of which those on one card rule each other out. So of such a card a class
has the whole card, or as many of its parts as fit at once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.clusters.domain.devices.mig import fewest_cards
from apps.clusters.domain.pods.ledger import ClaimedDevice, OfferedDevice

_HAIR = 1e-9


@dataclass(frozen=True, slots=True)
class Devices:
    """Device class → how many there are, and how many are free."""

    offered: dict[str, int]
    free: dict[str, int]


def devices_of(offered: Iterable[OfferedDevice], held: Iterable[ClaimedDevice]) -> Devices:
    """Count the devices of a node by class; `held` are what open claims were given on its cards.

    A device that a taint keeps pods off counts as offered and not as free. Of one that is given
    out by shares some is free while these are not all of it.
    """
    cards: dict[str, list[OfferedDevice]] = defaultdict(list)
    for device in offered:
        cards[device.card].append(device)
    given: dict[str, list[ClaimedDevice]] = defaultdict(list)
    for one in held:
        given[one.card].append(one)
    there, free = defaultdict[str, int](int), defaultdict[str, int](int)
    for card, devices in cards.items():
        for name in sorted({name for device in devices for name in device.classes}):
            of_class = [device for device in devices if name in device.classes]
            there[name] += _fit(of_class, devices, ())
            usable = [device for device in of_class if device.allocatable]
            free[name] += _fit(usable, devices, given.get(card, ()))
    return Devices(dict(there), dict(free))


def _fit(
    wanted: Sequence[OfferedDevice],
    every: Sequence[OfferedDevice],
    given: Sequence[ClaimedDevice],
) -> int:
    """Return how many of these devices of one card can be given out, beside what was given."""
    shares: dict[str, float] = defaultdict(float)
    for one in given:
        shares[one.profile] += one.share
    by_profile = Counter(device.profile for device in wanted)
    if len(every) > 1 and any(not device.profile for device in every):
        model = every[0].model
        return max((_room(p, n, shares, model) for p, n in by_profile.items()), default=0)
    return sum(max(0, n - _filled(shares[profile])) for profile, n in by_profile.items())


def _room(profile: str, count: int, shares: Mapping[str, float], model: str) -> int:
    """Return how many of one profile's candidates fit on a card beside what was given of it."""
    whole = shares.get("", 0.0)
    parts = {p: max(1, _filled(share)) for p, share in shares.items() if p and share > 0}
    if not profile:
        return 0 if parts or _filled(whole) else 1
    if whole:
        return 0
    held = parts.get(profile, 0)
    fits = (n for n in range(count, held, -1) if fewest_cards({**parts, profile: n}, model) <= 1)
    return next(fits, held) - held


def _filled(share: float) -> int:
    """Return how many devices shares fill; one that is not full can still be given out."""
    return int(share + _HAIR)

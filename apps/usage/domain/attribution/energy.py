"""The energy of a GPU divided among what is on it (docs/definitions.md#energy-and-carbon).

The idle part is what the GPU would have drawn without any work: it goes by what was held. The rest
goes by activity. Parts are whole milliwatt-hours that sum to the GPU's.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import floor, fsum
from typing import NamedTuple

from apps.clusters.domain.devices.mig import mig_part
from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.window import SLOT_SECONDS

_NO_ACTIVITY = 0.01
_WHOLE_SLOT = 0.9
_SLOT_HOURS = SLOT_SECONDS / 3600
_MWH_PER_WH = 1000
IdlePower = Mapping[str, float]
"""Watts by GPU model."""


def idle_power(rows: Iterable[DeviceSlot], interval: float) -> dict[str, float]:
    """Return the idle power of each GPU model of which a GPU was idle, in watts.

    It is the lowest mean power of a GPU over a half hour in which its activity was below 1 %. A
    model of which no GPU was idle is left out. `interval` are the seconds between samples.
    """
    energy: dict[tuple[int, str], float] = defaultdict(float)
    samples: dict[tuple[int, str], int] = defaultdict(int)
    models: dict[tuple[int, str], str] = {}
    active = set()
    for row in rows:
        gpu = row[:2]
        # Rows side by side have a part of the GPU's energy each: only their sum is its power.
        energy[gpu] += row.energy_wh or 0.0
        if row.activity_sum is not None and row.activity_sum > _NO_ACTIVITY * row.samples:
            active.add(gpu)
        elif row.activity_sum is not None:
            samples[gpu] = max(samples[gpu], row.samples)
            models[gpu] = row.model
    least = _WHOLE_SLOT * SLOT_SECONDS / interval
    found: dict[str, float] = {}
    for gpu, model in models.items():
        if gpu not in active and samples[gpu] >= least and energy[gpu] > 0:
            watts = energy[gpu] / _SLOT_HOURS
            found[model] = min(watts, found.get(model, watts))
    return found


def whole_parts(energy_wh: float, weights: Sequence[float]) -> list[float]:
    """Return Wh in proportion to weights, each a whole number of mWh; they sum to the energy's.

    What rounding down leaves goes to the largest remainders, of equal ones to the earlier.
    """
    total, whole = round(energy_wh * _MWH_PER_WH), fsum(weights)
    if not whole:
        return [0.0] * len(weights)
    exact = [total * weight / whole for weight in weights]
    parts = [floor(part) for part in exact]
    order = sorted(range(len(parts)), key=lambda at: (parts[at] - exact[at], at))
    for at in order[: max(0, total - sum(parts))]:
        parts[at] += 1
    return [part / _MWH_PER_WH for part in parts]


class EnergyParts(NamedTuple):
    """Parts of a GPU's energy in Wh, and what of each is idle; None: it is not known."""

    whole: list[float]
    idle: list[float] | None


def energy_parts(
    energy_wh: float, idle_wh: float | None, held: Sequence[float], used: Sequence[float]
) -> EnergyParts:
    """Return each one's part of a GPU's energy, and last what goes to none of them.

    `held` are the parts of the GPU that each held (0..1), `used` their activity in any unit. The
    idle part goes by `held`, what is not held to none; the rest by `used`, without any by `held`.
    Where `idle_wh` is not known, all goes by `held`. Both kinds of parts sum to what is divided.
    """
    free = max(0.0, 1.0 - fsum(held))
    by_held = [*held, free]
    by_used = [*used, 0.0] if fsum(used) > 0 else by_held
    if idle_wh is None or not energy_wh:
        return EnergyParts(whole_parts(energy_wh, by_held), None)
    total = round(energy_wh * _MWH_PER_WH)
    idle = min(total, round(idle_wh * _MWH_PER_WH))
    # Divided one after the other: so no idle part is more than the whole of it.
    of_idle = whole_parts(idle / _MWH_PER_WH, by_held)
    of_rest = whole_parts((total - idle) / _MWH_PER_WH, by_used)
    whole = [
        round((one + other) * _MWH_PER_WH) / _MWH_PER_WH
        for one, other in zip(of_idle, of_rest, strict=True)
    ]
    return EnergyParts(whole, of_idle)


def divide_instances(rows: Sequence[DeviceSlot], idle: IdlePower) -> Sequence[DeviceSlot]:
    """Return rows with the energy of each partitioned GPU divided among its MIG instances.

    Where its idle power is not known they keep what they have.
    """
    of_gpu: dict[tuple[int, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        if row.gpu_instance and row.energy_wh is not None:
            of_gpu[row.slot, row.uuid].append(place)
    if not of_gpu:
        return rows
    changed = list(rows)
    for places in of_gpu.values():
        own = [rows[place] for place in places]
        # Rows of one instance that follow each other have its part for their time each.
        held = [row.samples * mig_part(row.profile, row.model) for row in own]
        whole, watts = fsum(held), idle.get(own[0].model)
        if not whole or watts is None:
            continue
        energy = fsum(row.energy_wh or 0.0 for row in own)
        parts = energy_parts(
            energy,
            watts * _SLOT_HOURS,
            [one / whole for one in held],
            [(row.activity_sum or 0.0) * mig_part(row.profile, row.model) for row in own],
        )
        of_idle: Sequence[float | None] = parts.idle or [None] * len(parts.whole)
        for place, part, of in zip(places, parts.whole, of_idle, strict=False):
            changed[place] = rows[place]._replace(energy_wh=part, idle_wh=of)
    return changed

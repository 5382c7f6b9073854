"""Which devices which holdings may be on, where a label on each row does not settle it.

That is so on shared GPUs, for devices given by claims, and where exporters name no pods. Of GPUs
that KAI shares exporters name the pod that reserves them, which does nothing with them itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import inf

from apps.clusters.domain.devices.state import DeviceSlot
from apps.clusters.domain.gpu_shares import names_reservation
from apps.clusters.domain.resources import GPU_FRACTION
from apps.clusters.domain.tiers import UNKNOWN_MODEL, same_model
from apps.usage.domain.attribution.allocations import Allocation
from apps.usage.domain.attribution.sharing import DeviceGroup, DeviceKey

# Who ran for less than this in a slot may have met no scrape.
_SEEN_SECONDS = 120.0

Numbered = tuple[int, Allocation]
Device = tuple[int, str, str]
"""A device in a slot: (slot, UUID, MIG instance)."""
_Kind = tuple[str, str]
"""(node, profile)."""


class Pools:
    """Takes in rows of devices on which several holdings may be, and makes groups of them.

    `nobodys` are rows of such devices without any pod.
    """

    def __init__(
        self, holdings: Sequence[Allocation], offered: Mapping[tuple[str, str], float]
    ) -> None:
        self._holdings = holdings
        self._offered = offered
        self._shared: dict[_Kind, list[int]] = defaultdict(list)
        self._alone: dict[_Kind, list[int]] = defaultdict(list)
        self._claimed: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._fractional: dict[_Kind, list[int]] = defaultdict(list)
        self._rows: dict[tuple[_Kind, int], list[DeviceSlot]] = defaultdict(list)
        self._reserved: dict[tuple[_Kind, int], list[DeviceSlot]] = defaultdict(list)
        self._unnamed: dict[int, DeviceGroup] = {}
        self._group_of: dict[tuple[int, int], int] = {}
        self._keys = count()
        self.nobodys: list[DeviceSlot] = []
        for number, holding in enumerate(holdings):
            kind = (holding.pod.node, holding.profile)
            if holding.devices:
                for uuid in holding.devices:
                    self._claimed[uuid, holding.profile].append(number)
            elif holding.resource == GPU_FRACTION:
                self._fractional[kind].append(number)
            else:
                (self._shared if holding.shared else self._alone)[kind].append(number)

    # ------------------------------------------------------------ shared GPUs

    @property
    def any(self) -> bool:
        """Say whether there are shared GPUs or claims at all: most clusters have none."""
        return bool(self._shared or self._claimed or self._fractional)

    def take(self, row: DeviceSlot, named: Sequence[Numbered]) -> bool:
        """Take in a row of a shared GPU; `named` are the holdings of the pod that it names.

        Returns False where its label, if it has one, is to be believed.
        """
        if self._claimed and self._is_shared_claim(row):
            return True
        if self._fractional and names_reservation(row.namespace, row.pod):
            # The GPUs that no pod reserves are those of pods that have them alone.
            self._reserved[(row.node, row.profile), row.slot].append(row)
            return True
        if not self._shared or (named and not any(holding.shared for _, holding in named)):
            return False
        if self._claimed and self._running(row):
            return False  # given to somebody alone, on a node that shares other GPUs
        kind = (row.node, row.profile)
        if kind not in self._shared:
            # Exporters that do not name the node at all; the pod's node is known.
            nodes = {holding.pod.node for _, holding in named if holding.shared}
            kind = (nodes.pop() if len(nodes) == 1 else "", row.profile)
        if kind not in self._shared:
            return False
        self._rows[kind, row.slot].append(row)
        return True

    def _is_shared_claim(self, row: DeviceSlot) -> bool:
        # With those who had it for themselves before or after: the slot's sum is of them all.
        numbers = self._running(row)
        if not any(self._holdings[n].shared for n in numbers):
            return False
        self._put(row.slot, numbers, [row])
        return True

    def _running(self, row: DeviceSlot) -> list[int]:
        numbers = self._claimed.get((row.uuid, row.profile), ())
        return [n for n in numbers if self._holdings[n].ran_in(row.slot) > 0]

    def _put(self, slot: int, numbers: Iterable[int], rows: Iterable[DeviceSlot]) -> None:
        """Add rows to the group of these holdings, and join groups that have some in common."""
        tenants = set(numbers)
        known = {self._group_of[slot, n] for n in tenants if (slot, n) in self._group_of}
        if not known:
            known = {next(self._keys)}
        key = min(known)
        joined = self._unnamed.setdefault(key, DeviceGroup(slot, []))
        for other in sorted(known - {key}):
            group = self._unnamed.pop(other)
            tenants.update(group.tenants)
            joined.rows += group.rows
        joined.rows += rows
        if not tenants <= set(joined.tenants):
            joined.tenants = sorted(tenants.union(joined.tenants))
            self._group_of.update(((slot, n), key) for n in joined.tenants)

    # ------------------------------------------------------------ rows without a name

    def take_unnamed(
        self, strays: Sequence[DeviceSlot], rows: Mapping[int, Sequence[DeviceSlot]]
    ) -> list[DeviceSlot]:
        """Take in rows that name no pod, of devices that only these holdings can be on.

        `rows` are those that found their holding by name. Returns the strays that are left.
        """
        bare_places = {row[:3] for row in strays if not row.pod}
        if not bare_places:
            return list(strays)
        shown = {row[:3] for some in rows.values() for row in some}
        unnamed = bare_places - shown
        found: set[tuple[int, int]] = set()
        if self._claimed:
            found = {(number, row.slot) for number, some in rows.items() for row in some}
        left: list[DeviceSlot] = []
        bare: dict[tuple[_Kind, int], list[DeviceSlot]] = defaultdict(list)
        for row in strays:
            if row.pod or row[:3] not in unnamed:
                left.append(row)
                continue
            # Who has rows by name is not on another instance of the same GPU and profile.
            running = self._running(row) if self._claimed else ()
            numbers = [n for n in running if (n, row.slot) not in found]
            if numbers:
                self._put(row.slot, numbers, [row])
            else:
                left.append(row)
                bare[(row.node, row.profile), row.slot].append(row)
        taken = {id(row) for row in self._by_elimination(bare, rows)}
        return [row for row in left if id(row) not in taken]

    def _by_elimination(
        self,
        bare: Mapping[tuple[_Kind, int], Sequence[DeviceSlot]],
        rows: Mapping[int, Sequence[DeviceSlot]],
    ) -> Iterator[DeviceSlot]:
        """Yield the rows of devices that only one pod can have been on, and take them in."""
        silent_of = {
            kind: [n for n in self._alone.get(kind, ()) if not rows.get(n)] for kind, _ in bare
        }
        if not any(silent_of.values()):
            return
        kinds: dict[Device, set[_Kind]] = defaultdict(set)
        for (kind, _), rows_of_kind in bare.items():
            for row in rows_of_kind:
                kinds[row[:3]].add(kind)
        for (kind, slot), some in sorted(bare.items()):
            if any(len(kinds[row[:3]]) > 1 for row in some):
                continue
            silent = [n for n in silent_of[kind] if self._holdings[n].ran_in(slot) >= _SEEN_SECONDS]
            devices = {(row.uuid, row.gpu_instance) for row in some}
            if len(silent) != 1 or self._holdings[silent[0]].devices_held != len(devices):
                continue
            if len(devices | _shown(kind, slot, rows)) < self._offered.get(kind, inf):
                continue  # the one it is on may be the one that is not shown
            if all(_fits(row, self._holdings[silent[0]]) for row in some):
                self._put(slot, silent, some)
                yield from some

    # ------------------------------------------------------------ groups

    def groups(self) -> Iterator[DeviceGroup]:
        """Yield every group with somebody on it, in a fixed order."""
        yield from sorted(self._unnamed.values(), key=lambda group: (group.slot, group.tenants))
        for places, found in ((self._shared, self._rows), (self._fractional, self._reserved)):
            for (kind, slot), rows in sorted(found.items(), key=lambda item: item[0]):
                numbers = places.get(kind, ())
                tenants = [n for n in numbers if self._holdings[n].ran_in(slot) > 0]
                if tenants:
                    yield from self._together(slot, tenants, rows)
                else:
                    self.nobodys += rows

    def _together(
        self, slot: int, tenants: Sequence[int], rows: Sequence[DeviceSlot]
    ) -> Iterator[DeviceGroup]:
        """Yield the groups of a node's shared GPUs, as far apart as labels tell them.

        Where one tenant is never named (some exporters name only one pod a GPU), it may be on any
        GPU that names another; where none is named, all tenants may be on any GPU.
        """
        on = self._places(tenants, rows)
        lost = [
            n for n in tenants if n not in on and self._holdings[n].ran_in(slot) >= _SEEN_SECONDS
        ]
        if not on:
            yield DeviceGroup(slot, list(tenants), list(rows))
            return
        sets = [({*on[n]}, [n]) for n in on]
        if lost:
            sets = [({key for keys in on.values() for key in keys}, [*on, *lost])]
        for keys, numbers in _components(sets):
            mine = [row for row in rows if (row.uuid, row.gpu_instance) in keys]
            yield DeviceGroup(slot, sorted(numbers), mine)
        placed = {key for keys, _ in sets for key in keys}
        self.nobodys += [row for row in rows if (row.uuid, row.gpu_instance) not in placed]

    def _places(
        self, tenants: Sequence[int], rows: Sequence[DeviceSlot]
    ) -> dict[int, set[DeviceKey]]:
        names: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number in tenants:
            pod = self._holdings[number].pod
            names[pod.namespace, pod.name].append(number)
        on: dict[int, set[DeviceKey]] = defaultdict(set)
        for row in rows:
            for number in names.get((row.namespace, row.pod), ()) if row.pod else ():
                on[number].add((row.uuid, row.gpu_instance))
        return on


def _shown(kind: _Kind, slot: int, rows: Mapping[int, Sequence[DeviceSlot]]) -> set[DeviceKey]:
    """Return the devices of a node and profile that name their pod in a slot."""
    return {
        (row.uuid, row.gpu_instance)
        for some in rows.values()
        for row in some
        if row.slot == slot and (row.node, row.profile) == kind
    }


def _components(
    sets: Sequence[tuple[set[DeviceKey], list[int]]],
) -> list[tuple[set[DeviceKey], list[int]]]:
    """Join what has a device in common."""
    joined: list[tuple[set[DeviceKey], list[int]]] = []
    for keys, numbers in sets:
        touching = [one for one in joined if not one[0].isdisjoint(keys)]
        joined = [one for one in joined if one not in touching]
        joined.append(
            (
                set().union(keys, *(one[0] for one in touching)),
                [*numbers, *(n for one in touching for n in one[1])],
            )
        )
    return joined


def _fits(row: DeviceSlot, holding: Allocation) -> bool:
    model = holding.gpu_class.model
    return model == UNKNOWN_MODEL or not row.model or same_model(model, row.model)

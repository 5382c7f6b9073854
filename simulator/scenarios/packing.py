"""Finds pods that hold and wait for exactly as many GPUs as a trace says, minute by minute.

The trace has sums only. Pods of 1, 2, 4 or 8 GPUs are laid under them: the longest pending is bound
first, what was bound first ends first, what came last gives up first. Pending demand becomes pods
only when it leaves the queue, for only then is it known what is bound together. Where no set of
running pods adds up to what ends, one is started again with the rest. A pod sits on one node, and
no two pods share a device.
"""

from collections.abc import Sequence

from msgspec import Struct

from simulator.fleet import FOREVER

_LARGEST = 8


class Draft(Struct):
    """A pod in the making; `ended` is when it finished, or was canceled if it was never bound."""

    number: int
    family: int
    units: int
    created: int
    bound: int = FOREVER
    ended: int = FOREVER
    node: int = -1
    devices: tuple[int, ...] = ()


class _Batch(Struct):
    """GPUs that began to wait together, in pods of at most `largest`."""

    created: int
    units: int
    largest: int


class Packer:
    """The pods of one team on nodes of its own; `gpus` is how many devices each node has.

    With `free` it shares nodes with others that were given the same lists of free devices; then
    there must be room for what is asked of it. No pod is larger than `largest`.

    `family` of a draft is the number of the pod it goes back to: one that was started again
    belongs to the same workload.
    """

    def __init__(
        self,
        gpus: Sequence[int],
        *,
        free: list[list[int]] | None = None,
        largest: int = _LARGEST,
    ) -> None:
        self.drafts: list[Draft] = []
        self._free = [list(range(count)) for count in gpus] if free is None else free
        self._most = largest
        self._running: list[Draft] = []
        self._waiting: list[_Batch] = []
        self._held = 0
        self._asked = 0
        self._jobs = 0
        self._waiting_jobs = 0

    def level(
        self, at: int, *, running: int, pending: int, jobs: int = 0, pending_jobs: int = 0
    ) -> None:
        """Hold `running` and wait for `pending` GPUs from `at` on; times must not go back.

        `jobs` and `pending_jobs` tell how many jobs these are, 0 when that is not known.
        """
        if (running, pending) == (self._held, self._asked):  # as most often
            self._jobs, self._waiting_jobs = jobs, pending_jobs
            return
        ending = max(0, self._held - running)
        # What leaves the queue was bound, if only because as much ended in the same minute.
        bound = max(0, self._asked - pending) - max(0, running - self._held)
        ending = min(self._held, ending + max(0, bound))
        if ending:
            self._end(at, ending)
        if running > self._held:
            self._bind(at, running - self._held, jobs - self._jobs)
        if pending < self._asked:
            self._give_up(at, self._asked - pending)
        if pending > self._asked:
            self._ask(at, pending - self._asked, pending_jobs - self._waiting_jobs)
        self._jobs, self._waiting_jobs = jobs, pending_jobs

    def close(self, at: int) -> None:
        """End everything that is left."""
        self.level(at, running=0, pending=0)

    # ------------------------------------------------------------ running pods

    def _end(self, at: int, amount: int) -> None:
        for draft in list(self._running):
            if draft.units <= amount:
                self._finish(draft, at)
                amount -= draft.units
        if amount:
            larger = min(self._running, key=lambda draft: (draft.units, draft.number))
            self._finish(larger, at)
            rest = larger.units - amount
            self._start(at, rest, self._most, created=at, family=larger.family)

    def _bind(self, at: int, amount: int, jobs: int) -> None:
        while amount and self._waiting:
            batch = self._waiting[0]
            taken = min(batch.units, amount)
            self._start(at, taken, batch.largest, created=batch.created)
            self._take(batch, taken)
            amount -= taken
        if amount:
            self._start(at, amount, self._largest(amount, jobs), created=at)

    def _start(
        self, at: int, amount: int, largest: int, *, created: int, family: int | None = None
    ) -> None:
        """Start pods with `amount` GPUs in all, as large as the free devices of a node allow."""
        while amount:
            room = max(len(free) for free in self._free)
            units = _power_of_two(min(amount, largest, room))
            self._place(self._draft(created, units, family), at)
            amount -= units

    def _place(self, draft: Draft, at: int) -> None:
        """Bind a pod to the fullest node with room for it."""
        fits = [n for n, free in enumerate(self._free) if len(free) >= draft.units]
        draft.node = min(fits, key=lambda node: len(self._free[node]))
        free = self._free[draft.node]
        draft.devices = tuple(free[: draft.units])
        self._free[draft.node] = free[draft.units :]
        draft.bound = at
        self._held += draft.units
        self._running.append(draft)

    def _finish(self, draft: Draft, at: int) -> None:
        draft.ended = at
        self._free[draft.node] = sorted([*self._free[draft.node], *draft.devices])
        self._held -= draft.units
        self._running.remove(draft)

    # ------------------------------------------------------------ pending pods

    def _ask(self, at: int, amount: int, jobs: int) -> None:
        self._waiting.append(_Batch(at, amount, self._largest(amount, jobs)))
        self._asked += amount

    def _give_up(self, at: int, amount: int) -> None:
        while amount:
            batch = self._waiting[-1]
            taken = min(batch.units, amount)
            self._take(batch, taken)
            amount -= taken
            while taken:
                draft = self._draft(batch.created, _power_of_two(min(taken, batch.largest)))
                draft.ended = at
                taken -= draft.units

    def _take(self, batch: _Batch, units: int) -> None:
        batch.units -= units
        self._asked -= units
        if not batch.units:
            self._waiting.remove(batch)

    def _draft(self, created: int, units: int, family: int | None = None) -> Draft:
        number = len(self.drafts)
        draft = Draft(number, number if family is None else family, units, created)
        self.drafts.append(draft)
        return draft

    def _largest(self, amount: int, jobs: int) -> int:
        """Return the most GPUs of one pod when `jobs` jobs ask for `amount` together."""
        return _power_of_two(min(self._most, max(1, amount // max(jobs, 1))))


def _power_of_two(units: int) -> int:
    """Return the largest power of two that is at most `units`."""
    return 1 << (units.bit_length() - 1)

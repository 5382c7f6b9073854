"""Effective utilization: as if what is pending ran as its own kind of work runs.

docs/definitions.md#effective-utilization.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.usage.domain.amounts import Amounts

_FIRST_WORD = re.compile(r"[^-_.]+")


class Work(NamedTuple):
    """What pending work is known by; `workload` reads `Kind/name`."""

    cluster: str
    tier: str
    team: str
    namespace: str
    workload: str

    @property
    def family(self) -> tuple[str, str, str, str]:
        """Workloads of one kind in one namespace whose names begin with the same word."""
        kind, _, name = self.workload.partition("/")
        word = _FIRST_WORD.match(name)
        return self.cluster, self.namespace, kind, word[0] if word else name


@dataclass(slots=True)
class _Sum:
    busy: int = 0
    measured: int = 0

    def add(self, amounts: Amounts) -> None:
        self.busy += amounts.busy
        self.measured += amounts.measured


@dataclass(slots=True)
class KnownActivity:
    """Busy and measured GPU-hours by kind of work, the closest kind first."""

    _sums: dict[tuple[str, ...], _Sum] = field(default_factory=lambda: defaultdict(_Sum))

    def add_work(self, work: Work, amounts: Amounts) -> None:
        """Add what a workload did."""
        self._sums["workload", work.cluster, work.namespace, work.workload].add(amounts)
        self._sums["family", *work.family].add(amounts)

    def add_team(self, tier: str, team: str, amounts: Amounts) -> None:
        """Add what a team did on a tier."""
        self._sums["team", tier, team].add(amounts)
        self._sums["tier", tier].add(amounts)

    def of(self, work: Work) -> float | None:
        """Return the activity of the closest kind that was measured, 0..1; None without any.

        The workload itself, its family, its team on the tier, the tier.
        """
        for key in (
            ("workload", work.cluster, work.namespace, work.workload),
            ("family", *work.family),
            ("team", work.tier, work.team),
            ("tier", work.tier),
        ):
            found = self._sums.get(key)
            if found is not None and found.measured > 0:
                return found.busy / found.measured
        return None


def effective_utilization(
    amounts: Amounts, pending: Iterable[tuple[Work, int]], activity: KnownActivity
) -> float | None:
    """Return (busy + pending × own activity) ÷ (allocated + pending), 0..1.

    `pending` is demand in nano-GPU-hours. None without demand, and where no kind of a pending
    work was ever measured.
    """
    busy, demand = float(amounts.busy), amounts.allocated
    for work, gpu_hours in pending:
        own = activity.of(work)
        if own is None:
            return None
        busy += gpu_hours * own
        demand += gpu_hours
    return busy / demand if demand else None


def by_group(
    pending: Mapping[Work, int], names: Iterable[str]
) -> dict[tuple[str, ...], list[tuple[Work, int]]]:
    """Return pending demand by the values of some fields of `Work`, in their order."""
    fields = tuple(names)
    found: dict[tuple[str, ...], list[tuple[Work, int]]] = defaultdict(list)
    for work, gpu_hours in pending.items():
        found[tuple(getattr(work, name) for name in fields)].append((work, gpu_hours))
    return found

"""Effective utilization: what allocated and pending GPUs would do together, 0..1."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from apps.clusters.domain.names import family_of
from apps.usage.domain.amounts import Amounts

UNKNOWN_MODEL = ""


class PendingWork(NamedTuple):
    """What pending work is known by; `workload` reads `Kind/name`.

    `gpu_model` is that of its tier, UNKNOWN_MODEL where the tier has none or several.
    """

    cluster: str
    tier: str
    team: str
    namespace: str
    workload: str
    gpu_model: str = UNKNOWN_MODEL

    @property
    def family(self) -> tuple[str, str, str, str]:
        """Cluster, namespace, kind and common name of the workloads that do the same work."""
        kind, _, name = self.workload.partition("/")
        return self.cluster, self.namespace, kind, family_of(kind, name)


class _ActivitySum(Struct):
    busy: int = 0
    measured: int = 0

    def add(self, amounts: Amounts) -> None:
        self.busy += amounts.busy
        self.measured += amounts.measured


class KnownActivity(Struct):
    """Active and measured GPU-hours by kind of work, the closest kind first."""

    _sums: dict[tuple[str, ...], _ActivitySum] = field(
        default_factory=lambda: defaultdict(_ActivitySum)
    )

    def add_work(self, work: PendingWork, amounts: Amounts) -> None:
        """Add what a workload did."""
        self._sums["workload", work.cluster, work.namespace, work.workload].add(amounts)
        self._sums["family", *work.family].add(amounts)

    def add_team(self, tier: str, team: str, amounts: Amounts) -> None:
        """Add what a team did on a tier."""
        self._sums["team", tier, team].add(amounts)
        self._sums["tier", tier].add(amounts)

    def of(self, work: PendingWork) -> float | None:
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
            # A kind that ran without metrics tells nothing: the next wider one is asked.
            if found is not None and found.measured > 0:
                return found.busy / found.measured
        return None


def effective_utilization(
    amounts: Amounts, pending: Iterable[tuple[PendingWork, int]], activity: KnownActivity
) -> float | None:
    """Return (active + pending × own activity) ÷ (allocated + pending), 0..1.

    `pending` is demand in nano-GPU-hours. None without demand, and where no kind of a pending
    work was ever measured.
    """
    busy, demand = float(amounts.busy), amounts.allocated
    for work, gpu_hours in pending:
        own = activity.of(work)
        # One unknown activity would make the whole ratio a guess.
        if own is None:
            return None
        # Both in nano-GPU-hours: what the pending work would do if it ran.
        busy += gpu_hours * own
        demand += gpu_hours
    return busy / demand if demand else None


class DemandOfGroups:
    """Pending demand by the values of some fields of `PendingWork`."""

    def __init__(self, pending: Mapping[PendingWork, int], names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._found: dict[tuple[str, ...], list[tuple[PendingWork, int]]] = defaultdict(list)
        for work, gpu_hours in pending.items():
            self._found[self._key(work._asdict())].append((work, gpu_hours))

    def of(self, groups: Mapping[str, str]) -> Sequence[tuple[PendingWork, int]] | None:
        """Return the demand of a group; None where some of it may be of another GPU model."""
        # Work of a tier with several models may belong to any of them.
        unknown = {**groups, "gpu_model": UNKNOWN_MODEL}
        if "gpu_model" in self._names and self._key(unknown) in self._found:
            return None
        return self._found.get(self._key(groups), ())

    def _key(self, groups: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(groups[name] for name in self._names)

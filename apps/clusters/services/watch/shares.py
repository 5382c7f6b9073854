"""Which clusters this process watches where several processes share them."""

from collections.abc import Collection

from apps.accounts.services.process_leases import ProcessLeases, live_leases

_WATCHER = "watcher:"


def _lease_of(cluster: str) -> str:
    return f"watch:{cluster}"


class ClusterShare:
    """A process' part of the clusters: each cluster is watched by the holder of its lease.

    A process that watches what it may is counted; so many of the clusters as make its even part
    are its own. `one_only`: a process that was told its cluster takes no part in the counting.
    """

    def __init__(self, leases: ProcessLeases, *, one_only: bool) -> None:
        self._leases = leases
        self._one_only = one_only
        self._present = f"{_WATCHER}{leases.token}"

    def settle(self, clusters: Collection[str]) -> set[str]:
        """Renew what is held, take what is free up to the even part; return what is to be watched.

        What is held beyond that is not returned and still held: `give_back` it once its watch has
        ended. Some queries; raises DatabaseError.
        """
        held = self._leases.renew()
        most = len(clusters) if self._one_only else self._even_part(len(clusters))
        chosen = [name for name in sorted(clusters) if _lease_of(name) in held][:most]
        for name in sorted(clusters):
            if len(chosen) >= most:
                break
            if name not in chosen and self._leases.take(_lease_of(name)):
                chosen.append(name)
        return set(chosen)

    def may_write(self, cluster: str) -> bool:
        """Say whether the cluster is certainly watched by no other process; asks no database."""
        return self._leases.holds(_lease_of(cluster))

    def give_back(self, clusters: Collection[str]) -> None:
        """Let another process watch these."""
        if clusters:
            self._leases.give_back(map(_lease_of, clusters))

    def leave(self, clusters: Collection[str]) -> None:
        """Give everything back at the end of the process."""
        self._leases.give_back([self._present, *map(_lease_of, clusters)])

    def _even_part(self, clusters: int) -> int:
        self._leases.take(self._present)
        self._leases.forget_ended(_WATCHER)
        return -(-clusters // max(1, live_leases(_WATCHER, self._leases.clock())))

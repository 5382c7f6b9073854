"""The amounts of all teams of a tier as one value: a thousand rows take longer to read than to add.

Eight-byte little-endian integers: the teams' ids in ascending order, then each column in turn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PACKED = ("entitlement", "demand", "fair_share", "allocated", "borrowed", "denied")
"""What is packed of a team, in this order."""

_STORED = np.dtype("<i8")
_Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TeamTable:
    """Nano-GPU-hours: `teams` are ids in ascending order, `amounts` is (columns, teams)."""

    teams: _Whole
    amounts: _Whole

    def column(self, name: str) -> _Whole:
        """Return the amounts of one of PACKED, one of each team."""
        found: _Whole = self.amounts[PACKED.index(name)]
        return found

    def only(self, teams: Iterable[int]) -> "TeamTable":
        """Return the same of these teams alone."""
        kept = np.isin(self.teams, np.array(list(teams), dtype=np.int64))
        return TeamTable(self.teams[kept], self.amounts[:, kept])


def table_of(rows: Sequence[Sequence[int]]) -> TeamTable:
    """Return rows of (team, *PACKED), of each team one, as a table."""
    ordered = np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int64).reshape(
        len(rows), 1 + len(PACKED)
    )
    return TeamTable(ordered[:, 0], ordered[:, 1:].T)


def pack(table: TeamTable) -> bytes:
    """Return a table as the value that is stored."""
    return np.vstack([table.teams, table.amounts]).astype(_STORED).tobytes()


def unpack(stored: bytes | memoryview) -> TeamTable:
    """Return the table that was packed. Raises ValueError for what is none."""
    found = np.frombuffer(stored, dtype=_STORED).reshape(1 + len(PACKED), -1).astype(np.int64)
    return TeamTable(found[0], found[1:])


def summed(tables: Sequence[TeamTable]) -> TeamTable:
    """Return the sums by team, exactly."""
    if not tables:
        return table_of(())
    teams = np.unique(np.concatenate([table.teams for table in tables]))
    amounts = np.zeros((len(PACKED), teams.size), dtype=np.int64)
    for table in tables:
        if table.teams.size == teams.size:
            amounts += table.amounts
        else:
            amounts[:, np.searchsorted(teams, table.teams)] += table.amounts
    return TeamTable(teams, amounts)

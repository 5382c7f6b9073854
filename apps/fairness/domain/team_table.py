"""Amounts of all teams of a tier as one table, and as the blob that stores it.

A blob is little-endian integers of eight bytes: the teams' ids ascending, then each column in turn.
So stored, a thousand teams are one value to read instead of a thousand rows.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

TABLE_COLUMNS = ("entitlement", "demand", "fair_share", "allocated", "borrowed", "denied")
"""What a table has of a team, in this order."""
_STORED = np.dtype("<i8")
_Whole = npt.NDArray[np.int64]


class TeamTable(Struct, frozen=True):
    """Nano-GPU-hours: `teams` are ids in ascending order, `amounts` is (columns, teams)."""

    teams: _Whole
    amounts: _Whole

    def column(self, name: str) -> _Whole:
        """Return the amounts of one of TABLE_COLUMNS, one of each team."""
        found: _Whole = self.amounts[TABLE_COLUMNS.index(name)]
        return found

    def only(self, teams: Iterable[int]) -> "TeamTable":
        """Return the same of these teams alone."""
        kept = np.isin(self.teams, np.array(list(teams), dtype=np.int64))
        return TeamTable(self.teams[kept], self.amounts[:, kept])


def table_of(rows: Sequence[Sequence[int]]) -> TeamTable:
    """Return rows of (team, *TABLE_COLUMNS), of each team one, as a table."""
    ordered = np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int64).reshape(
        len(rows), 1 + len(TABLE_COLUMNS)
    )
    return TeamTable(ordered[:, 0], ordered[:, 1:].T)


def encode_table(table: TeamTable) -> bytes:
    """Return a table as the value that is stored."""
    # The byte order is fixed, so that a database can move to another machine.
    return np.vstack([table.teams, table.amounts]).astype(_STORED).tobytes()


def decode_table(stored: bytes | memoryview) -> TeamTable:
    """Return the table of a blob. Raises ValueError for what is none."""
    found = (
        np.frombuffer(stored, dtype=_STORED).reshape(1 + len(TABLE_COLUMNS), -1).astype(np.int64)
    )
    return TeamTable(found[0], found[1:])


def sum_tables(tables: Sequence[TeamTable]) -> TeamTable:
    """Return the sums by team, exactly."""
    if not tables:
        return table_of(())
    teams = np.unique(np.concatenate([table.teams for table in tables]))
    amounts = np.zeros((len(TABLE_COLUMNS), teams.size), dtype=np.int64)
    for table in tables:
        # Mostly the same teams: then the whole table is added without a search.
        if table.teams.size == teams.size:
            amounts += table.amounts
        else:
            amounts[:, np.searchsorted(teams, table.teams)] += table.amounts
    return TeamTable(teams, amounts)

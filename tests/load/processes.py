"""CPU seconds and memory of processes that run, as Linux counts them."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

_TICKS = os.sysconf("SC_CLK_TCK")


class Used(Struct, frozen=True):
    """CPU seconds so far, and MiB resident: of all processes now, and the most of one of them."""

    cpu_seconds: float
    mib: float
    largest_mib: float

    def since(self, before: "Used") -> "Used":
        """Return the CPU seconds used since `before`, and the memory of now."""
        return Used(self.cpu_seconds - before.cpu_seconds, self.mib, self.largest_mib)


def used(pid: int) -> Used:
    """Return what a process and its children use; what children used that ended is counted."""
    cpu, resident = 0.0, []
    for one in _tree(pid):
        try:
            # The name may hold spaces: fields are counted after its closing bracket.
            fields = (
                Path(f"/proc/{one}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            )
            pages = int(Path(f"/proc/{one}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            # It ended meanwhile.
            continue
        cpu += sum(map(int, fields[11:15])) / _TICKS
        resident.append(pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20))
    return Used(cpu, sum(resident), max(resident, default=0.0))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in children:
            yield from _tree(int(child))

"""`make bench`: measure, print each figure beside its target, and write them to var/bench.json.

    python -m tests.bench [--data FOLDER] [--results FILE]

BENCH=quick measures 1,000 GPUs and little else, BENCH=full adds 100,000 (whose data takes 15 GB
of disk and a quarter of an hour to make, once, and 1 GB to keep). DATABASE_URL names an empty
database; without it a temporary PostgreSQL is used. Targets that are missed are shown; the exit
code is 1 only when something broke.
"""

import argparse
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from tests.bench import measures
from tests.bench.figures import Figure, show, write
from tests.bench.measures import Scope
from tests.bench.programs import BenchFailed
from tests.servers import ROOT, temporary_postgres

SCOPES = {
    "quick": Scope(
        sizes=(1_000,),
        rows=2_000,
        pods=1_000,
        history=(9, 2, 320),
        waiting=(50, 600),
        fairness=(30, 3, 10),
        quotas=60,
        audit=500,
        exports=4_000,
        campus_days=0,
        repetitions=1,
        timed=False,
    ),
    "": Scope(sizes=(1_000, 10_000)),
    "full": Scope(sizes=(1_000, 10_000, 100_000), audit=1_000_000, exports=2_000_000),
}


def main() -> int:
    """Run everything; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "var" / "bench-data")
    parser.add_argument("--results", type=Path, default=ROOT / "var" / "bench.json")
    options = parser.parse_args()
    chosen = os.environ.get("BENCH", "")
    if chosen not in SCOPES:
        parser.error(f"BENCH={chosen!r}: quick, full or nothing")
    console = Console(width=None if sys.stdout.isatty() else 140)
    say = Console(stderr=True).log
    signal.signal(signal.SIGTERM, _stop_on_termination)
    figures: list[Figure] = []
    broken = ""
    try:
        with _place() as folder:
            scope = SCOPES[chosen]
            os.environ["BENCH_REPETITIONS"] = str(scope.repetitions)
            # What was measured before something broke stays.
            figures.extend(measures.all_of(scope, options.data, folder, say))
    except BenchFailed as failure:
        broken = f"The bench broke: {failure}"
    except (KeyboardInterrupt, SystemExit):
        broken = "The bench was ended before it was done."
    show(figures, _machine(), console)
    write(figures, options.results)
    console.print(_summary(figures), f"Written to {options.results}.", highlight=False)
    if broken:
        console.print(broken, highlight=False, markup=False)
    return 1 if broken else 0


@contextmanager
def _place() -> Iterator[Path]:
    """Yield a folder for what need not stay, with a database and a `var/` for the workers."""
    with ExitStack() as stack:
        found = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpuportal-bench-"))
        os.environ.setdefault("GPUPORTAL_VAR_DIR", found)
        if not os.environ.get("DATABASE_URL"):
            os.environ["DATABASE_URL"] = stack.enter_context(temporary_postgres())
        yield Path(found)


def _stop_on_termination(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    load = os.getloadavg()[1]
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.machine()}, Python "
        f"{platform.python_version()}; load of the last five minutes {load:.1f}"
    )


def _summary(figures: list[Figure]) -> str:
    judged = [figure for figure in figures if figure.holds is not None]
    missed = sum(not figure.holds for figure in judged)
    return f"{len(judged) - missed} of {len(judged)} targets hold."


if __name__ == "__main__":
    sys.exit(main())

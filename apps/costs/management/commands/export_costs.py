"""`manage.py export_costs --period 2026-10 --format csv --output F`."""

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path
from shutil import copyfileobj
from typing import Any, BinaryIO, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.accounts.permissions import EVERYTHING
from apps.costs.adapters.formats import write
from apps.costs.domain.costing import STATEMENTS, Basis, Policy
from apps.costs.domain.files import CostFile, FileFormat, FileRefused
from apps.costs.management.periods import month
from apps.costs.selectors import charging, closed_period, period_file, uncollected_hours
from apps.costs.services import sha256_of_file
from apps.costs.services.exports import closed_copy

_BLOCK = 1 << 20
_Put = Callable[[BinaryIO], object]


class Command(BaseCommand):
    help = "Write what a month cost, by day and workload, as a file: CSV, XLSX, Parquet or FOCUS."

    def add_arguments(self, parser: CommandParser) -> None:
        basis, policy = charging()
        parser.add_argument("--period", required=True, help="a month such as 2026-10")
        parser.add_argument("--format", required=True, choices=[f.value for f in FileFormat])
        parser.add_argument("--output", required=True, metavar="F", help="the file; - is stdout")
        parser.add_argument(
            "--basis",
            choices=[b.value for b in Basis],
            default=basis.value,
            help="charge what was held, or what was used; a closed month keeps its own",
        )
        parser.add_argument(
            "--policy",
            choices=[p.value for p in Policy],
            default=policy.value,
            help="who pays unallocated cost; a closed month keeps its own",
        )
        parser.add_argument("--bom", action="store_true", help="begin a CSV with a mark for Excel")

    def handle(self, *args: Any, **options: Any) -> None:
        format_, period = FileFormat(options["format"]), month(options["period"])
        if options["bom"] and format_.suffix != "csv":
            raise CommandError(
                "--bom is for CSV: the other formats tell by themselves what they are"
            )
        try:
            file = period_file(
                period,
                format_,
                visibility=EVERYTHING,
                basis=Basis(options["basis"]),
                policy=Policy(options["policy"]),
            )
            with ExitStack() as stack:
                put = _writer(file, format_, period, stack, bom=options["bom"])
                # Nothing else may be printed: the file itself goes to stdout.
                if options["output"] == "-":
                    _to_stdout(put, format_)
                    self._warn(period)
                    return
                sha = _to_file(put, Path(options["output"]))
        except FileRefused as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(
                f"{options['output']} cannot be written: {error.strerror}"
            ) from error
        self._tell(file, format_, sha, options)

    def _warn(self, period: date) -> None:
        """Say of which hours the file has no costs; beside it, where it goes to stdout."""
        for one in uncollected_hours(period, now=timezone.now()):
            self.stderr.write(f"Warning: {one.text}. The file has no costs of them.")

    def _tell(self, file: CostFile, format_: FileFormat, sha: str, options: dict[str, Any]) -> None:
        notes, period = file.notes, month(options["period"])
        self.stdout.write(f"{options['output']}: {options['period']} as {format_.value}")
        self.stdout.write(
            f"{notes.time_zone}, {notes.currency}, basis {notes.basis}, price book "
            f"{notes.price_book}. {STATEMENTS[Policy(notes.policy)]}"
        )
        self._warn(period)
        if notes.unpriced_gpu_hours:
            self.stdout.write(f"{notes.unpriced_gpu_hours:,.2f} GPU-hours are unpriced.")
        self.stdout.write(f"SHA-256 {sha}")
        closed = closed_period(period)
        if closed is None:
            self.stdout.write("The month is not closed: it may change still.")
        elif format_.value in closed.files and not options["bom"]:
            same = closed.files[format_.value] == sha
            said = "as it was closed" if same else "NOT the file that was closed"
            self.stdout.write(f"Closed on {closed.closed_at:%Y-%m-%d}; this is {said}.")


def _writer(
    file: CostFile, format_: FileFormat, period: date, stack: ExitStack, *, bom: bool
) -> _Put:
    """Return what writes the file: of a closed month its kept bytes, else the rows."""
    closed = closed_period(period)
    # A mark for Excel is not among the bytes that were closed.
    if closed is None or bom or format_.value not in closed.files:
        return lambda out: write(file, format_, out, bom=bom)
    kept = stack.enter_context(closed_copy(closed, format_, now=timezone.now()).binary)
    return lambda out: copyfileobj(kept, out, _BLOCK)


def _to_file(put: _Put, path: Path) -> str:
    """Write beside the file first, so that a run that is cut short leaves no half of one."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as out:
        beside, opened = Path(out.name), cast("BinaryIO", out)
        try:
            put(opened)
            sha = sha256_of_file(opened)
            # Temporary files are for their owner alone, but a file of costs is fetched by others.
            beside.chmod(0o640)
            beside.replace(path)
        # Interrupts too: they would leave a hidden file behind.
        except BaseException:
            with suppress(FileNotFoundError):
                beside.unlink()
            raise
    return sha


def _to_stdout(put: _Put, format_: FileFormat) -> None:
    out: BinaryIO = sys.stdout.buffer
    if format_ is not FileFormat.XLSX:
        put(out)
        return
    # A workbook is a zip file, which is not written from front to back.
    with tempfile.TemporaryFile() as beside:
        put(beside)
        beside.seek(0)
        copyfileobj(beside, out, _BLOCK)

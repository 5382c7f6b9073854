"""`export_audit FILE`: the audit as JSON lines, for auditors."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.services import audit_head, written_head
from apps.quota_requests.permissions import portal
from apps.quota_requests.selectors import audit_texts


class Command(BaseCommand):
    help = (
        "Write the audit as JSON lines; the last is the head of the whole, which `verify_audit "
        "--expect` takes. Each line's digest can be worked out again from what stands in it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="where to; what is there is written over")
        for name, which in (("--start", "first"), ("--end", "first not wanted any more")):
            parser.add_argument(name, metavar="T", help=f"the {which}: a day or RFC 3339, in UTC")

    def handle(self, *_: Any, **options: Any) -> None:
        start, end = _time(options["start"]), _time(options["end"])
        lines = audit_texts(portal("manage.py export_audit"), start=start, end=end)
        try:
            with options["file"].open("w", encoding="ascii") as file:
                written = sum(file.write(line) > 0 for line in lines)
        except OSError as error:
            raise CommandError(f"cannot write {options['file']}: {error}") from error
        entries = max(0, written - 1)  # the last line is the head
        self.stdout.write(f"{entries} entries are in {options['file']}.")
        self.stdout.write(written_head(audit_head()))


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(f"{text!r} is no time as 2026-10-01 or 2026-10-01T08:00Z") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)

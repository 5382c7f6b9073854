"""`verify_audit`: say whether the audit of quota changes is whole, and which line is not."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.changes import services


class Command(BaseCommand):
    help = (
        "Check every line of the audit against the one before it. Exits with 1 and names the "
        "first line that was altered or is missing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--head",
            default="",
            metavar="NUMBER:DIGEST",
            help="what an earlier run printed, or an export ends with: shows an audit that was "
            "written anew as a whole",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            noted = services.read_head(options["head"]) if options["head"] else None
        except services.NoHead as error:
            raise CommandError(str(error)) from error
        verdict = services.verify(noted)
        if not verdict.holds:
            raise CommandError(verdict.words)
        self.stdout.write(verdict.words)
        head = services.audit_head()
        if head is not None:
            self.stdout.write(f"{head.number}:{head.digest}")

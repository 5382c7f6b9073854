"""`verify_audit`: say whether the audit is whole, and which line is not."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.services import NoHead, audit_head, read_head, written_head
from apps.quota_requests import services


class Command(BaseCommand):
    help = (
        "Check every line of the audit against the one before it. Exits with 1 and names the "
        "first line that was altered or is missing. The last line is the head: keep it where "
        "the administrators of this database cannot write, and pass it to --expect next time."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument(
            "--head",
            action="store_true",
            help="print nothing but the head, NUMBER:DIGEST, without checking anything",
        )
        which.add_argument(
            "--expect",
            default="",
            metavar="HEAD",
            help="a head of earlier, from here or the end of an export: shows an audit that was "
            "emptied, cut off or written anew as a whole",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        if options["head"]:
            self.stdout.write(written_head(audit_head()))
            return
        try:
            noted = read_head(options["expect"]) if options["expect"] else None
        except NoHead as error:
            raise CommandError(str(error)) from error
        verdict = services.verify(noted)
        if not verdict.holds:
            raise CommandError(verdict.words)
        self.stdout.write(verdict.words)
        self.stdout.write(written_head(audit_head()))

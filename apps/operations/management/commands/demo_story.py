"""`demo_story`: what the people of the demo did; `demo` runs it itself."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.operations.management.commands.demo import refuse_production
from apps.operations.management.demo_setup import (
    NotTheDemo,
    Story,
    close_last_month,
    read_what_is_over,
)


class Command(BaseCommand):
    help = "Make the quota requests and proposals of the demo, or close its month. Part of `demo`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("part", choices=("requests", "month"))

    def handle(self, *_: Any, **options: Any) -> None:
        refuse_production()
        try:
            story = Story(lambda: datetime.now(UTC))
        except NotTheDemo as error:
            raise CommandError(f"{error}: this is not the demo's database") from error
        if options["part"] == "requests":
            self.stdout.write(f"Quota requests made: {story.tell()}.")
            self.stdout.write(f"Proposals made: {story.propose()}.")
            read_what_is_over(datetime.now(UTC))
            return
        closed = close_last_month(datetime.now(UTC))
        self.stdout.write(f"{closed:%Y-%m} is closed." if closed else "No month is to be closed.")

"""`demo_story`: the tables and people of the demo and what they did; `demo` runs it itself."""

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from apps.accounts.permissions import EVERYTHING
from apps.clusters.selectors import cluster_rows
from apps.operations.management.commands.demo import refuse_production
from apps.operations.management.demo_directory import APART
from apps.operations.management.demo_setup import (
    NotTheDemo,
    Story,
    close_last_month,
    ensure_people,
    read_what_is_over,
)

CLUSTERS = ("lab", "metro")
"""Those that scenarios have."""


class Command(BaseCommand):
    help = "Make the tables, the quota requests and proposals, or the month of the demo."
    # Before its own migrations have run, the database has nothing to check.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("part", choices=("begin", "requests", "month"))
        parser.add_argument("catalog", nargs="?", help="file of the catalog; with `begin`")

    def handle(self, *_: Any, **options: Any) -> None:
        refuse_production()
        if options["part"] == "begin":
            self.stdout.write(json.dumps(begin(options["catalog"])))
            return
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


def begin(catalog: str) -> dict[str, list[str]]:
    """Make the tables, load the catalog and make the people; return their names and clusters'.

    Raises CommandError when a real portal's clusters are in the database.
    """
    call_command("migrate", interactive=False, verbosity=0)
    refuse_foreign(_clusters())
    call_command("load_catalog", catalog, stdout=StringIO())
    return {"people": [person.name for person in ensure_people()], "clusters": _clusters()}


def _clusters() -> list[str]:
    return [row.name for row in cluster_rows(visibility=EVERYTHING)]


def refuse_foreign(clusters: Sequence[str]) -> None:
    """Raise CommandError when a real portal's clusters are in the database."""
    foreign = [name for name in clusters if name not in CLUSTERS]
    if foreign:
        raise CommandError(
            f"the database holds clusters that are not the demo's ({', '.join(foreign)}): {APART}"
        )

"""Writes the database of a release, with rows, for the tests of upgrades from it.

When a release is made, keep what the next ones upgrade from (VERSION as in the CHANGELOG):

    python -m tests.servers -- python -m tests.upgrade.make_dump VERSION

The rows are those of two hours of the simulator's worked example. A dump is never made anew: it is
what the release wrote. `ROOM=MIGRATION` goes back to a migration of a room before the dump, which
0.1.0 was made with: accounts=0001 costs=0001 operations=0001.
"""

import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.portal import Portal, portal
from tests.programs import find
from tests.servers import accepts, free_port
from tests.upgrade.dumps import FOLDER

HOURS = 2


def fill(made: Portal) -> None:
    """Load a catalog, collect some hours, and make a person."""
    port = free_port()
    scenario = ("--scenario", "reference", "--port", str(port))
    made.start("manage", "lab", "serve", *scenario, log="lab.log")
    made.wait_for(lambda: accepts(port), "the lab")
    catalog = made.folder / "catalog.yaml"
    catalog.write_text(made.manage("lab", "catalog", *scenario), encoding="utf-8")
    made.manage("load_catalog", str(catalog))
    made.manage("person", "ada", "--role", "admin", "--single-sign-on")
    today = datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0)
    start = today - timedelta(days=2)
    words = ("--start", start.isoformat(), "--end", (start + timedelta(hours=HOURS)).isoformat())
    made.manage("collect", "--cluster", "lab", *words)


def main(version: str, back_to: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, portal(Path(folder)) as made:
        fill(made)
        for one in back_to:
            made.manage("migrate", *one.split("="), "--verbosity", "0")
        words = ["--inserts", "--rows-per-insert=500", "--no-owner", "--no-privileges"]
        dumped = subprocess.run(  # noqa: S603 - our own words
            [find("initdb").resolve().with_name("pg_dump"), *words, made.database_url],
            check=True,
            capture_output=True,
        )
    path = FOLDER / f"{version}.sql.gz"
    path.write_bytes(gzip.compress(dumped.stdout, 9, mtime=0))
    sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuportal.settings")
    import django

    django.setup()
    main(sys.argv[1], sys.argv[2:])

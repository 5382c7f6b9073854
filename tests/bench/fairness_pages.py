"""The pages of fairness, of teams and of quotas at their largest, rendered whole."""

import gc
import os
import time
from pathlib import Path
from statistics import median
from urllib.parse import quote, urlencode

from django.core.cache import cache
from django.db import connection
from django.test import Client

from apps.accounts.models import User
from tests.bench.fairness_data import FairWorld
from tests.bench.measuring import REPETITIONS


def addresses(world: FairWorld, days: int) -> dict[str, str]:
    """Return what is asked for of each page: of all the days where it has a window."""
    last = world.today.date()
    window = urlencode(
        {"first": last.fromordinal(last.toordinal() - days + 1).isoformat(), "last": str(last)}
    )
    tier, team = quote(world.tier), "team-0000"
    return {
        "fairness": f"/capacity/fairness/?{window}",
        "a tier": f"/capacity/fairness/{tier}/?{window}",
        "a statement": f"/capacity/teams/{team}/statement/?week={world.today.date()}",
        "quotas": "/quotas/",
        "teams": f"/capacity/teams/?{window}",
        "a team": f"/capacity/teams/{team}/?{window}",
        "what if": f"/capacity/fairness/{tier}/what-if/?{window}&gpus=4",
    }


def measured(world: FairWorld, days: int) -> dict[str, float]:
    """Return the processor seconds that each page takes, of the portal and of its database.

    What others run on the machine meanwhile does not count. Raises RuntimeError for a page that
    is not there.
    """
    client = Client(headers={"Host": "127.0.0.1"})
    client.force_login(User.objects.create_superuser("bench-fair", password=None))
    found = {}
    for name, address in addresses(world, days).items():
        _seconds(client, address)
        found[name] = median(_seconds(client, address) for _ in range(REPETITIONS))
    return found


def _seconds(client: Client, address: str) -> float:
    cache.clear()  # nothing that an earlier page read
    gc.collect()
    began, database = time.process_time(), _database_seconds()
    response = client.get(address)
    took = time.process_time() - began + _database_seconds() - database
    if response.status_code != 200:
        raise RuntimeError(f"{address}: {response.status_code}")
    return took


def _database_seconds() -> float:
    """Return the processor seconds of the database's process for us; 0 where it has none."""
    if connection.vendor != "postgresql":
        return 0.0
    connection.ensure_connection()
    stat = Path(f"/proc/{connection.connection.info.backend_pid}/stat").read_text(encoding="ascii")
    # After the name in brackets: fields 14 and 15 of proc(5) are user and system time.
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

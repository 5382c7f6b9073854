"""Beside the watch somebody looks at what waits, whatever else fails."""

import os
import subprocess
import sys
import threading

import pytest
from django.db import DataError, InterfaceError, OperationalError

from apps.pending.services import PendingRefresher, clusters_to_diagnose
from tests.factories import make_cluster

DEADLINE_SECONDS = 10.0


class Looked:
    """Notes which clusters are looked at, fails as told, and stops after so many looks."""

    def __init__(self, stop: threading.Event, after: int, **failures: Exception) -> None:
        self.seen: list[int] = []
        self._stop, self._after, self._failures = stop, after, failures

    def __call__(self, pk: int) -> int:
        self.seen.append(pk)
        if len(self.seen) >= self._after:
            self._stop.set()
        if f"c{pk}" in self._failures:
            raise self._failures[f"c{pk}"]
        return 0


def run(looked: Looked, stop: threading.Event) -> list[int]:
    thread = PendingRefresher(stop, None, lambda name: [1, 2], looked, seconds=0.001).start()
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()
    return looked.seen


def test_it_looks_at_every_cluster_again_and_again_until_told_to_end() -> None:
    stop = threading.Event()
    assert run(Looked(stop, 4), stop) == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(ValueError("broken"), id="broken"),
        pytest.param(DataError("value too long"), id="what it has no database takes"),
    ],
)
def test_a_cluster_that_fails_keeps_no_other_from_being_looked_at(failure: Exception) -> None:
    stop = threading.Event()
    assert run(Looked(stop, 4, c1=failure), stop) == [1, 2, 1, 2]


@pytest.mark.parametrize("failure", [OperationalError("away"), InterfaceError("closed")])
def test_while_the_database_is_away_it_comes_again(failure: Exception) -> None:
    stop = threading.Event()
    assert run(Looked(stop, 3, c1=failure), stop) == [1, 1, 1]


@pytest.mark.django_db
def test_inactive_clusters_and_others_are_left_alone() -> None:
    west, east = make_cluster("west"), make_cluster("east")
    make_cluster("gone", active=False)
    assert clusters_to_diagnose() == [west.pk, east.pk]
    assert clusters_to_diagnose("east") == [east.pk]


def test_the_watch_loads_no_rooms_that_it_does_not_need() -> None:
    unused = ("numpy", "xlsxwriter", "apprise", "highspy", "apps.fairness.selectors")
    script = (
        "import sys, django; django.setup(); import apps.operations.management.commands.watch; "
        f"print([name for name in {unused} if name in sys.modules])"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "gpuportal.settings"}
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"

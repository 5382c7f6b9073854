"""Many days of random faults, replayed by `collect`: the facts are those of quiet days."""

import os
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from apps.clusters.domain.window import Window
from apps.usage.models import CollectionWindow
from apps.usage.services import collect_window
from simulator.catalog import catalog_yaml
from tests.faults.collecting import Collecting, World, collecting, parts_of
from tests.faults.facts import differences
from tests.faults.proxy import BODY_FAULTS, Fault, Proxy, Spoiled
from tests.served_lab import scenario_of

pytestmark = [pytest.mark.django_db, pytest.mark.exhaustive, pytest.mark.usefixtures("no_pauses")]

END = datetime(2026, 11, 21, tzinfo=UTC)
DAYS = int(os.environ.get("SOAK_DAYS", "4"))
"""Days of the cluster that are collected, of the 31 that there are.

All of them take longer than `make check-full` has for a file.
"""
TOGETHER = 6
"""Hours of one query: a fault spoils them all."""


def _reference() -> World:
    now = END + timedelta(hours=12)
    scenario = scenario_of("reference", now.timestamp())
    return World(scenario, now, lambda url: catalog_yaml(scenario, url=url))


def test_days_of_random_faults_leave_the_facts_of_quiet_ones(door: Proxy) -> None:
    """Whole days in the quiet run; in the other parts of days, in any order."""
    span = Window(END - timedelta(days=DAYS), END)
    with collecting(door, world=_reference()) as portal:
        for day in parts_of(span, 24):
            _collect(portal, day)
        quiet = portal.finish(END)
    windows = list(parts_of(span, TOGETHER))
    Random(DAYS).shuffle(windows)  # noqa: S311 - no secret
    spoiled = Spoiled(DAYS, (*BODY_FAULTS, Fault.REORDERED, Fault.DROPPED))
    with collecting(door, spoiled, _reference()) as portal:
        for window in windows:
            _collect(portal, window)
        states = set(CollectionWindow.objects.values_list("state", flat=True))
        portal.hours = list(span.hours())
        portal.collect_due()
        found = portal.finish(END)
    assert "failed" in states
    assert len(door.faults) == len(BODY_FAULTS) + 2
    assert len(quiet["usage_collectionwindow"]) == 24 * DAYS
    assert differences(quiet, found) == []


def _collect(portal: Collecting, window: Window) -> None:
    collect_window("lab", window, now=portal.now(), source=portal.source)

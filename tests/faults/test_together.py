"""Several who collect the same hours at the same time."""

import threading
from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest
from django.db import connection

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster
from apps.operations.services import derive_after_hours
from apps.usage.domain.collection import CollectionState
from apps.usage.models import CollectionWindow
from apps.usage.services import HourOutcome, backfill_plan, collect_window, note_backfill
from tests.faults.collecting import START, Collecting, collecting, count_ids_anew, installed
from tests.faults.facts import differences, facts
from tests.faults.proxy import Proxy
from tests.quota_requests.test_at_once import at_once

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.long,
    pytest.mark.skipif(
        connection.vendor == "sqlite",
        reason="the tests' SQLite is in memory, where threads cannot wait for one another",
    ),
]

DAY = [Window.hour(START + timedelta(hours=n)) for n in range(-2, 2)]
"""All that a backfill of the day finds: since midnight."""


def _source() -> PrometheusSource:
    """Return a connection of its own, as each process has."""
    return PrometheusSource(
        PrometheusApi(PrometheusConfig.from_catalog(Cluster.objects.get().prometheus))
    )


def _each_hour(portal: Collecting, hours: Sequence[Window], turn: threading.Barrier) -> None:
    """Collect the hours as a worker does, each when the other worker begins it too."""
    source = _source()
    try:
        for hour in hours:
            turn.wait(60)
            collect_window("lab", hour, now=portal.now(), source=source)
    finally:
        source.close()


def _backfill(portal: Collecting) -> list[HourOutcome]:
    """Collect the day as `backfill --again` does, and compute what follows."""
    plan = backfill_plan("lab", 0, now=portal.now(), again=True)
    note_backfill("lab", plan)
    source = _source()
    try:
        ended = [
            one
            for window in plan
            for one in collect_window("lab", window, now=portal.now(), source=source)
        ]
    finally:
        source.close()
    derive_after_hours(portal.now)
    return ended


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n == 1 else pytest.mark.exhaustive) for n in range(1, 9)]
)
def test_two_workers_and_a_backfill_at_the_same_hours_write_what_one_writes(
    door: Proxy, seed: int
) -> None:
    with collecting(door) as portal:
        portal.collect_all(DAY)
        portal.derive()
        quiet = facts()
    hours = Random(seed).sample(DAY, len(DAY))  # noqa: S311 - no secret
    count_ids_anew()
    with installed(door) as portal:
        portal.move_to(DAY[-1].end + timedelta(minutes=10))
        turn = threading.Barrier(2)
        ended = at_once(
            [
                lambda: _each_hour(portal, hours, turn),
                lambda: _each_hour(portal, hours, turn),
                lambda: _backfill(portal),
            ]
        )
        portal.derive()
        found = facts()
    assert ended[:2] == [None, None]
    assert [one.state for one in ended[2]] == [CollectionState.COMPLETE] * len(DAY)  # type: ignore[attr-defined]
    assert min(CollectionWindow.objects.values_list("attempts", flat=True)) == 3
    assert differences(quiet, found) == []

"""Databases that a portal has filled and left, for what others do upon them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.conf import settings

from apps.clusters.adapters.prometheus.client import PrometheusApi
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.source import PrometheusSource
from apps.clusters.models import Cluster
from apps.clusters.services import store_device_states
from apps.operations.services import load_catalog
from apps.usage.services import collect_enqueued, schedule_collections
from tests.faults.collecting import HOURS, START, Collecting, catalog
from tests.faults.kills import connected_to, database
from tests.faults.proxy import Proxy
from tests.simulator.client import serving
from tests.simulator.only_faults import faults_once

CLOSED = HOURS[-1].end + timedelta(minutes=10)
"""When both hours can be collected."""
DAY_AFTER = START + timedelta(days=1)
"""The simulated cluster is there until then."""
LEASES = timedelta(seconds=settings.LEASE_SECONDS + 1)
"""After it all leases of who was killed are over."""


@contextmanager
def portal_at(door: Proxy, at: datetime) -> Iterator[Collecting]:
    """Serve the simulated cluster behind a door, at a time."""
    with serving(faults_once(), START.timestamp()) as served:
        door.target = served.url
        entry = {"url": door.url, "matchers": {"cluster": "lab"}}
        source = PrometheusSource(PrometheusApi(PrometheusConfig.from_catalog(entry)))
        portal = Collecting(door, served.clock, source)
        portal.move_to(at)
        yield portal
        source.close()


@contextmanager
def messages() -> Iterator[list[dict[str, Any]]]:
    """Yield what workers are told of meanwhile; nothing leaves for a broker."""
    found: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(current_app, "send_task", lambda _, kwargs, **__: found.append(kwargs))
        yield found


def beat(portal: Collecting) -> None:
    """Enqueue what is to be collected, and let a worker do it."""
    with messages() as told:
        schedule_collections(now=portal.now())
    for message in told:
        collect_enqueued(
            message["cluster_id"],
            datetime.fromisoformat(message["hour"]),
            now=portal.now(),
            enqueued=datetime.fromisoformat(message["enqueued"]),
        )


@contextmanager
def watched(door: Proxy, folder: Path) -> Iterator[str]:
    """Yield the name of a database with a watched hour, of which nothing is collected."""
    with database(folder) as name:
        with portal_at(door, START) as portal, connected_to(name):
            load_catalog(catalog(door.url), "catalog.yaml", now=START, dry_run=False)
            Cluster.objects.update(collect_from=START)
            portal.watch()
        yield name


@contextmanager
def collected(door: Proxy, folder: Path, like: str) -> Iterator[str]:
    """Yield the name of a copy of a watched database whose hours are collected, and GPUs seen."""
    with database(folder, like) as name:
        with portal_at(door, CLOSED) as portal, connected_to(name):
            beat(portal)
            # Of what is looked at there and then, the look that is lost is not taken again.
            portal.move_to(DAY_AFTER)
            store_device_states(Cluster.objects.get().pk, portal.now())
        yield name


@contextmanager
def derived(door: Proxy, folder: Path) -> Iterator[str]:
    """Yield the name of a database with all that follows from the hours."""
    with watched(door, folder) as before, collected(door, folder, before) as name:
        with portal_at(door, DAY_AFTER) as portal, connected_to(name):
            assert portal.derive()
        yield name

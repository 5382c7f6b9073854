"""What the people of the demo did before somebody looks."""

from datetime import UTC, datetime

import pytest
from django.contrib.auth import get_user_model

from apps.accounts.models import User
from apps.accounts.permissions import visibility_of
from apps.alerts.models import Alert
from apps.alerts.selectors import unread_count
from apps.clusters.domain.window import Window
from apps.clusters.gateways import cluster_source
from apps.clusters.models import Cluster
from apps.clusters.services.watch.follow import snapshot
from apps.operations.management.demo_setup import (
    NotTheDemo,
    Story,
    close_last_month,
    ensure_people,
    read_what_is_over,
)
from apps.operations.services import gather_alerts, load_catalog
from apps.quota_requests.domain.states import RequestState
from apps.quota_requests.models import ChangeRequest
from apps.quota_requests.permissions import actor_of
from apps.quota_requests.selectors import tier_bookings
from apps.quota_requests.services import verify
from simulator.catalog import catalog_yaml
from simulator.scenarios.base import Scenario
from tests.served_lab import scenario_of, served_lab
from tests.simulator.conftest import NOW

pytestmark = [pytest.mark.django_db, pytest.mark.long]

AT = datetime.fromtimestamp(NOW, UTC)


def test_there_is_one_request_in_each_state() -> None:
    scenario = scenario_of("campus", NOW)
    with served_lab(scenario, NOW) as url:
        load_catalog(catalog_yaml(scenario, url=url), "catalog.yaml", now=AT, dry_run=False)
        ensure_people()
        cluster = Cluster.objects.get(name="lab")
        source = cluster_source(cluster)
        assert source is not None
        snapshot(cluster, source, AT)
        source.close()
        story = Story(lambda: AT)
        assert story.tell() == len(RequestState)
        assert story.tell() == 0
        assert (story.propose(), story.propose()) == (2, 0)

    states = ChangeRequest.objects.order_by("state").values_list("state", flat=True)
    assert list(states) == sorted(state.value for state in RequestState)
    assert verify().holds
    _check_booking(scenario)
    gather_alerts(now=AT)
    unread = read_what_is_over(AT)
    assert 2 < unread <= 10
    assert len(Alert.objects.values("kind", "subject").distinct()) > unread
    for name in ("ada", "admin"):
        user = User.objects.get(username=name)
        assert unread_count(user, visibility=visibility_of(user)) == unread


def _check_booking(scenario: Scenario) -> None:
    """Hold the booking against the devices of its tier: it fits beside all entitlements."""
    booking = ChangeRequest.objects.get(state=RequestState.SCHEDULED.value)
    assert booking.starts_at is not None
    assert booking.until is not None
    assert booking.tiers == ["mig-3g"]
    admin = actor_of(User.objects.get(username="admin"), origin="demo")
    week = Window(booking.starts_at, booking.until)
    assert AT < week.start < week.end
    booked = tier_bookings("mig-3g", week, actor=admin, now=AT)
    assert [(row.id, row.approved) for row in booked.rows] == [(booking.pk, True)]
    (span,) = booked.spans
    devices = (device for node in scenario.nodes for device in node.devices)
    profiles = [one.profile for device in devices for one in device.instances]
    assert span.booked == pytest.approx(4 * 3 / 7)
    assert span.entitled > 0
    # No hour was collected yet, so that the portal knows no capacity: the simulator does.
    assert span.entitled + span.booked < profiles.count("3g.40gb") * 3 / 7


def test_it_is_told_in_the_demo_alone() -> None:
    get_user_model().objects.create_user("ada", email="ada@example.org")
    with pytest.raises(NotTheDemo):
        Story(lambda: AT)


def test_a_month_without_facts_is_not_closed() -> None:
    assert close_last_month(AT) is None

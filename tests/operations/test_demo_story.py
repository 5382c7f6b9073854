"""What the people of the demo did before somebody looks."""

from datetime import UTC, datetime

import pytest
from django.contrib.auth import get_user_model

from apps.accounts.models import User
from apps.accounts.permissions import visibility_of
from apps.alerts.models import Alert
from apps.alerts.selectors import unread_count
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
from apps.quota_requests.services import verify
from simulator.catalog import catalog_yaml
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
    gather_alerts(now=AT)
    unread = read_what_is_over(AT)
    assert 2 < unread <= 10
    assert len(Alert.objects.values("kind", "subject").distinct()) > unread
    for name in ("ada", "admin"):
        user = User.objects.get(username=name)
        assert unread_count(user, visibility=visibility_of(user)) == unread


def test_it_is_told_in_the_demo_alone() -> None:
    get_user_model().objects.create_user("ada", email="ada@example.org")
    with pytest.raises(NotTheDemo):
        Story(lambda: AT)


def test_a_month_without_facts_is_not_closed() -> None:
    assert close_last_month(AT) is None

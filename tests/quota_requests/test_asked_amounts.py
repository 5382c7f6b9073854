"""What may be asked for and by when, who knows of it, and since when it stands."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from apps.accounts.models import AuditEntry, Membership
from apps.clusters.domain.observed.objects import (
    ClusterQueueSnapshot,
    FlavorQuota,
    LocalQueueSnapshot,
    ObservedKind,
)
from apps.quota_requests import services
from apps.quota_requests.domain.targets import TargetRefused
from apps.quota_requests.permissions import portal as itself
from apps.quota_requests.selectors import request_detail, request_rows
from tests.quota_requests.portal import NOW, Portal, make_portal, make_sighting
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db


_portal = shared(lambda: make_portal(None))
# Its cluster cannot be reached.
portal = copy_of("_portal")


@pytest.mark.parametrize("when", ["needed_by", "until"])
def test_a_year_that_is_a_slip_of_the_pen_is_refused(portal: Portal, when: str) -> None:
    west_of_us = timezone(-timedelta(hours=5))
    last = datetime(9999, 12, 31, 23, tzinfo=west_of_us)
    with pytest.raises(services.RequestRefused, match="9999 is too far off"):
        portal.draft("ada", **{when: last})
    pk = portal.draft("ada", **{when: datetime(2099, 12, 30, tzinfo=UTC)})
    changes: dict[str, Any] = {when: last}
    edited = services.Edited(**changes)
    with pytest.raises(services.RequestRefused, match="too far off"):
        services.edit(pk, edited, by=portal.actor("ada"), version=1, now=portal.now)


def test_the_same_end_written_in_another_zone_is_no_change(portal: Portal) -> None:
    end = NOW + timedelta(days=9)
    pk = portal.draft(until=end)
    elsewhere = end.astimezone(timezone(timedelta(hours=1)))
    edited = services.Edited(reason="Other.", until=elsewhere)
    services.edit(pk, edited, by=portal.actor("ada"), version=1, now=portal.now)
    line = AuditEntry.objects.filter(action="edit").latest("number")
    assert "Other." in line.after
    assert "until" not in line.after


@pytest.mark.parametrize("after", ["0.5", "7500m", "8Ki", "1e1", "2k"])
def test_only_whole_units_in_plain_digits_are_asked_for(portal: Portal, after: str) -> None:
    with pytest.raises(TargetRefused, match=r"whole number|is that what is meant"):
        portal.draft(after=after)


def test_since_when_a_state_lasts_is_not_when_its_row_was_written(portal: Portal) -> None:
    pk = portal.submitted()
    portal.wait(minutes=5)
    ada = portal.actor("ada")
    Membership.objects.filter(username="ben").update(lead=True)
    edited = services.Edited(reason="Other.")
    services.edit(pk, edited, by=portal.actor("ben"), version=2, now=portal.now)
    row = request_detail(pk, ada).row  # type: ignore[union-attr]
    assert (row.changed_at, row.changed_by) == (portal.now, "ben")
    assert (row.state_since, row.state_by) == (NOW, "ada")
    portal.wait(minutes=5)
    cleo = portal.actor("cleo")
    services.take(pk, by=cleo, version=portal.of(pk).version, now=portal.now)
    row = request_detail(pk, ada).row  # type: ignore[union-attr]
    assert (row.state_since, row.state_by) == (portal.now, "cleo")


@pytest.mark.parametrize(
    ("who", "sees"),
    [("ada", True), ("ben", True), ("cleo", False), ("finn", False), ("dan", False)],
)
def test_a_draft_is_known_to_its_authors_and_their_team_alone(
    portal: Portal, who: str, sees: bool
) -> None:
    pk = portal.draft()
    actor = portal.actor(who)
    assert bool(request_rows(actor).rows) is sees
    assert (request_detail(pk, actor) is not None) is sees
    assert request_rows(itself()).rows
    own = portal.draft(by="cleo")
    assert [row.id for row in request_rows(portal.actor("cleo")).rows] == [own]


def test_of_a_shared_queue_the_number_of_anothers_request_is_not_told() -> None:
    portal = make_portal(None)
    queue = ClusterQueueSnapshot(quotas=(FlavorQuota("default", "nvidia.com/gpu", 4.0),))
    make_sighting(portal.cluster, ObservedKind.CLUSTER_QUEUE, "cq", queue)
    for team in ("vision", "speech"):
        local = LocalQueueSnapshot(cluster_queue="cq")
        make_sighting(
            portal.cluster, ObservedKind.LOCAL_QUEUE, "main", local, namespace=f"team-{team}"
        )
    place = {"source": "ClusterQueue", "namespace": "", "name": "cq"}
    asked = {**place, "key": "default/nvidia.com/gpu", "before": "4", "after": "5"}
    first = portal.draft(by="cleo", team="speech", **asked)
    services.submit(first, by=portal.actor("cleo"), version=1, now=portal.now)
    second = portal.draft(by="cleo", team="vision", **asked)
    for who, number in (("ada", None), ("cleo", first)):
        with pytest.raises(services.KeyTaken) as taken:
            services.submit(second, by=portal.actor(who), version=1, now=portal.now)
        assert taken.value.number == number
        assert (str(first) in str(taken.value)) == (number is not None)


def test_the_most_that_kubernetes_holds_can_be_lowered() -> None:
    portal = make_portal(None)
    portal.see(float(2**63 - 1))
    assert portal.draft(before=str(2**63 - 1), after="8")
    with pytest.raises(TargetRefused, match="more than any cluster"):
        portal.draft(before=str(2**63 - 1), after=str(2**60))

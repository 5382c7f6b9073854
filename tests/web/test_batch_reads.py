"""Small queries that are sent as one statement give what each gives alone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import models
from django.db.models import Value
from pytest_django import DjangoAssertNumQueries

from apps.accounts.models import SavedView, Team
from apps.accounts.selectors import LEADS, SAVED_VIEWS, TEAMS, all_teams, saved_views
from apps.clusters.domain.window import Window
from apps.clusters.models import Cluster, Pod, TierRule
from apps.clusters.selectors import (
    ACTIVE_CLUSTERS,
    NAMESPACE_TEAMS,
    REPORT_SETTINGS,
    TIERS,
    active_clusters,
)
from apps.usage.selectors import WHOLE_NAMES
from gpuportal.queries import BatchQuery, read_batch, reading_once
from tests.factories import Portal, make_user

HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SMALL = (TEAMS, LEADS, ACTIVE_CLUSTERS, NAMESPACE_TEAMS, REPORT_SETTINGS, TIERS, WHOLE_NAMES)


def test_rows_are_those_of_each_query_alone(
    portal: Portal, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """Of texts, numbers, truth values, times and JSON, in the order of each query."""
    west = portal.clusters[0]
    west.prometheus = {"url": 'http://west.example/?a="1"&b=%s', "list": [1, 2.5, None, True]}
    west.kubernetes = None
    west.collect_from = datetime(2025, 10, 1, 2, 3, 4, 567890, tzinfo=UTC)
    west.save()
    TierRule.objects.update(resources=["nvidia.com/gpu", "a'b\\c\nd"])
    Team.objects.filter(name="vision").update(cost_center="Zürich 🚀 %d")
    alone = [list(one.rows()) for one in SMALL]
    assert all(alone)
    with reading_once():
        with django_assert_num_queries(1):
            read_batch(*(one.query() for one in SMALL))
        with django_assert_num_queries(0):
            assert [list(one.rows()) for one in SMALL] == alone
            read_batch(*(one.query() for one in SMALL))
        assert [row.name for row in active_clusters()] == sorted(
            one.name for one in portal.clusters
        )
        assert all_teams() == list(Team.objects.order_by("name"))


def test_a_query_is_read_for_its_own_arguments(portal: Portal) -> None:
    eve = make_user("eve")
    SavedView.objects.create(user=portal.ada, name="of Ada", address="/a")
    SavedView.objects.create(user=eve, name="of Eve", address="/e")
    with reading_once():
        read_batch(SAVED_VIEWS.query(portal.ada.pk), TEAMS.query())
        assert [view.name for view in saved_views(portal.ada)] == ["of Ada"]
        assert [view.name for view in saved_views(eve)] == ["of Eve"]


def test_nothing_is_kept_from_one_page_to_the_next(
    portal: Portal, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        read_batch(TEAMS.query())
    for name in ("one", "two"):
        Team.objects.filter(pk=portal.vision.pk).update(name=name)
        with reading_once():
            read_batch(TEAMS.query(), LEADS.query())
            assert name in {team.name for team in all_teams()}


def test_a_query_of_nothing_has_no_rows(portal: Portal) -> None:
    nothing: BatchQuery[[int]] = BatchQuery(lambda _: Team.objects.none().values_list("pk"))
    no_row: BatchQuery[[]] = BatchQuery(lambda: Team.objects.filter(name="-").values_list("pk"))
    with reading_once():
        read_batch(nothing.query(1), no_row.query(), TEAMS.query())
        assert (nothing.rows(1), no_row.rows()) == ([], [])
    assert (nothing.rows(1), no_row.rows()) == ([], [])


@pytest.mark.parametrize("field", [models.DecimalField, models.BinaryField])
def test_columns_that_json_may_round_are_refused(field: type[Any], db: None) -> None:
    rows = Cluster.objects.values_list(Value(None, output_field=field()))
    query: BatchQuery[[int]] = BatchQuery(lambda _: rows)
    with reading_once(), pytest.raises(TypeError, match="is not read in batches"):
        read_batch(query.query(1), TEAMS.query())


def test_dates_and_times_keep_their_types(portal: Portal) -> None:
    pods: BatchQuery[[str]] = BatchQuery(
        lambda uid: Pod.objects.filter(uid=uid).values_list("created_at", "created_at__date")
    )
    alone = list(pods.rows(portal.pods[0].uid))
    with reading_once():
        read_batch(pods.query(portal.pods[0].uid))
        assert list(pods.rows(portal.pods[0].uid)) == alone


@pytest.mark.parametrize("amount", [0.1 + 0.2, 1e22 / 3, 7.0, 5e-324, None])
def test_fractions_are_those_that_are_read_alone(amount: float | None, portal: Portal) -> None:
    query: BatchQuery[[int]] = BatchQuery(
        lambda pk: Team.objects.filter(pk=pk).values_list(
            Value(amount, output_field=models.FloatField())
        )
    )
    with reading_once():
        read_batch(query.query(portal.vision.pk), TEAMS.query())
        assert list(query.rows(portal.vision.pk)) == [(amount,)]


def _created_between(window: Window, names: tuple[str, ...]) -> models.QuerySet[Pod, Any]:
    pods = Pod.objects.filter(
        created_at__gte=window.start - HOUR, created_at__lt=window.end, name__in=names
    )
    return pods.order_by("name").values_list("name", "created_at")


def test_a_query_that_is_kept_is_read_for_its_own_times(portal: Portal) -> None:
    """Also where a name is written like a time, or like the mark of one."""
    pure = BatchQuery(_created_between, is_pure=True)
    plain = BatchQuery(_created_between)
    at = datetime(2026, 3, 1, 10, 30, 15, 250, tzinfo=UTC)
    names = ("8000-07-01 00:00:00", "2026-03-01 10:00:00", "pod")
    for place, name in enumerate(names):
        pod = portal.pods[place]
        Pod.objects.filter(pk=pod.pk).update(name=name, created_at=at + place * HOUR)
    whole = Window(at, at + 3 * HOUR)
    for window in (whole, Window(at + 2 * HOUR, at + 3 * HOUR), Window(at, at + HOUR), whole):
        # Of no names there is nothing to ask.
        for some in (names, names[:1], names[1:], ()):
            assert list(pure.rows(window, some)) == list(plain.rows(window, some))
            with reading_once():
                read_batch(pure.query(window, some), TEAMS.query())
                assert list(pure.rows(window, some)) == list(plain.rows(window, some))
    assert len(pure.rows(whole, names)) == 3


@pytest.mark.parametrize(
    "changed",
    [lambda at: at.replace(microsecond=0), lambda at: at - (at - EPOCH) / 2],
    ids=["rounded", "halved"],
)
def test_a_query_that_changes_its_times_is_not_kept(
    changed: Callable[[datetime], datetime], portal: Portal
) -> None:
    made = BatchQuery(
        lambda at: Pod.objects.filter(created_at__lt=at, bound_at__lt=changed(at)).values_list(
            "pk"
        ),
        is_pure=True,
    )
    with pytest.raises(TypeError, match="as it was given"):
        made.rows(datetime(2026, 3, 1, tzinfo=UTC))

"""Finding things by name: what is found, in which order, and by whom."""

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import DjangoAssertNumQueries

from apps.accounts.permissions import EVERYTHING, Visibility
from apps.clusters.models import NamespaceTeam
from apps.usage.selectors.search import POD_DAYS, ResultKind, SearchResult, search_by_name
from tests.factories import Portal, make_pod, make_portal, make_team, make_workload
from tests.shared_rows import copy_of, shared

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 10, tzinfo=UTC)


_portal = shared(lambda: make_portal(since=SINCE))
portal = copy_of("_portal")


def find(text: str, visibility: Visibility = EVERYTHING, limit: int = 20) -> list[SearchResult]:
    return search_by_name(text, visibility=visibility, now=NOW, limit=limit)


def names(found: list[SearchResult], kind: ResultKind | None = None) -> list[str]:
    return [row.name for row in found if kind in {None, row.kind}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("gol", [(ResultKind.TIER, "gold")], id="a tier"),
        pytest.param(
            "SPEE", [(ResultKind.TEAM, "speech"), (ResultKind.NAMESPACE, "speech")], id="any case"
        ),
        pytest.param("serve-abc", [(ResultKind.POD, "serve-abc")], id="a pod"),
        pytest.param("uid-train-0", [(ResultKind.POD, "train-0")], id="a pod by its uid"),
        pytest.param("job/train", [(ResultKind.WORKLOAD, "train")], id="a workload by its kind"),
        pytest.param(
            "prod/serve",
            [(ResultKind.WORKLOAD, "serve"), (ResultKind.POD, "serve-abc")],
            id="in a namespace",
        ),
        pytest.param("%", [], id="a wildcard stands for itself"),
        pytest.param("t_ain", [], id="and so does the other one"),
        pytest.param("\\", [], id="and what escapes them"),
    ],
)
def test_what_is_found_by_a_part_of_its_name(
    text: str, expected: list[tuple[ResultKind, str]], portal: Portal
) -> None:
    found = list(dict.fromkeys((row.kind, row.name) for row in find(text)))
    assert found == expected


def test_names_that_begin_with_the_text_come_first_and_then_the_shorter(portal: Portal) -> None:
    for name in ("big-train", "trainer", "a-train-set"):
        make_workload(portal.clusters[0], "vision", name)
    assert names(find("train"), ResultKind.WORKLOAD) == [
        "train",
        "trainer",
        "a-train-set",
        "big-train",
    ]


def test_of_each_kind_there_are_at_most_so_many(portal: Portal) -> None:
    assert names(find("train", limit=1)) == ["train", "train-0"]


def test_each_thing_says_whose_it_is_and_whether_it_is_there_now(portal: Portal) -> None:
    pod = portal.pods[2]
    pod.ended_at = NOW - timedelta(hours=2)
    pod.save()
    workload, gone = find("prod/serve")
    assert (workload.team, workload.alive, workload.last_seen_at) == ("vision", False, pod.ended_at)
    assert (gone.team, gone.alive, gone.last_seen_at) == ("vision", False, pod.ended_at)
    (running,) = find("uid-train-0")
    assert (running.alive, running.last_seen_at) == (True, None)


def test_pods_of_long_ago_are_found_by_uid_alone(portal: Portal) -> None:
    pod = portal.pods[0]
    pod.ended_at = NOW - timedelta(days=POD_DAYS, seconds=1)
    pod.created_at = pod.ended_at - timedelta(hours=1)
    pod.save()
    assert pod.name not in names(find(pod.name), ResultKind.POD)
    assert names(find(pod.uid)) == [pod.name]


def test_an_outsider_finds_the_names_of_teams_and_tiers_and_their_own(portal: Portal) -> None:
    dan = Visibility(everything=False, team_ids=frozenset({portal.speech.pk}))
    assert names(find("vision", dan)) == ["vision"]
    assert find("vision", dan)[0].kind is ResultKind.TEAM
    for hidden in ("train", "serve", "stray", "bare", "uid-train-0", "vision-prod"):
        assert find(hidden, dan) == []
    assert set(names(find("notes", dan))) == {"notes", "notes-0", "notes-east-0"}
    assert find("notes", Visibility(everything=False)) == []


def test_who_takes_a_namespace_over_finds_only_what_lived_since(portal: Portal) -> None:
    moved = NOW - timedelta(days=2)
    NamespaceTeam.objects.filter(pattern="speech").update(valid_to=moved)
    heirs = make_team("heirs", "speech", since=moved)
    old = make_workload(portal.clusters[0], "speech", "notes-old")
    make_pod(old, created_at=SINCE, finished_at=moved - timedelta(hours=1))
    own = Visibility(everything=False, team_ids=frozenset({heirs.pk}))
    assert names(find("notes", own), ResultKind.WORKLOAD) == ["notes", "notes"]
    assert {row.team for row in find("notes", own)} == {"heirs"}
    before = Visibility(everything=False, team_ids=frozenset({portal.speech.pk}))
    assert "notes-old" in names(find("notes", before))
    assert {row.team for row in find("notes", before)} == {"speech"}


@pytest.mark.parametrize("everything", [True, False])
def test_a_search_needs_no_more_queries_however_much_there_is(
    everything: bool, portal: Portal, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for n in range(15):
        make_pod(make_workload(portal.clusters[0], f"vision-{n}", f"train-{n}"), created_at=SINCE)
    own = Visibility(everything=everything, team_ids=frozenset({portal.vision.pk}))
    with django_assert_max_num_queries(13):
        assert len(find("train", own)) > 20

"""`pending` and `pending/history`: what waits, why, and for whom to see."""

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import ApiToken, User
from apps.pending.models import Episode
from tests.api.conftest import Read, client_of
from tests.factories import Portal, make_workload
from tests.pending.rows import findings, make_episode, make_looked, make_many_waiting

MINUTE = timedelta(minutes=1)
CONTRACT = (
    *("cluster", "namespace", "team", "kind", "name", "tier", "resource", "units"),
    *("gpu_equivalents", "since", "wait_seconds", "cause", "detail", "message"),
    *("node_reasons", "suggestion"),
)


@pytest.fixture
def waiting(portal: Portal) -> Portal:
    """Return a portal where vision waits for capacity and speech is refused by a quota."""
    now = timezone.now()
    west, _ = portal.clusters
    for cluster in portal.clusters:
        make_looked(cluster, now)
    make_episode(
        make_workload(west, "vision", "train"),
        "train-9",
        since=now - 60 * MINUTE,
        tier=portal.tiers[0],
        units=4.0,
        detail="fragmented",
        message="0/7 nodes are available: 5 Insufficient nvidia.com/gpu.",
        findings=findings(
            node_reasons={"Insufficient nvidia.com/gpu": 5},
            suggestions=[{"action": "free", "text": "Free 2 on node a.", "change": {"amount": 2}}],
        ),
    )
    make_episode(
        make_workload(west, "speech", "serve"),
        "serve",
        kind="ReplicaSet",
        since=now - 30 * MINUTE,
        cause="quota",
        counts="suppressed",
        tier=portal.tiers[1],
    )
    return portal


def test_a_row_has_the_fields_of_the_contract(waiting: Portal, read: Read) -> None:
    row, _ = read("pending")["results"]
    assert set(CONTRACT) <= row.keys()
    assert {key: row[key] for key in ("name", "team", "tier", "cause", "detail", "units")} == {
        "name": "train-9",
        "team": "vision",
        "tier": "gold",
        "cause": "capacity",
        "detail": "fragmented",
        "units": 4.0,
    }
    assert row["node_reasons"] == {"Insufficient nvidia.com/gpu": 5}
    assert row["suggestion"] == "Free 2 on node a."
    assert row["suggestions"][0]["change"] == {"amount": 2}
    assert row["wait_seconds"] == pytest.approx(3600, abs=60)
    assert row["stale"] is False


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({}, ["train-9", "serve"]),
        ({"cause": "quota"}, ["serve"]),
        ({"cause": "quota,capacity", "team": "vision"}, ["train-9"]),
        ({"kind": "ReplicaSet"}, ["serve"]),
        ({"tier": "gold"}, ["train-9"]),
        ({"cluster": "east"}, []),
        ({"namespace": "speech"}, ["serve"]),
        ({"order": "most"}, ["train-9", "serve"]),
    ],
)
def test_filters_narrow_pending_work(
    waiting: Portal, read: Read, params: dict[str, str], names: list[str]
) -> None:
    assert [row["name"] for row in read("pending", params)["results"]] == names


def test_others_see_neither_names_nor_messages(waiting: Portal, read: Read) -> None:
    assert [r["name"] for r in read("pending", user=waiting.ada)["results"]] == ["train-9"]
    assert [r["name"] for r in read("pending", user=waiting.dan)["results"]] == ["serve"]
    by_team = {"group_by": "team", **_today()}
    rows = read("pending/history", by_team, user=waiting.dan)["results"]
    assert {row["team"] for row in rows} == {"vision", "speech"}, "sums of teams are for everybody"
    by_namespace = read("pending/history", by_team | {"group_by": "namespace"}, user=waiting.dan)
    assert {row["namespace"] for row in by_namespace["results"]} == {"speech"}


@pytest.mark.parametrize("form", ["json", "csv"])
def test_suggestions_do_not_name_pods_of_teams_that_one_does_not_see(
    waiting: Portal, form: str
) -> None:
    holders = ["speech/secret-0", "vision/known-0"]
    change = {"resource": "GPUs", "amount": 2.0, "nodes": ["a"], "holders": holders}
    Episode.objects.filter(name="train-9").update(
        findings={"suggestions": [{"action": "free", "change": change}]}
    )

    def body(user: User) -> str:
        response: Any = client_of(user).get("/api/v1/pending", {"format": form})
        parts = response.streaming_content if response.streaming else [response.content]
        return b"".join(parts).decode()

    assert "speech/secret-0" in body(waiting.cleo)
    told = body(waiting.ada)
    assert "Free 2 GPUs on a, held in part by vision/known-0." in told
    assert "secret-0" not in told


def test_pages_walk_every_row_once(waiting: Portal, read: Read) -> None:
    train = make_workload(waiting.clusters[0], "vision", "train")
    make_many_waiting([train], 30, since=timezone.now() - 20 * MINUTE)
    names: list[str] = []
    page = read("pending", {"page_size": 7})
    while True:
        names += [row["name"] for row in page["results"]]
        if page["next"] is None:
            break
        page = client_of(waiting.cleo).get(page["next"]).json()
    assert len(names) == len(set(names)) == 32


def test_history_by_day_and_cause_has_a_row_for_each(waiting: Portal, read: Read) -> None:
    rows = read("pending/history", _today())["results"]
    assert {row["cause"] for row in rows} == {"capacity", "quota"}
    total = sum(row["waiting_gpu_hours"] for row in rows)
    assert total == pytest.approx(4.0, abs=0.1), "four GPUs for an hour"
    assert sum(row["suppressed_gpu_hours"] for row in rows) == pytest.approx(0.5, abs=0.05)
    assert all(row["period"][-6:] in {"+01:00", "+02:00"} for row in rows)


@pytest.mark.parametrize("path", ["pending", "pending/history"])
def test_a_file_has_the_rows_of_the_list(waiting: Portal, read: Read, path: str) -> None:
    params = {} if path == "pending" else _today()
    response: Any = client_of(waiting.cleo).get(f"/api/v1/{path}", {**params, "format": "csv"})
    text = b"".join(response.streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    listed = read(path, params)["results"]
    assert [row["cause"] for row in rows] == [row["cause"] for row in listed]


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"cause": "lack"}, "cause"),
        ({"team": "nobody"}, "team"),
        ({"start": "2026-01-01"}, "start"),
        ({"cursor": "x"}, "cursor"),
    ],
)
def test_a_mistake_is_named(waiting: Portal, params: dict[str, str], parameter: str) -> None:
    response = client_of(waiting.cleo).get("/api/v1/pending", params)
    assert response.status_code == 400
    assert parameter in response.json()["errors"]


@pytest.mark.parametrize(("path", "most"), [("pending", 12), ("pending/history", 22)])
def test_a_list_takes_a_fixed_number_of_queries(waiting: Portal, path: str, most: int) -> None:
    params = {} if path == "pending" else _today()
    client = client_of(waiting.cleo)
    # The first use of a token in a minute is noted, which would be counted as the clock goes on.
    ApiToken.objects.update(last_used_at=timezone.now() + 60 * MINUTE)
    counts = []
    for more in (0, 200):
        train = make_workload(waiting.clusters[0], "vision", f"train-{more}")
        make_many_waiting([train], more, since=timezone.now() - 10 * MINUTE)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert client.get(f"/api/v1/{path}", params).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= most


def _today() -> dict[str, str]:
    now = datetime.now(UTC)
    return {
        "start": (now - timedelta(hours=3)).isoformat(),
        "end": (now + timedelta(minutes=1)).isoformat(),
    }

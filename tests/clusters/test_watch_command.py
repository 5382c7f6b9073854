"""The command `watch`: one look in this process, and a whole watch as a process of its own."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from apps.clusters.models import Cluster, NodeInterval, Pod
from apps.clusters.services.watch.collections import NAMESPACES, NODES, PODS
from tests.recorded_api import Answer, Request, recorded, serving
from tests.servers import migrated_file

ROOT = Path(__file__).resolve().parents[2]
LISTS = {NODES: "nodes", PODS: "pods", NAMESPACES: "namespaces"}
DEADLINE_SECONDS = 120
MANAGE = [sys.executable, str(ROOT / "manage.py")]


def _lists(request: Request) -> Answer:
    if request.path in LISTS and "watch" not in request.query:
        return Answer(recorded(f"lists/{LISTS[request.path]}.json"))
    return Answer(b"404 page not found", 404)


@pytest.mark.django_db
def test_one_look_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    Cluster.objects.create(name="east", prometheus={"url": "http://127.0.0.1:1"})
    with serving(_lists) as server:
        Cluster.objects.create(name="west", kubernetes={"api_server": server.url})
        call_command("watch", "--once")
    said = capsys.readouterr().out
    assert "east: no kubernetes entry in the catalog, nothing to watch" in said
    assert "west: 5 GPU nodes, 46 pods that ask for GPU" in said
    assert NodeInterval.objects.count() == 5
    assert Pod.objects.count() == 46


@pytest.mark.django_db
def test_an_unknown_cluster_is_answered_with_the_known_ones() -> None:
    Cluster.objects.create(name="east")
    Cluster.objects.create(name="old", active=False)
    with pytest.raises(CommandError, match=r"no cluster is called 'west'; the catalog has east$"):
        call_command("watch", "--once", "--cluster", "west")


@pytest.mark.django_db
def test_a_refusal_ends_one_look_with_what_is_lacking(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = Answer(recorded("errors/403-sa-nodes.json"), 403)
    with serving(lambda _: refusal) as bad, serving(_lists) as good:
        Cluster.objects.create(name="bad", kubernetes={"api_server": bad.url})
        Cluster.objects.create(name="good", kubernetes={"api_server": good.url})
        with pytest.raises(CommandError, match=r"bad: .*verb list on nodes"):
            call_command("watch", "--once")
    assert "good: 5 GPU nodes" in capsys.readouterr().out


def _environment(database: Path) -> dict[str, str]:
    return {
        **os.environ,
        "DATABASE_URL": f"sqlite:///{database}",
        "GPUPORTAL_VAR_DIR": str(database.parent / "var"),
        "PYTHONWARNINGS": "error",
    }


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_watch_ends_cleanly_when_told_to(tmp_path: Path, number: signal.Signals) -> None:
    held, asked = threading.Event(), threading.Event()

    def answer(request: Request) -> Answer:
        if "watch" in request.query:
            if request.path == PODS:
                asked.set()
            return Answer(stream=True, held=held)
        return _lists(request)

    database = tmp_path / "portal.db"
    shutil.copy(migrated_file(), database)
    with serving(answer) as server:
        with sqlite3.connect(database) as connection:
            connection.execute(
                "insert into clusters_cluster (name, prometheus, kubernetes, active) "
                "values ('west', '{}', ?, 1)",
                [f'{{"api_server": "{server.url}"}}'],
            )
        connection.close()
        watch = subprocess.Popen(  # noqa: S603
            [*MANAGE, "watch"], env=_environment(database), stderr=subprocess.PIPE, text=True
        )
        assert asked.wait(DEADLINE_SECONDS)
        watch.send_signal(number)
        _, said = watch.communicate(timeout=DEADLINE_SECONDS)
        held.set()
    assert watch.returncode == 0, said
    assert "listed 55 objects of /api/v1/pods at version 844" in said
    assert "watch has ended" in said
    with sqlite3.connect(database) as connection:
        assert connection.execute("select count(*) from clusters_pod").fetchone() == (46,)
    connection.close()

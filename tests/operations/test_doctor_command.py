"""The doctor as a command and as a task."""

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from rich.console import Console

from apps.accounts.permissions import EVERYTHING
from apps.operations.domain.findings import KINDS
from apps.operations.management.commands import doctor as words
from apps.operations.selectors import open_findings
from apps.operations.services import Diagnosis
from apps.operations.tasks import run_doctor as task
from tests import factories
from tests.operations.doctor_portal import World, deny, examined, make_clusters, plant, world_of
from tests.shared_rows import copy_of, shared

pytestmark = pytest.mark.django_db


_clusters = shared(make_clusters)
world = copy_of("_clusters", world_of)


# ---------------------------------------------------------------- the command


def printed(found: Diagnosis) -> str:
    page = StringIO()
    words.show(found, Console(file=page, width=100))
    return page.getvalue()


def test_the_text_has_the_worst_first_and_each_fix_in_full(world: World) -> None:
    plant(world, findings={"stuck_counter": 1}, scrape_interval_seconds=60.0)
    deny(world, ("watch", "", "pods"))
    text = printed(examined(world))
    heads = [text.index(word) for word in ("Errors:", "Warnings:", "Notes:")]
    assert heads == sorted(heads)
    fix = "kubectl delete pod --namespace NAMESPACE --selector app=dcgm-exporter --field-selector"
    assert fix in text
    assert "1 error, 1 warning, 1 note" in text


def test_the_text_says_clearly_that_nothing_was_found(world: World) -> None:
    assert "Nothing found: everything that was looked at is right." in printed(examined(world))


def test_the_document_keeps_its_shape(world: World) -> None:
    plant(world, findings={"stuck_counter": 1})
    made = json.loads(json.dumps(words.document(examined(world))))
    assert made.keys() == {"at", "clusters", "counts", "findings"}
    assert made["counts"] == {"error": 0, "warning": 1, "note": 0}
    assert made["clusters"][1] == {
        "cluster": "west",
        "prometheus_version": "fake",
        "kubernetes_version": "v0.0.0-fake",
        "devices": 8,
        "not_examined": [
            "the server's clock",
            "Topology Manager of 1 multi-GPU node (no NodeResourceTopology names its policy)",
        ],
    }
    (finding,) = made["findings"]
    assert {key: finding[key] for key in ("code", "severity", "group", "cluster", "cost")} == {
        "code": "stuck-counter",
        "severity": "warning",
        "group": "data",
        "cluster": "west",
        "cost": {"pods": None, "gpu_hours": None},
    }
    assert finding.keys() >= {"title", "subject", "what", "fix", "places", "since", "more"}


def test_the_command_ends_with_1_when_there_is_an_error(db: None) -> None:
    out = StringIO()
    with pytest.raises(CommandError) as ended:
        call_command("doctor", stdout=out)
    assert ended.value.returncode == 1
    assert "No cluster is loaded" in out.getvalue()
    assert "load_catalog catalog.yaml" in out.getvalue()


def test_the_command_prints_json_and_nothing_else_to_its_output(db: None) -> None:
    # An entry without a URL is refused without asking anybody.
    factories.make_cluster("west", prometheus={})
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("doctor", "--json", "--cluster", "west", stdout=out)
    found = json.loads(out.getvalue())["findings"]
    assert [one["code"] for one in found] == ["prometheus-rejected"]


def test_the_command_refuses_a_cluster_that_nobody_loaded(db: None) -> None:
    with pytest.raises(CommandError, match="load_catalog"):
        call_command("doctor", "--cluster", "north")


def test_the_task_keeps_what_the_pages_show(db: None) -> None:
    assert task() == 1
    (row,) = open_findings(visibility=EVERYTHING)
    assert row.code == "catalog-empty"
    assert row.code in KINDS


def test_a_fix_is_never_cut_however_narrow_the_terminal(world: World) -> None:
    plant(world, findings={"stuck_counter": 2})
    diagnosis = examined(world)
    page = StringIO()
    words.show(diagnosis, Console(file=page, width=40))
    shown = [line.strip() for line in page.getvalue().splitlines()]
    (found,) = diagnosis.findings
    assert any(len(line) > 40 for line in found.fix.splitlines())
    assert all(line.strip() in shown for line in found.fix.splitlines())

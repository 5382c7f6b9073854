"""The Grafana dashboards: valid, and every query names series and labels that the portal has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from apps.operations.domain.series import SCRAPE
from apps.operations.services.scrape import SOURCES
from tests.operations.test_portal_rules import exported_names

FOLDER = Path(__file__).resolve().parent.parent.parent / "deploy" / "grafana"
NAMES = ("fleet", "tier", "team", "portal")
_SERIES = re.compile(r"\b(gpuportal_[a-z0-9_]+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def queries(name: str) -> list[str]:
    """Return every expression of a dashboard, those of its variables too."""
    board = dashboard(name)
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    variables = board["templating"]["list"]
    return found + [v["query"]["query"] for v in variables if v["type"] == "query"]


def labels_of() -> dict[str, set[str]]:
    found = {
        one.name: set(one.labels)
        for one in (*(series for source in SOURCES for series in source.series), *SCRAPE)
    }
    for family, metric in REGISTRY._names_to_collectors.items():
        if family.startswith("gpuportal_"):
            found[family] = {*getattr(metric, "_labelnames", ()), "le"}
    return found


def test_there_are_four_dashboards() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == sorted(NAMES)
    assert len({dashboard(name)["uid"] for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_is_whole(name: str) -> None:
    board = dashboard(name)
    assert board["title"]
    assert board["schemaVersion"] >= 36
    assert "gpuportal" in board["tags"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


@pytest.mark.parametrize("name", NAMES)
def test_every_query_names_series_and_labels_that_are_exported(name: str) -> None:
    known, labels = exported_names(), labels_of()
    used = {v["name"] for v in dashboard(name)["templating"]["list"]}
    for query in queries(name):
        series = _SERIES.findall(query)
        assert series, query
        there: set[str] = set()
        for metric, matchers in series:
            assert metric in known, query
            assert set(_LABEL.findall(matchers)) <= labels[metric], query
            there |= labels[metric]
        for grouped in _GROUPED.findall(query):
            assert {one.strip() for one in grouped.split(",")} <= there, query
        assert set(re.findall(r"\$(\w+)", query)) <= used, query


@pytest.mark.parametrize("name", ["fleet", "tier", "team"])
def test_figures_that_several_web_pods_tell_are_counted_once(name: str) -> None:
    for query in queries(name):
        for place in re.finditer(r"gpuportal_(?:tier|team)_\w+", query):
            before = query[: place.start()]
            assert re.search(
                r"(max|min)(?: by \([^)]*\))? \($|(max|min)\($|label_values\($", before
            ), query

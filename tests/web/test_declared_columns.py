"""A column is one line in one place: declared with its row, it is on the page, in files and API."""

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Annotated, Any, get_origin

import pytest
import yaml
from django.conf import settings
from django.test import Client

from apps.accounts.models import User
from apps.api import row_serializers
from apps.clusters.domain.columns import Column, columns_of
from apps.usage.domain.usage_query import PodRow
from tests.factories import Portal
from tests.web.conftest import ERROR, HOURLY
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of

PAGE = f"/workloads/west/vision/Job/train/?tab=pods&{HOURLY}"
PODS = "/api/v1/pods?start=2025-10-24&end=2025-10-26"


def forget() -> None:
    for kept in (columns_of, row_serializers._writers, row_serializers._cell_writers):
        kept.cache_clear()


@pytest.fixture
def column(monkeypatch: pytest.MonkeyPatch) -> Iterator[Column]:
    """Yield a column that pods have for the time of a test."""
    declared = Column("Letters", "letters", "Letters of the pod's name.", key="pod_letters")
    letters = property(lambda pod: len(pod.pod))
    monkeypatch.setattr(PodRow, "letters", letters, raising=False)
    monkeypatch.setitem(PodRow.__annotations__, "letters", Annotated[int, declared])
    forget()
    yield declared
    monkeypatch.undo()
    forget()


def test_a_new_column_is_on_the_page_in_files_and_in_the_api(column: Column, admin: Client) -> None:
    head, *lines = tables_of(text_of(admin, PAGE))["pods"].rows
    place = next(n for n, cell in enumerate(head) if cell.text.startswith("Letters"))
    assert [line[place].text for line in lines] == ["7", "7", "7"]
    assert {row["pod_letters"] for row in records_of(admin, f"{PAGE}&format=csv&table=pods")} == {
        "7"
    }
    answer: Any = admin.get(PODS)
    assert {row["pod"]: row["pod_letters"] for row in answer.json()["results"]}["train-0"] == 7
    streamed: Any = admin.get(f"{PODS}&format=csv")
    text = b"".join(streamed.streaming_content).decode()
    assert {row["pod"]: row["pod_letters"] for row in csv.DictReader(io.StringIO(text))}[
        "train-0"
    ] == "7"
    schema = yaml.safe_load(admin.get("/api/schema/").content)
    assert schema["components"]["schemas"]["Pod"]["properties"]["pod_letters"] == {
        "type": "integer",
        "description": column.help,
    }


def test_columns_for_administrators_are_theirs_on_the_page_in_files_and_in_the_api(
    portal: Portal, admin: Client, signed_in: Callable[[User], Client]
) -> None:
    page, lead = f"/admin/data-quality/?{HOURLY}", signed_in(portal.ada)
    for client, told in ((admin, True), (lead, False)):
        head, *_ = tables_of(text_of(client, page))["clusters"].rows
        assert any(cell.text.startswith("Prometheus") for cell in head) == told
        kept = records_of(client, f"{page}&format=csv&table=clusters")
        assert all(("prometheus_url" in row) == told for row in kept)
        answer: Any = client.get("/api/v1/clusters")
        assert all(bool(row["prometheus_url"]) == told for row in answer.json()["results"])
        answer = client.get("/api/v1/collections?state=failed")
        assert [row["error"] for row in answer.json()["results"]] == [ERROR if told else None] * 2
        assert (ERROR in text_of(client, page)) == told
        hours = records_of(client, f"{page}&format=csv&table=collections")
        assert any(row["remarks"] == ERROR for row in hours) == told


def test_no_help_of_a_page_speaks_the_language_of_the_api() -> None:
    import_module(settings.ROOT_URLCONF)  # with it all rows that pages show
    speech = re.compile(r"\bnull\b|\b(?:true|false):|\b0\.\.1\b|[a-z]_[a-z]", re.IGNORECASE)
    shown = {
        (row.__qualname__, column.name, column.help)
        for row in declared_rows()
        for column in columns_of(row)
        if column.label
    }
    assert len(shown) > 100
    assert [said for said in sorted(shown) if speech.search(said[-1])] == []


def declared_rows() -> set[type]:
    """Return the classes of the product that declare columns."""
    modules = [module for name, module in sys.modules.items() if name.startswith("apps.")]
    classes = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    return {
        one
        for one in classes
        if any(
            get_origin(hint) is Annotated for hint in vars(one).get("__annotations__", {}).values()
        )
    }

"""A column is one line in one place: declared with its row, it is on the page, in files and API."""

import csv
import io
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import yaml
from django.test import Client

from apps.api.base import rows
from apps.clusters.domain.columns import Column, columns_of
from apps.usage.domain.rows import PodRow
from tests.web.conftest import HOURLY
from tests.web.pages import records_of, text_of
from tests.web.shown import tables_of

PAGE = f"/workloads/west/vision/Job/train/?{HOURLY}"
PODS = "/api/v1/pods?start=2025-10-24&end=2025-10-26"


def forget() -> None:
    for kept in (columns_of, rows._writers, rows._cell_writers):
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

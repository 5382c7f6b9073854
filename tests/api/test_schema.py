"""The OpenAPI document."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client
from jsonschema import Draft202012Validator

from tests.api.conftest import Read, client_of
from tests.api.test_usage import BOTH
from tests.factories import Portal

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.yaml"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("schema") / "openapi.yaml"
    call_command("spectacular", "--file", str(path), "--validate", "--fail-on-warn")
    return path.read_text(encoding="utf-8")


def test_the_committed_document_is_up_to_date(document: str) -> None:
    assert COMMITTED.read_text(encoding="utf-8") == document, (
        "run: python manage.py spectacular --file docs/openapi.yaml"
    )


def test_the_document_is_served(document: str, db: None) -> None:
    response = Client().get("/api/schema/")
    assert response.status_code == 200
    assert yaml.load(response.content, yaml.CSafeLoader) == yaml.load(document, yaml.CSafeLoader)


@pytest.mark.parametrize(
    ("path", "params", "schema"),
    [
        ("usage", BOTH | {"group_by": "tier,team,node"}, "UsagePage"),
        ("usage", BOTH | {"interval": "total"}, "UsagePage"),
        ("pods", BOTH, "PodsPage"),
        ("pods", {"start": "2026-05-01", "end": "2026-05-02"}, "PodsPage"),
        ("tiers", {}, "TiersPage"),
        ("teams", {}, "TeamsPage"),
        ("clusters", {}, "ClustersPage"),
        ("collections", {"page_size": "5"}, "CollectionsPage"),
    ],
)
def test_answers_are_as_the_document_says(
    document: str, read: Read, path: str, params: dict[str, Any], schema: str
) -> None:
    page = read(path, params)
    assert page["results"]
    validate(document, schema, page)


def test_problems_are_as_the_document_says(document: str, portal: Portal) -> None:
    response = client_of(portal.cleo).get("/api/v1/usage", {"frob": "1"})
    validate(document, "Problem", response.json())


def validate(document: str, schema: str, answer: object) -> None:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": components_of(document)}
    Draft202012Validator(whole).validate(answer)


@cache
def components_of(document: str) -> Any:
    return nullable(yaml.load(document, yaml.CSafeLoader)["components"])


def nullable(node: Any) -> Any:
    """Return an OpenAPI 3.0 schema as JSON Schema, which has no `nullable`."""
    if isinstance(node, list):
        return [nullable(part) for part in node]
    if not isinstance(node, dict):
        return node
    found = {name: nullable(part) for name, part in node.items() if name != "nullable"}
    return {"anyOf": [found, {"type": "null"}]} if node.get("nullable") else found

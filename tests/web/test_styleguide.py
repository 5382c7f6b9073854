"""The page of all components: for development alone."""

import re

import pytest
from django.test import Client
from pytest_django import Settings

from apps.web.components.tables import CAPACITY_CLASSES


def test_without_debug_there_is_no_style_guide(db: None) -> None:
    response = Client().get("/styleguide/")
    assert response.status_code == 404
    assert "Unhealthy" not in response.content.decode()


def test_it_shows_every_class_every_kind_of_chart_and_a_table(
    settings: Settings, client: Client
) -> None:
    settings.DEBUG = True
    page = client.get("/styleguide/").content.decode()
    for cls in CAPACITY_CLASSES:
        assert f'class="swatch {cls.css}"' in page
    assert len(re.findall(r'class="chart-canvas"', page)) == 2
    assert len(re.findall(r'class="chart-empty"', page)) == 2
    assert 'class="table table-sm ledger-table"' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", ["colours", "type", "ledger", "cards", "controls", "notices"])
def test_its_sections_can_be_linked_to(name: str, settings: Settings, client: Client) -> None:
    settings.DEBUG = True
    assert f'id="guide-{name}"' in client.get("/styleguide/").content.decode()

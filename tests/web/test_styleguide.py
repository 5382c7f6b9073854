"""The page of all components: for development alone."""

import re

import pytest
from django.test import Client
from playwright.sync_api import Page
from pytest_django import Settings

from apps.web.components.tables import CAPACITY_CLASSES
from tests.web.appearances import LOOKS
from tests.web.axe import violations
from tests.web.conftest import Screen
from tests.web.test_browser import draw_all


def test_without_debug_there_is_no_style_guide(db: None) -> None:
    response = Client().get("/styleguide/")
    assert response.status_code == 404
    assert "Unavailable" not in response.content.decode()


def test_it_shows_every_class_every_kind_of_chart_and_a_table(
    settings: Settings, client: Client
) -> None:
    settings.DEBUG = True
    page = client.get("/styleguide/").content.decode()
    for cls in CAPACITY_CLASSES:
        assert f'class="swatch {cls.css}"' in page
    assert len(re.findall(r'class="chart-canvas"', page)) == 3
    assert len(re.findall(r'class="chart-empty"', page)) == 2
    assert 'class="table table-sm ledger-table stacked-table"' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_its_sections_can_be_linked_to(settings: Settings, client: Client) -> None:
    settings.DEBUG = True
    sections = {*("colours", "type", "ledger", "cards", "controls", "callouts", "tabs", "drawings")}
    page = client.get("/styleguide/").content.decode()
    assert sections <= set(re.findall(r' id="guide-(\w+)"', page))


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.parametrize(("dark", "width"), LOOKS)
def test_every_component_is_accessible_and_fits(
    served: str, screen: Screen, settings: Settings, dark: bool, width: int
) -> None:
    settings.DEBUG = True

    def steps(page: Page) -> None:
        page.goto("/styleguide/")
        draw_all(page)
        assert violations(page) == []
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1]

    screen.visit(served, steps, width=width, dark=dark)


@pytest.mark.browser
def test_the_open_tab_stays_in_view_on_a_phone(
    served: str, screen: Screen, settings: Settings
) -> None:
    settings.DEBUG = True

    def steps(page: Page) -> None:
        page.goto("/styleguide/?tab=simulator")
        tab = page.locator("#tab-simulator")
        tab.scroll_into_view_if_needed()
        page.locator(".tabs ul").evaluate("list => list.scrollTo(0, 0)")
        box = tab.bounding_box()
        assert box
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
        assert box["height"] >= 24

    screen.visit(served, steps, width=390)

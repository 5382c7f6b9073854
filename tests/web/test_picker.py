"""The window control: its links keep what else was chosen."""

import html
import re

import pytest
from django.test import Client

from tests.web.conftest import DAILY, HOURLY
from tests.web.pages import PAGES, text_of


def links_of(page: str, name: str) -> list[str]:
    """Return the addresses of the links with this id or class."""
    found = re.findall(rf'<a [^>]*(?:id|class)="{name}"[^>]*>', page)
    return [html.unescape(re.findall(r'href="([^"]+)"', tag)[0]) for tag in found]


@pytest.mark.parametrize("path", ["/", "/capacity/tiers/gold/", "/capacity/teams/vision/"])
def test_the_arrows_lead_to_the_windows_beside(path: str, admin: Client) -> None:
    page = text_of(admin, f"{path}?{HOURLY}&cluster=west")
    assert links_of(page, "step-earlier") == [
        f"{path}?first=2025-10-22&last=2025-10-24&cluster=west"
    ]
    assert links_of(page, "step-later") == [f"{path}?first=2025-10-28&last=2025-10-30&cluster=west"]


def test_there_is_no_way_into_the_future(admin: Client) -> None:
    page = text_of(admin, "/?window=7d")
    assert links_of(page, "step-later") == []


def test_a_filter_in_force_is_a_chip_that_takes_it_off(admin: Client) -> None:
    page = text_of(admin, f"/?{HOURLY}&cluster=west&cluster=east")
    assert links_of(page, "chip") == [f"/?{HOURLY}&cluster=east", f"/?{HOURLY}&cluster=west"]
    assert "Remove the filter Cluster west" in page
    team = text_of(admin, f"/capacity/teams/vision/?{HOURLY}&namespace=vision-prod")
    assert links_of(team, "chip") == [f"/capacity/teams/vision/?{HOURLY}"]


def test_a_filter_that_is_not_there_is_told_and_has_no_chip(admin: Client) -> None:
    page = text_of(admin, f"/?{HOURLY}&cluster=nowhere")
    assert links_of(page, "chip") == []
    assert "There is no cluster" in page


def test_the_comparison_can_be_switched_off_and_stays_off(admin: Client) -> None:
    page = text_of(admin, f"/?{DAILY}")
    (off,) = links_of(page, "compare")
    assert off == f"/?{DAILY}&compare=no"
    without = text_of(admin, off)
    assert links_of(without, "compare") == [f"/?{DAILY}"]
    assert "/capacity/tiers/gold/?first=2025-10-24&amp;last=2025-10-27&amp;compare=no" in without
    assert links_of(without, "preset")[0] == "/?window=today&compare=no"


@pytest.mark.parametrize("path", PAGES)
def test_every_page_keeps_the_window_in_its_links(path: str, admin: Client) -> None:
    page = text_of(admin, f"{path}?{HOURLY}")
    assert f"/capacity/teams/?{HOURLY}".replace("&", "&amp;") in page
    assert 'name="first" id="picker-first" value="2025-10-25"' in page

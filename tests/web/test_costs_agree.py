"""One team and one month: every page that shows the money prints the same."""

import re
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime

import pytest
from django.test import Client

from apps.accounts.models import User
from tests.costs.portal import Priced
from tests.web.pages import text_of

pytestmark = pytest.mark.django_db
SignIn = Callable[[User], Client]
NOW = datetime(2026, 11, 4, 12, tzinfo=UTC)
OCTOBER = "first=2026-10-01&last=2026-10-31"


@pytest.fixture
def lead(_priced: Priced, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    return signed_in(deepcopy(_priced).portal.ada)


@pytest.fixture
def finance(_priced: Priced, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    return signed_in(deepcopy(_priced).portal.finn)


def figures_of(client: Client, address: str) -> dict[str, str]:
    """Return the figures at the top of a page as they are printed, by label."""
    (row,) = re.findall(r'<dl class="figure-row".*?</dl>', text_of(client, address), re.DOTALL)
    found = re.findall(r"<dt>([^<]*).*?</dt>\s*<dd>.*?>([^<]*)<", row, re.DOTALL)
    return {label.strip(): value for label, value in found}


def cells_of(client: Client, address: str) -> list[str]:
    """Return the cells of the row of vision as they are printed."""
    rows = re.findall(r"<tr[^>]*>(<td.*?)</tr>", text_of(client, address), re.DOTALL)
    (row,) = (one for one in rows if "/capacity/teams/vision/" in one)
    return re.findall(r">([^<>]+)<", row)


def test_costs_waste_team_home_and_report_print_one_amount(lead: Client) -> None:
    costs = figures_of(lead, f"/costs/?{OCTOBER}&team=vision")
    report = figures_of(lead, "/costs/report/2026-10/?team=vision")
    charged, unused = costs["Charged"], costs["Unused (teams)"]
    assert charged.startswith("$")
    assert unused.startswith("$")
    assert (report["Charged"], report["Unused allocation"]) == (charged, unused)
    for path in ("/costs/waste/", "/", "/capacity/teams/vision/"):
        found = figures_of(lead, f"{path}?{OCTOBER}&team=vision")
        assert unused in {found.get("Unused"), found.get("Unused (teams)")}, path
    for path in ("/costs/", "/costs/waste/"):
        cells = cells_of(lead, f"{path}?{OCTOBER}")
        assert {charged.removeprefix("$"), unused.removeprefix("$")} <= set(cells), path


def test_charged_and_platform_make_the_total(finance: Client) -> None:
    found = figures_of(finance, f"/costs/?{OCTOBER}")
    charged, platform, total = (
        int(found[name].strip("$").replace(",", "")) for name in ("Charged", "Platform", "Total")
    )
    assert platform > 0
    # Each is rounded by itself.
    assert abs(charged + platform - total) <= 1


def test_costs_of_a_lead_open_with_the_time_of_their_home(lead: Client) -> None:
    shown = {
        path: re.findall(r'<span class="window-label".*?</span></span>', text_of(lead, path))
        for path in ("/", "/costs/", "/costs/waste/")
    }
    assert len(shown["/"]) == 1
    assert shown["/costs/"] == shown["/costs/waste/"] == shown["/"]

"""The looks in which pages are examined: each theme and each width, all of both in check-full."""

from collections.abc import Sequence

import hypothesis
import pytest
from playwright.sync_api import Page

DESK, PHONE = 1440, 390
LOOKS = (
    pytest.param(False, DESK, id="light-desk"),
    pytest.param(True, PHONE, id="dark-phone"),
    pytest.param(False, PHONE, id="light-phone", marks=pytest.mark.exhaustive),
    pytest.param(True, DESK, id="dark-desk", marks=pytest.mark.exhaustive),
)
"""(dark, width in CSS pixels)."""
WAYS = (
    pytest.param(1280, True, id="desk, with scripts"),
    pytest.param(PHONE, False, id="phone, without"),
    pytest.param(PHONE, True, id="phone, with scripts", marks=pytest.mark.exhaustive),
    pytest.param(1280, False, id="desk, without", marks=pytest.mark.exhaustive),
)
"""(width in CSS pixels, whether scripts run)."""


def show_controls(page: Page) -> None:
    """Open what a phone has behind a button."""
    page.wait_for_load_state()  # before its styles have come, a desk shows the button too
    closed = page.locator(".filter-row:not([open]) > summary")
    if closed.is_visible():
        closed.click()


def share_of(paths: Sequence[str], *, dark: bool) -> Sequence[str]:
    """Return the pages that a look shows: every other one of `make check`, all in check-full."""
    return paths if is_exhaustive() else paths[dark::2]


def is_exhaustive() -> bool:
    """Say whether this is check-full."""
    return hypothesis.settings.get_current_profile_name() == "exhaustive"

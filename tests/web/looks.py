"""The looks in which pages are examined: each theme and each width, all of both in check-full."""

import pytest

DESK, PHONE = 1440, 390
LOOKS = (
    pytest.param(False, DESK, id="light-desk"),
    pytest.param(True, PHONE, id="dark-phone"),
    pytest.param(False, PHONE, id="light-phone", marks=pytest.mark.exhaustive),
    pytest.param(True, DESK, id="dark-desk", marks=pytest.mark.exhaustive),
)
"""(dark, width in CSS pixels)."""

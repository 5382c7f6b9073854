"""What tests of costs need beside the database."""

import pytest

from tests.costs.focus_validator import PYTHON


@pytest.fixture
def focus_validator(request: pytest.FixtureRequest) -> None:
    """Skip where the FOCUS validator is missing on a laptop; fail where all must be there."""
    if PYTHON.exists():
        return
    missing = f"no FOCUS validator at {PYTHON}: run `make validator`"
    if request.config.getoption("--require-servers"):
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)

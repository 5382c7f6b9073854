"""The FinOps Foundation's validator, run in its own environment (see focus_validator.txt)."""

import os
import subprocess
from pathlib import Path

import pytest

PYTHON = Path(
    os.environ.get("GPUPORTAL_FOCUS_PYTHON")
    or Path(__file__).parents[2] / "var" / "focus-validator" / "bin" / "python"
)
needs_validator = pytest.mark.usefixtures("focus_validator")

# The rule set of 1.0 asks for five columns by the names that they had before 1.0; under these it
# refuses every file that keeps to the specification.
OUTDATED_RULES = (
    "InvoiceIssuer_Required",
    "Provider_Required",
    "Publisher_Required",
    "ResourceID_Required",
    "SkuPriceId_Nullable",
)


def verdict(file: Path, *, without: tuple[str, ...] = ()) -> str:
    """Return what the validator prints of a file (.csv or .parquet), rules `without` skipped."""
    command = [str(PYTHON.parent / "focus-validator"), "--data-file", str(file)]
    command += ["--validate-version", "1.0"]
    if without:
        skipped = file.with_suffix(".overrides.yaml")
        skipped.write_text(f"overrides: [{', '.join(without)}]\n")
        command += ["--override-file", str(skipped)]
    done = subprocess.run(  # noqa: S603 - our own command
        command,
        cwd=_beside_its_currencies(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


def _beside_its_currencies() -> Path:
    """Return where the validator has to run: it opens its currency codes by a relative path."""
    found = next((PYTHON.parents[1] / "lib").glob("python*/site-packages/focus_validator"))
    return found.parent

"""The processes of the portal as the Procfile names them."""

import os
import re
import sys
from pathlib import Path

from django.conf import settings


def portal_commands() -> dict[str, str]:
    """Return the commands of the Procfile by name."""
    text = (settings.BASE_DIR / "Procfile").read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+): (.+)$", text, flags=re.MULTILINE))


def shell(command: str) -> list[str]:
    """Return the words that run a Procfile line; the shell fills in variables and makes way."""
    return ["/bin/sh", "-c", f"exec {command}"]


def program_path() -> str:
    """Return a PATH on which this Python's programs come first."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"

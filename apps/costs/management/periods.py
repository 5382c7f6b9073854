"""Months on the command line: `2026-10`."""

import re
from datetime import date

from django.core.management.base import CommandError

_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")


def month(text: str) -> date:
    """Return the first day of the month that `text` names. Raises CommandError."""
    found = _MONTH.fullmatch(text)
    if found is None or found[1] == "0000":
        raise CommandError(f"{text} is not a month such as 2026-10")
    return date(int(found[1]), int(found[2]), 1)

"""Workloads that are one piece of work under many names: a nightly evaluation, a sweep of Jobs."""

import re

_SEPARATORS = re.compile(r"[-_.]")
_NUMBER = re.compile(r"\d+")
_HASH = re.compile(r"(?=.*\d)[0-9a-f]{5,}")
_RANDOM = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5,10}")
"""What Kubernetes appends to names: no vowels, no digits that look like letters."""
ANY = "*"
"""What stands for the part of the name that differs."""


def stem_of(name: str) -> str:
    """Return a name without what makes it unique at its end; the name where nothing does.

    `eval-1731974400`, `eval-x7k2p` and `eval-2026-11-02-f3a91c` are all `eval`.
    """
    parts = _SEPARATORS.split(name)
    while len(parts) > 1 and _is_unique(parts[-1]):
        parts.pop()
    return name[: len("-".join(parts))]


def family_of(name: str) -> str:
    """Return what all names with the same stem are called together: `eval-*`."""
    stem = stem_of(name)
    return name if stem == name else f"{stem}-{ANY}"


def _is_unique(part: str) -> bool:
    return any(form.fullmatch(part) for form in (_NUMBER, _HASH, _RANDOM))

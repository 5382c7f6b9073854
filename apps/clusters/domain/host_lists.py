"""Slurm's host lists: `gpu[01-03,07],login1` stands for five hosts."""

import re
from collections.abc import Iterator
from itertools import product

MOST_HOSTS = 100_000
_PART = re.compile(r"\[([0-9,\-]+)\]")


def hosts_of(text: str) -> list[str]:
    """Return the hosts of a list, in its order. Raises ValueError where it cannot be read."""
    found: list[str] = []
    for pattern in _split(text):
        for host in _expanded(pattern):
            found.append(host)
            if len(found) > MOST_HOSTS:
                raise ValueError(f"names more than {MOST_HOSTS:,} hosts")
    return found


def _split(text: str) -> Iterator[str]:
    """Yield what stands between commas that are in no bracket."""
    depth, start = 0, 0
    for at, char in enumerate(text):
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match: {text!r}")
        if char == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"brackets do not match: {text!r}")
    yield text[start:]


def _expanded(pattern: str) -> Iterator[str]:
    pieces = _PART.split(pattern)
    if not pattern or any("[" in piece or "]" in piece for piece in pieces[::2]):
        raise ValueError(f"not a host or a list of hosts: {pattern!r}")
    choices = [list(_numbers(part)) for part in pieces[1::2]]
    for chosen in product(*choices):
        yield "".join(a + b for a, b in zip(pieces[::2], (*chosen, ""), strict=True))


def _numbers(part: str) -> Iterator[str]:
    for span in part.split(","):
        first, dash, last = span.partition("-")
        last = last if dash else first
        if not (first.isdigit() and last.isdigit()) or int(last) < int(first):
            raise ValueError(f"not a range of numbers: {span!r}")
        if int(last) - int(first) >= MOST_HOSTS:
            raise ValueError(f"names more than {MOST_HOSTS:,} hosts")
        for number in range(int(first), int(last) + 1):
            # Numbers keep the width of the first: 08, 09, 10.
            yield f"{number:0{len(first)}d}"

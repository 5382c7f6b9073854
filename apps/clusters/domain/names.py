"""What names tell: the team of a namespace, and the family of a workload."""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

_WILD = frozenset("*?")

_SEPARATORS = re.compile(r"[-_.]")
_FIRST_WORD = re.compile(r"[^-_.]+")
_NUMBER = re.compile(r"\d+")
# With a digit: words such as `facade` are hexadecimal, too.
_HASH = re.compile(r"(?=.*\d)[0-9a-f]{5,}")
_RANDOM = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5,10}")
"""What Kubernetes appends to names: no vowels, no digits that look like letters."""
ANY = "*"
"""What stands for the part of the name that differs."""
JOBS = frozenset({"Job", "PyTorchJob", "TFJob", "MPIJob", "JAXJob", "JobSet", "TrainJob", "RayJob"})
ONE_OFF = JOBS | {"Pod"}
"""Kinds that run once: the next run has a name of its own."""


class NamespacePattern(Struct, frozen=True):
    """A pattern of namespace names (`*` and `?` as in a shell) and the team of such."""

    team: int
    pattern: str

    @property
    def exact(self) -> bool:
        return not _WILD & set(self.pattern)


def namespace_team(patterns: Sequence[NamespacePattern], *, otherwise: int) -> Callable[[str], int]:
    """Return a function from a namespace's name to its team.

    An exact name goes before any pattern; of several patterns the first holds. A name
    of none gives `otherwise`.
    """
    exact: dict[str, int] = {}
    wild = []
    for one in patterns:
        if one.exact:
            exact.setdefault(one.pattern, one.team)
        else:
            wild.append(one)

    def team_of(namespace: str) -> int:
        if namespace in exact:
            return exact[namespace]
        for one in wild:
            if fnmatchcase(namespace, one.pattern):
                return one.team
        return otherwise

    return team_of


def family_of(kind: str, name: str) -> str:
    """Return what workloads of one kind that do the same work are called together.

    A name of ONE_OFF loses its unique end (`eval-x7k2p`: `eval-*`); other kinds share the first
    word (`notebook-ada`: `notebook-*`). The name itself where nothing differs.
    """
    stem = stem_of(name) if kind in ONE_OFF else _first_word(name)
    return name if stem == name else f"{stem}-{ANY}"


def stem_of(name: str) -> str:
    """Return a name without what makes it unique at its end; the name where nothing does.

    `eval-1731974400`, `eval-x7k2p` and `eval-2026-11-02-f3a91c` are all `eval`.
    """
    parts = _SEPARATORS.split(name)
    # Several ends may be unique, as in `eval-2026-11-02-f3a91c`; a first part never is.
    while len(parts) > 1 and _is_unique(parts[-1]):
        parts.pop()
    return name[: len("-".join(parts))]


def _first_word(name: str) -> str:
    word = _FIRST_WORD.match(name)
    return word[0] if word else name


def _is_unique(part: str) -> bool:
    return any(form.fullmatch(part) for form in (_NUMBER, _HASH, _RANDOM))

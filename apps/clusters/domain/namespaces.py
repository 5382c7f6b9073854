"""Which team a namespace belongs to, by the patterns that teams claim."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

_WILD = frozenset("*?")


@dataclass(frozen=True, slots=True)
class NamespacePattern:
    """One pattern of namespace names (`*` and `?` as in a shell) and the team that claims it."""

    team: int
    pattern: str

    @property
    def exact(self) -> bool:
        return not _WILD & set(self.pattern)


def namespace_team(claims: Sequence[NamespacePattern], *, unclaimed: int) -> Callable[[str], int]:
    """Return a function from a namespace's name to the team that claims it.

    An exact name goes before any pattern; of several patterns the first in `claims` holds. A
    name that nobody claims gives `unclaimed`.
    """
    exact: dict[str, int] = {}
    patterns = []
    for claim in claims:
        if claim.exact:
            exact.setdefault(claim.pattern, claim.team)
        else:
            patterns.append(claim)

    def team_of(namespace: str) -> int:
        if namespace in exact:
            return exact[namespace]
        for claim in patterns:
            if fnmatchcase(namespace, claim.pattern):
                return claim.team
        return unclaimed

    return team_of

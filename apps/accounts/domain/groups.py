"""What groups of a sign-in provider mean here: a role, and places on teams."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apps.accounts.domain.roles import Role

# The most that counts, where several groups give a role.
_RANK = (Role.ADMIN, Role.FINANCE, Role.VIEWER)
_PLACES = {"lead": True, "member": False}


class GroupsRefused(ValueError):
    """A rule that says nothing the portal understands; the text is for who wrote it."""


@dataclass(frozen=True, slots=True)
class GroupRule:
    """One group and what it gives: a role for the whole portal, or a place on a team."""

    group: str
    role: Role | None = None
    team: str = ""
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Granted:
    """What a person's groups give.

    `role` is None where no rule speaks of roles, so that groups have no say in them. `teams` maps
    a team's name to whether the person leads it. `known` tells whether any rule fits at all.
    """

    role: Role | None
    teams: dict[str, bool]
    known: bool


def read_rules(text: str) -> tuple[GroupRule, ...]:
    """Read rules `GROUP=admin`, `finance`, `viewer`, `member:TEAM` or `lead:TEAM`.

    They stand one a line or, on a single line, between commas; the last `=` of a rule divides it,
    so that names as `cn=gpu,ou=groups` can be used in a file. Raises GroupsRefused.
    """
    parts = text.splitlines() if "\n" in text.strip() else text.split(",")
    lines = (part.strip() for part in parts)
    return tuple(_rule(line) for line in lines if line and not line.startswith("#"))


def _rule(line: str) -> GroupRule:
    group, joint, gives = (part.strip() for part in line.rpartition("="))
    if not joint or not group:
        raise GroupsRefused(f"{line!r} is no rule: write GROUP=admin or GROUP=lead:TEAM")
    place, colon, team = gives.partition(":")
    if colon and place in _PLACES and team.strip():
        return GroupRule(group, team=team.strip(), lead=_PLACES[place])
    if gives not in {role.value for role in Role}:
        raise GroupsRefused(
            f"{line!r}: a group gives admin, finance, viewer, member:TEAM or lead:TEAM"
        )
    return GroupRule(group, role=Role(gives))


def granted(groups: Iterable[str], rules: Sequence[GroupRule]) -> Granted:
    """Return what these groups give by these rules. Names compare exactly."""
    mine = set(groups)
    fitting = [rule for rule in rules if rule.group in mine]
    roles = {rule.role for rule in fitting if rule.role is not None}
    teams: dict[str, bool] = {}
    for rule in fitting:
        if rule.team:
            teams[rule.team] = teams.get(rule.team, False) or rule.lead
    decides = any(rule.role is not None for rule in rules)
    role = next((role for role in _RANK if role in roles), Role.VIEWER) if decides else None
    return Granted(role=role, teams=teams, known=bool(fitting))


def groups_in(claim: object) -> tuple[str, ...]:
    """Return the groups that a claim holds: a list of names, or one name as a text.

    A text is one group whatever it holds: names may have blanks and commas in them (as those of a
    directory), and a part of a name must not pass for another group. Whatever else there is gives
    none, which gives no rights.
    """
    if isinstance(claim, str):
        return (claim,) if claim.strip() else ()
    if isinstance(claim, list):
        return tuple(name for name in claim if isinstance(name, str))
    return ()

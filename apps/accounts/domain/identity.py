"""Roles, token scopes, reserved user names, and what groups of a sign-in provider mean here."""

import unicodedata
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct


class Role(StrEnum):
    VIEWER = "viewer"
    ADMIN = "admin"
    FINANCE = "finance"


class TokenScope(StrEnum):
    """`read` reads, `request` writes one's own quota requests, `decide` reviews those of others."""

    READ = "read"
    REQUEST = "request"
    DECIDE = "decide"


# What can be stored: every token reads, as nothing can be asked or decided unseen.
SCOPE_SETS = ("read", "read,request", "read,decide", "read,request,decide")


def packed_scopes(scopes: Iterable[TokenScope]) -> str:
    """Return scopes as they are stored: in the order of the enum, `read` always among them."""
    chosen = {TokenScope.READ, *scopes}
    return ",".join(scope.value for scope in TokenScope if scope in chosen)


def unpacked_scopes(text: str) -> frozenset[TokenScope]:
    """Return the scopes that `packed_scopes` wrote. Raises ValueError for another text."""
    return frozenset(TokenScope(word) for word in text.split(","))


PORTAL = "portal"
"""What the audit and the history of a request call the portal where it acts by itself."""


class ActingParty(Struct, frozen=True):
    """Who acts, and from where: an address, or the name of a process or a command."""

    name: str
    origin: str


class AccountNames(NamedTuple):
    """What an account is known by beside the portal; `subject` is empty without a provider.

    An account that several subjects sign in to has one of these for each.
    """

    username: str
    email: str
    subject: str = ""


def account_of(person: str, accounts: Iterable[AccountNames]) -> str | None:
    """Return the user name of the account that a person of a cluster is; None for no account.

    The first of these rules that holds for an account: its user name is the person; its e-mail
    address is; its subject at the sign-in provider is; the person has no @ and is the part of that
    address before it; the person is an address whose part before @ is the user name, of an account
    without an address. Case does not count. A rule that holds for two accounts gives none of them:
    one would see the work of another.
    """
    wanted = person.casefold()
    local, at, _ = wanted.partition("@")
    known = [(one, one.username.casefold(), one.email.casefold()) for one in accounts]
    of_rules = (
        [one for one, name, _ in known if name == wanted],
        [one for one, _, mail in known if mail and mail == wanted],
        # Before parts of addresses: a subject is the provider's own word for one person.
        [one for one, _, _ in known if one.subject and one.subject.casefold() == wanted],
        [one for one, _, mail in known if not at and mail.partition("@")[0] == wanted],
        [one for one, name, mail in known if at and not mail and name == local],
    )
    found = {one.username for one in next((matching for matching in of_rules if matching), [])}
    return found.pop() if len(found) == 1 and wanted else None


RESERVED = frozenset({PORTAL})

# Signs of other alphabets, and digits, that are read as the letters of a reserved name.
_LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("\u0440\u03c1", "p"),
        **dict.fromkeys("\u043e\u03bf\u0585" + "0", "o"),
        **dict.fromkeys("\u0433\u1d26", "r"),
        **dict.fromkeys("\u0442\u03c4", "t"),
        **dict.fromkeys("\u0430\u03b1", "a"),
        **dict.fromkeys("\u0435\u03b5", "e"),
        **dict.fromkeys("\u0441\u03f2", "c"),
        "\u0445": "x",
        "\u0443": "y",
        "\u0455": "s",
        "\u0458": "j",
        "\u0501": "d",
        "\u051b": "q",
        "\u051d": "w",
        **dict.fromkeys("\u04bb\u0570", "h"),
        "\u03bd": "v",
        **dict.fromkeys("\u04cf\u0456\u03b9\u0131" + "1i|", "l"),
    }
)


def lookalike_key(name: str) -> str:
    """Return what a reader sees of a name: without case, accents and likeness of alphabets."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    bare = "".join(sign for sign in plain if not unicodedata.combining(sign))
    # After `casefold`: the table knows small letters alone.
    return bare.translate(_LOOKALIKES).strip(".@+-_ ")


def reads_as(one: str, other: str) -> bool:
    """Say whether two user names look the same to a reader, as `ada` in Latin and in Cyrillic.

    Of two names in ASCII case alone counts: their digits and letters are told apart. Accents
    count in all, as people are called by them.
    """
    one, other = (unicodedata.normalize("NFKC", name).casefold() for name in (one, other))
    if one == other or (one.isascii() and other.isascii()):
        return one == other
    return one.translate(_LOOKALIKES) == other.translate(_LOOKALIKES)


def is_reserved(name: str) -> bool:
    """Say whether a name is, or looks like, one that no person may have."""
    return lookalike_key(name) in {lookalike_key(reserved) for reserved in RESERVED}


# The most that counts, where several groups give a role.
_RANK = (Role.ADMIN, Role.FINANCE, Role.VIEWER)
_PLACES = {"lead": True, "member": False}


class GroupsRefused(ValueError):
    """A rule that says nothing the portal understands; the text is for who wrote it."""


class GroupRule(Struct, frozen=True):
    """One group and what it gives: a role for the whole portal, or a place on a team."""

    group: str
    role: Role | None = None
    team: str = ""
    lead: bool = False


class Granted(Struct, frozen=True):
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
    return tuple(_group_rule(line) for line in lines if line and not line.startswith("#"))


def _group_rule(line: str) -> GroupRule:
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

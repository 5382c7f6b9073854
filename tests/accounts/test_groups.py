"""What groups of a sign-in provider give."""

import pytest

from apps.accounts.domain.identity import (
    Granted,
    GroupsRefused,
    Role,
    granted,
    groups_in,
    read_rules,
)

RULES = read_rules("admins=admin,money=finance,all=viewer,leads=lead:vision,vision=member:vision")


@pytest.mark.parametrize(
    ("groups", "role", "teams", "known"),
    [
        pytest.param((), Role.VIEWER, {}, False, id="none"),
        pytest.param(("others",), Role.VIEWER, {}, False, id="no rule fits"),
        pytest.param(("all",), Role.VIEWER, {}, True, id="viewer"),
        pytest.param(("all", "money"), Role.FINANCE, {}, True, id="the higher role"),
        pytest.param(("money", "admins"), Role.ADMIN, {}, True, id="the highest"),
        pytest.param(("vision",), Role.VIEWER, {"vision": False}, True, id="member"),
        pytest.param(("vision", "leads"), Role.VIEWER, {"vision": True}, True, id="both: lead"),
        pytest.param(("leads", "vision"), Role.VIEWER, {"vision": True}, True, id="in any order"),
        pytest.param(("Admins", "admins "), Role.VIEWER, {}, False, id="only the very name"),
    ],
)
def test_groups_give_the_highest_role_and_every_team(
    groups: tuple[str, ...], role: Role, teams: dict[str, bool], known: bool
) -> None:
    assert granted(groups, RULES) == Granted(role=role, teams=teams, known=known)


def test_rules_that_speak_of_teams_alone_leave_roles_alone() -> None:
    assert granted(["admins"], read_rules("v=member:vision")).role is None
    assert granted(["admins"], ()).role is None


def test_rules_on_lines_may_name_groups_with_commas_and_equals_signs() -> None:
    text = "# from the directory\ncn=gpu,ou=groups = admin\n\n/gpu/vision=lead:vision, the team\n"
    first, second = read_rules(text)
    assert (first.group, first.role) == ("cn=gpu,ou=groups", Role.ADMIN)
    assert (second.group, second.team, second.lead) == ("/gpu/vision", "vision, the team", True)


@pytest.mark.parametrize(
    "text", ["admins", "=admin", "admins=", "admins=root", "vision=lead:", "vision=owner:vision"]
)
def test_a_rule_that_gives_nothing_known_is_refused(text: str) -> None:
    with pytest.raises(GroupsRefused, match=text.partition("=")[0] or "no rule"):
        read_rules(text)


@pytest.mark.parametrize(
    ("claim", "names"),
    [
        pytest.param(["a", "b c"], ("a", "b c"), id="a list"),
        pytest.param("a b,c", ("a b,c",), id="one text is one group, blanks and all"),
        pytest.param("gpu admins", ("gpu admins",), id="a part of a name is no group"),
        pytest.param("  ", (), id="blanks alone"),
        pytest.param(["a", 1, None, ["b"]], ("a",), id="what are names"),
        pytest.param(None, (), id="nothing"),
        pytest.param({"a": True}, (), id="something else"),
        pytest.param("", (), id="empty"),
    ],
)
def test_a_claim_of_groups_is_a_list_or_a_text(claim: object, names: tuple[str, ...]) -> None:
    assert groups_in(claim) == names

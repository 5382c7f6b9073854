"""The table of states: who may do what, and what can never happen."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.changes.domain.states import (
    FINAL,
    OPEN,
    TABLE,
    Action,
    Person,
    Standing,
    State,
    TransitionDenied,
    Who,
    allowed,
    diagram,
    moved,
    relations,
    rows,
)

ADA = Person("ada")  # leads the team and wrote the request
BEN = Person("ben")  # leads the team too
CLEO = Person("cleo", admin=True)
DORA = Person("dora", admin=True)
DAN = Person("dan")
PEOPLE = (ADA, BEN, CLEO, DORA, DAN)


def standing(state: State, *, needed: int = 1, approvals: tuple[str, ...] = ()) -> Standing:
    return Standing(state, frozenset({"ada"}), frozenset({"ada", "ben"}), approvals, needed)


def walk(start: Standing, *steps: tuple[Action, Person | None]) -> Standing:
    for action, person in steps:
        start = moved(start, action, person)
    return start


LEADS = {
    State.DRAFT: {Action.EDIT, Action.SUBMIT, Action.WITHDRAW},
    State.SUBMITTED: {Action.EDIT, Action.WITHDRAW},
    State.IN_REVIEW: {Action.WITHDRAW},
    State.CHANGES_ASKED: {Action.EDIT, Action.SUBMIT, Action.WITHDRAW},
    State.APPROVED: {Action.WITHDRAW},
    State.FAILED: {Action.WITHDRAW},
}
REVIEWERS = {
    State.SUBMITTED: {Action.TAKE},
    State.IN_REVIEW: {Action.RELEASE, Action.ASK_CHANGES, Action.APPROVE, Action.REJECT},
    State.APPROVED: {Action.APPLY},
    State.FAILED: {Action.APPLY, Action.REOPEN},
    State.APPLIED: {Action.REVERT},
}
PORTAL = {
    State.DRAFT: {Action.EXPIRE},
    State.SUBMITTED: {Action.APPROVE_BY_RULE, Action.EXPIRE},
    State.IN_REVIEW: {Action.EXPIRE},
    State.CHANGES_ASKED: {Action.EXPIRE},
    State.APPROVED: {Action.APPLY, Action.EXPIRE},
    State.APPLYING: {Action.CONFIRM_APPLIED, Action.SEND_BACK, Action.FAIL},
    State.FAILED: {Action.APPLY, Action.EXPIRE},
    State.APPLIED: {Action.REVERT, Action.EXPIRE},
    State.REVERTING: {Action.CONFIRM_REVERTED, Action.STOP_REVERT},
}


@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
def test_every_state_allows_each_person_exactly_this(state: State) -> None:
    now = standing(state)
    assert set(allowed(now, ADA)) == LEADS.get(state, set())
    assert set(allowed(now, BEN)) == LEADS.get(state, set())
    assert set(allowed(now, CLEO)) == REVIEWERS.get(state, set())
    assert set(allowed(now, None)) == PORTAL.get(state, set())
    assert allowed(now, DAN) == ()


@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
def test_every_state_has_a_way_out_or_is_final(state: State) -> None:
    leaves = any(row.start is state and row.end is not state for row in TABLE)
    assert leaves is (state not in FINAL)


def test_every_state_can_be_reached() -> None:
    reached = {State.DRAFT}
    while more := {row.end for row in TABLE if row.start in reached} - reached:
        reached |= more
    assert reached == set(State)


def test_only_what_is_asked_for_and_not_done_stands_in_the_way_of_another_request() -> None:
    out_of_the_way = FINAL | {State.DRAFT, State.APPLIED, State.REVERTING}
    assert out_of_the_way | OPEN == set(State)
    assert not OPEN & out_of_the_way


def test_the_plain_way_from_draft_to_reverted() -> None:
    end = walk(
        standing(State.DRAFT),
        (Action.SUBMIT, ADA),
        (Action.TAKE, CLEO),
        (Action.APPROVE, CLEO),
        (Action.APPLY, None),
        (Action.CONFIRM_APPLIED, None),
        (Action.REVERT, None),
        (Action.CONFIRM_REVERTED, None),
    )
    assert end.state is State.REVERTED
    assert end.approvals == ("cleo",)


def test_above_the_threshold_two_people_approve() -> None:
    once = moved(standing(State.IN_REVIEW, needed=2), Action.APPROVE, CLEO)
    assert (once.state, once.approvals) == (State.IN_REVIEW, ("cleo",))
    with pytest.raises(TransitionDenied, match="second person"):
        moved(once, Action.APPROVE, CLEO)
    twice = moved(once, Action.APPROVE, DORA)
    assert (twice.state, twice.approvals) == (State.APPROVED, ("cleo", "dora"))


def test_no_rule_stands_in_for_two_people() -> None:
    with pytest.raises(TransitionDenied, match="two people"):
        moved(standing(State.SUBMITTED, needed=2), Action.APPROVE_BY_RULE, None)


@pytest.mark.parametrize(
    ("action", "person"),
    [(Action.ASK_CHANGES, CLEO), (Action.RELEASE, CLEO)],
    ids=["changes asked", "given back"],
)
def test_a_return_voids_the_first_approval(action: Action, person: Person) -> None:
    once = moved(standing(State.IN_REVIEW, needed=2), Action.APPROVE, CLEO)
    assert moved(once, action, person).approvals == ()


def test_what_changed_in_the_cluster_voids_the_approvals() -> None:
    approved = standing(State.APPLYING, needed=2, approvals=("cleo", "dora"))
    back = moved(approved, Action.SEND_BACK, None)
    assert (back.state, back.approvals) == (State.IN_REVIEW, ())


def test_an_author_who_becomes_an_admin_still_does_not_decide() -> None:
    ada = replace(ADA, admin=True)
    assert relations(standing(State.IN_REVIEW), ada) == {Who.AUTHOR, Who.LEAD}
    with pytest.raises(TransitionDenied, match="wrote a request never decides"):
        moved(standing(State.IN_REVIEW), Action.APPROVE, ada)


def test_who_edits_becomes_an_author() -> None:
    ben = replace(BEN, admin=True)
    assert Who.REVIEWER in relations(standing(State.SUBMITTED), ben)
    edited = moved(standing(State.SUBMITTED), Action.EDIT, ben)
    assert edited.authors == {"ada", "ben"}
    assert Who.REVIEWER not in relations(edited, ben)


def test_an_author_who_left_the_team_has_no_say() -> None:
    left = replace(standing(State.DRAFT), leads=frozenset({"ben"}))
    assert allowed(left, ADA) == ()


@pytest.mark.parametrize(
    ("state", "action", "person", "words"),
    [
        pytest.param(
            State.REJECTED, Action.SUBMIT, ADA, "rejected cannot be submitted", id="state"
        ),
        pytest.param(State.IN_REVIEW, Action.EDIT, ADA, "cannot be edited", id="taken"),
        pytest.param(State.IN_REVIEW, Action.APPROVE, BEN, "Only the reviewer", id="no admin"),
        pytest.param(State.APPROVED, Action.APPLY, ADA, "never decides", id="author applies"),
        pytest.param(State.APPLYING, Action.FAIL, CLEO, "Only the portal", id="system only"),
    ],
)
def test_a_denial_says_why(state: State, action: Action, person: Person, words: str) -> None:
    with pytest.raises(TransitionDenied, match=words):
        moved(standing(state), action, person)


STEPS = st.lists(st.tuples(st.sampled_from(Action), st.sampled_from((*PEOPLE, None))), max_size=60)


@given(STEPS, st.sampled_from([1, 2]))
def test_nothing_is_applied_that_no_other_person_or_rule_approved(
    steps: list[tuple[Action, Person | None]], needed: int
) -> None:
    now = standing(State.DRAFT, needed=needed)
    by_rule = False
    for action, person in steps:
        try:
            now = moved(now, action, person)
        except TransitionDenied:
            continue
        by_rule = by_rule or action is Action.APPROVE_BY_RULE
        if now.state in (State.APPROVED, State.APPLYING, State.APPLIED, State.REVERTING):
            assert by_rule or len(set(now.approvals)) >= needed
            assert not set(now.approvals) & now.authors


def test_without_the_approvals_there_is_no_way_to_applied() -> None:
    approving = {Action.APPROVE, Action.APPROVE_BY_RULE}
    reached = {State.DRAFT}
    while (
        more := {row.end for row in TABLE if row.start in reached and row.action not in approving}
        - reached
    ):
        reached |= more
    assert not reached & {State.APPROVED, State.APPLYING, State.APPLIED, State.FAILED}


def test_the_diagram_has_every_row_of_the_table() -> None:
    drawn = diagram()
    assert drawn.startswith("stateDiagram-v2\n    [*] --> draft\n")
    assert 'state "in review" as in_review' in drawn
    for row in TABLE:
        start, end = row.start.value.replace(" ", "_"), row.end.value.replace(" ", "_")
        (line,) = (one for one in drawn.splitlines() if f" {start} --> {end}:" in one)
        assert row.action.value.replace("_", " ") in line
    assert len(rows()) == len(TABLE)
    assert rows()[3][:3] == ("draft", "submit", "submitted")


def test_the_documentation_shows_the_table_as_it_is() -> None:
    text = (Path(__file__).parents[2] / "docs/explanation/quota-changes.md").read_text("utf-8")
    assert f"```mermaid\n{diagram()}```\n" in text
    assert "".join(f"| {' | '.join(row)} |\n" for row in rows()) in text

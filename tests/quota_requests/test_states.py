"""The table of states: who may do what, and what can never happen."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.domain.structs import replace
from apps.quota_requests.domain.states import (
    FINAL,
    OPEN,
    TABLE,
    ActingPerson,
    ActorRole,
    RequestAction,
    RequestState,
    TransitionDenied,
    TransitionFacts,
    allowed,
    moved,
    relations,
)

ADA = ActingPerson("ada")  # leads the team and wrote the request
BEN = ActingPerson("ben")  # leads the team too
CLEO = ActingPerson("cleo", admin=True)
DORA = ActingPerson("dora", admin=True)
DAN = ActingPerson("dan")
PEOPLE = (ADA, BEN, CLEO, DORA, DAN)


def standing(
    state: RequestState, *, needed: int = 1, approvals: tuple[str, ...] = ()
) -> TransitionFacts:
    return TransitionFacts(state, frozenset({"ada"}), frozenset({"ada", "ben"}), approvals, needed)


def walk(
    start: TransitionFacts, *steps: tuple[RequestAction, ActingPerson | None]
) -> TransitionFacts:
    for action, person in steps:
        start = moved(start, action, person)
    return start


LEADS = {
    RequestState.DRAFT: {RequestAction.EDIT, RequestAction.SUBMIT, RequestAction.WITHDRAW},
    RequestState.SUBMITTED: {RequestAction.EDIT, RequestAction.WITHDRAW},
    RequestState.IN_REVIEW: {RequestAction.WITHDRAW},
    RequestState.CHANGES_ASKED: {RequestAction.EDIT, RequestAction.SUBMIT, RequestAction.WITHDRAW},
    RequestState.APPROVED: {RequestAction.WITHDRAW},
    RequestState.SCHEDULED: {RequestAction.WITHDRAW},
    RequestState.FAILED: {RequestAction.WITHDRAW},
}
REVIEWERS = {
    RequestState.SUBMITTED: {RequestAction.TAKE},
    RequestState.IN_REVIEW: {
        RequestAction.RELEASE,
        RequestAction.ASK_CHANGES,
        RequestAction.APPROVE,
        RequestAction.REJECT,
    },
    RequestState.APPROVED: {RequestAction.APPLY},
    RequestState.SCHEDULED: {RequestAction.REOPEN},
    RequestState.FAILED: {RequestAction.APPLY, RequestAction.REOPEN},
    RequestState.APPLIED: {RequestAction.REVERT},
}
PORTAL = {
    RequestState.DRAFT: {RequestAction.EXPIRE},
    RequestState.SUBMITTED: {RequestAction.APPROVE_BY_RULE, RequestAction.EXPIRE},
    RequestState.IN_REVIEW: {RequestAction.EXPIRE},
    RequestState.CHANGES_ASKED: {RequestAction.EXPIRE},
    RequestState.APPROVED: {RequestAction.APPLY, RequestAction.SCHEDULE, RequestAction.EXPIRE},
    RequestState.SCHEDULED: {
        RequestAction.APPLY,
        RequestAction.HAND_OVER,
        RequestAction.EXPIRE,
    },
    RequestState.APPLYING: {
        RequestAction.CONFIRM_APPLIED,
        RequestAction.SEND_BACK,
        RequestAction.FAIL,
    },
    RequestState.FAILED: {RequestAction.APPLY, RequestAction.EXPIRE},
    RequestState.APPLIED: {RequestAction.REVERT, RequestAction.EXPIRE},
    RequestState.REVERTING: {RequestAction.CONFIRM_REVERTED, RequestAction.STOP_REVERT},
}


@pytest.mark.parametrize("state", RequestState, ids=lambda state: state.value)
def test_every_state_allows_each_person_exactly_this(state: RequestState) -> None:
    now = standing(state)
    assert set(allowed(now, ADA)) == LEADS.get(state, set())
    assert set(allowed(now, BEN)) == LEADS.get(state, set())
    assert set(allowed(now, CLEO)) == REVIEWERS.get(state, set())
    assert set(allowed(now, None)) == PORTAL.get(state, set())
    assert allowed(now, DAN) == ()


@pytest.mark.parametrize("state", RequestState, ids=lambda state: state.value)
def test_every_state_has_a_way_out_or_is_final(state: RequestState) -> None:
    leaves = any(row.start is state and row.end is not state for row in TABLE)
    assert leaves is (state not in FINAL)


def test_every_state_can_be_reached() -> None:
    reached = {RequestState.DRAFT}
    while more := {row.end for row in TABLE if row.start in reached} - reached:
        reached |= more
    assert reached == set(RequestState)


def test_only_what_is_asked_for_and_not_done_stands_in_the_way_of_another_request() -> None:
    out_of_the_way = FINAL | {
        *(RequestState.DRAFT, RequestState.SCHEDULED, RequestState.APPLIED),
        RequestState.REVERTING,
    }
    assert out_of_the_way | OPEN == set(RequestState)
    assert not OPEN & out_of_the_way


def test_the_plain_way_from_draft_to_reverted() -> None:
    end = walk(
        standing(RequestState.DRAFT),
        (RequestAction.SUBMIT, ADA),
        (RequestAction.TAKE, CLEO),
        (RequestAction.APPROVE, CLEO),
        (RequestAction.APPLY, None),
        (RequestAction.CONFIRM_APPLIED, None),
        (RequestAction.REVERT, None),
        (RequestAction.CONFIRM_REVERTED, None),
    )
    assert end.state is RequestState.REVERTED
    assert end.approvals == ("cleo",)


def test_above_the_threshold_two_people_approve() -> None:
    once = moved(standing(RequestState.IN_REVIEW, needed=2), RequestAction.APPROVE, CLEO)
    assert (once.state, once.approvals) == (RequestState.IN_REVIEW, ("cleo",))
    with pytest.raises(TransitionDenied, match="second person"):
        moved(once, RequestAction.APPROVE, CLEO)
    twice = moved(once, RequestAction.APPROVE, DORA)
    assert (twice.state, twice.approvals) == (RequestState.APPROVED, ("cleo", "dora"))


def test_no_rule_stands_in_for_two_people() -> None:
    with pytest.raises(TransitionDenied, match="two people"):
        moved(standing(RequestState.SUBMITTED, needed=2), RequestAction.APPROVE_BY_RULE, None)


@pytest.mark.parametrize(
    ("action", "person"),
    [(RequestAction.ASK_CHANGES, CLEO), (RequestAction.RELEASE, CLEO)],
    ids=["changes asked", "given back"],
)
def test_a_return_voids_the_first_approval(action: RequestAction, person: ActingPerson) -> None:
    once = moved(standing(RequestState.IN_REVIEW, needed=2), RequestAction.APPROVE, CLEO)
    assert moved(once, action, person).approvals == ()


def test_what_changed_in_the_cluster_voids_the_approvals() -> None:
    approved = standing(RequestState.APPLYING, needed=2, approvals=("cleo", "dora"))
    back = moved(approved, RequestAction.SEND_BACK, None)
    assert (back.state, back.approvals) == (RequestState.IN_REVIEW, ())


def test_an_author_who_becomes_an_admin_still_does_not_decide() -> None:
    ada = replace(ADA, admin=True)
    assert relations(standing(RequestState.IN_REVIEW), ada) == {ActorRole.AUTHOR, ActorRole.LEAD}
    with pytest.raises(TransitionDenied, match="Authors never decide"):
        moved(standing(RequestState.IN_REVIEW), RequestAction.APPROVE, ada)


def test_who_edits_becomes_an_author() -> None:
    ben = replace(BEN, admin=True)
    assert ActorRole.REVIEWER in relations(standing(RequestState.SUBMITTED), ben)
    edited = moved(standing(RequestState.SUBMITTED), RequestAction.EDIT, ben)
    assert edited.authors == {"ada", "ben"}
    assert ActorRole.REVIEWER not in relations(edited, ben)


def test_an_author_who_left_the_team_has_no_say() -> None:
    left = replace(standing(RequestState.DRAFT), leads=frozenset({"ben"}))
    assert allowed(left, ADA) == ()


@pytest.mark.parametrize(
    ("state", "action", "person", "words"),
    [
        pytest.param(
            RequestState.REJECTED,
            RequestAction.SUBMIT,
            ADA,
            "rejected cannot be submitted",
            id="state",
        ),
        pytest.param(
            RequestState.IN_REVIEW, RequestAction.EDIT, ADA, "cannot be edited", id="taken"
        ),
        pytest.param(
            RequestState.IN_REVIEW, RequestAction.APPROVE, BEN, "Only the reviewer", id="no admin"
        ),
        pytest.param(
            RequestState.APPROVED, RequestAction.APPLY, ADA, "never decide", id="author applies"
        ),
        pytest.param(
            RequestState.APPLYING, RequestAction.FAIL, CLEO, "Only the portal", id="system only"
        ),
    ],
)
def test_a_denial_says_why(
    state: RequestState, action: RequestAction, person: ActingPerson, words: str
) -> None:
    with pytest.raises(TransitionDenied, match=words):
        moved(standing(state), action, person)


STEPS = st.lists(
    st.tuples(st.sampled_from(RequestAction), st.sampled_from((*PEOPLE, None))), max_size=60
)


@given(STEPS, st.sampled_from([1, 2]))
def test_nothing_is_applied_that_no_other_person_or_rule_approved(
    steps: list[tuple[RequestAction, ActingPerson | None]], needed: int
) -> None:
    now = standing(RequestState.DRAFT, needed=needed)
    by_rule = False
    for action, person in steps:
        try:
            now = moved(now, action, person)
        except TransitionDenied:
            continue
        by_rule = by_rule or action is RequestAction.APPROVE_BY_RULE
        if now.state in (
            RequestState.APPROVED,
            RequestState.APPLYING,
            RequestState.APPLIED,
            RequestState.REVERTING,
        ):
            assert by_rule or len(set(now.approvals)) >= needed
            assert not set(now.approvals) & now.authors


def test_without_the_approvals_there_is_no_way_to_applied() -> None:
    approving = {RequestAction.APPROVE, RequestAction.APPROVE_BY_RULE}
    reached = {RequestState.DRAFT}
    while (
        more := {row.end for row in TABLE if row.start in reached and row.action not in approving}
        - reached
    ):
        reached |= more
    assert not reached & {
        RequestState.APPROVED,
        RequestState.APPLYING,
        RequestState.APPLIED,
        RequestState.FAILED,
    }


def diagram() -> str:
    """Return the table as a Mermaid state diagram, for the docs."""
    names = {state: state.value.replace(" ", "_") for state in RequestState}
    arrows: dict[tuple[RequestState, RequestState], list[str]] = {}
    for row in TABLE:
        who = ", ".join(sorted(who.value for who in row.who))
        label = f"{row.action.value.replace('_', ' ')} ({who})"
        arrows.setdefault((row.start, row.end), []).append(label)
    lines = ["stateDiagram-v2", "    [*] --> draft"]
    lines += [f'    state "{s.value}" as {names[s]}' for s in RequestState if " " in s.value]
    lines += [
        f"    {names[start]} --> {names[end]}: {' / '.join(labels)}"
        for (start, end), labels in arrows.items()
    ]
    lines += [
        f"    {names[state]} --> [*]"
        for state in RequestState
        if state in FINAL | {RequestState.APPLIED}
    ]
    return "\n".join(lines) + "\n"


def rows() -> list[tuple[str, str, str, str, str]]:
    """Return the table as text: from, action, to, who may, why."""
    return [
        (
            row.start.value,
            row.action.value.replace("_", " "),
            row.end.value,
            ", ".join(sorted(who.value for who in row.who)),
            row.why,
        )
        for row in TABLE
    ]


def test_the_documentation_shows_the_table_as_it_is() -> None:
    text = (Path(__file__).parents[2] / "docs/explanation/quota-changes.md").read_text("utf-8")
    assert f"```mermaid\n{diagram()}```\n" in text
    assert "".join(f"| {' | '.join(row)} |\n" for row in rows()) in text

"""How frozen figures of a request are told, those of earlier portals too."""

from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from apps.quota_requests.domain.approval_policy import PolicyDecision
from apps.quota_requests.domain.snapshots import Evidence, ImpactPreview
from apps.quota_requests.selectors import read
from apps.web.quota_requests.impact_view import (
    PolicyVerdict,
    Summary,
    approval_summary,
    evidence_summary,
    impact_summary,
)
from tests.quota_requests.requests import EVIDENCE, PREVIEW

UTC = ZoneInfo("UTC")
TOGETHER: dict[str, Any] = {
    "before_units": "385",
    "after_units": "395",
    "capacity_units": "291",
    "promised_ratio": "1.3573883",
    "over": True,
    "was_over": True,
}


def previewed(kept: dict[str, Any], *, before: str, unit: str = "") -> Summary:
    return impact_summary(read(kept, ImpactPreview), before=before, unit=unit)


def evidenced(kept: dict[str, Any], zone: ZoneInfo) -> Summary:
    return evidence_summary(read(kept, Evidence), zone)


def ruled(kept: dict[str, Any]) -> PolicyVerdict:
    return approval_summary(read(kept, PolicyDecision))


def preview(**values: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", PREVIEW) | values


def glance(told: Any) -> dict[str, tuple[str, str]]:
    return {label: (text, words) for label, text, words in told.glance}


def facts(told: Summary) -> dict[str, tuple[str, str]]:
    """Return the value of each fact with its words; without a value why it has none."""
    assert told.facts is not None
    return {one.label: (one.value, one.exact or one.missing) for one in told.facts.figures}


# ---------------------------------------------------------------- promises


def test_what_a_key_reaches_is_told_together_and_tier_by_tier_only_folded() -> None:
    found = previewed(preview(together=TOGETHER), before="8", unit="GPUs")
    assert facts(found)["Quota ÷ capacity"] == (
        "132 → 136 %",
        "Σ quota ÷ capacity: 395 of 291 GPUs of gold and silver",
    )
    (grid,) = [grid for grid in found.grids if grid.id == "promised"]
    assert grid.folded
    assert grid.note == "A key that reaches several tiers counts whole in each."


@pytest.mark.parametrize(
    ("values", "warned", "said"),
    [
        pytest.param({}, "", "Already overcommitted before.", id="before already"),
        pytest.param({"was_over": False}, "This overcommits capacity.", "", id="by this change"),
        pytest.param(
            {"before_units": "300"}, "This overcommits capacity further.", "", id="much worse"
        ),
        pytest.param({"over": False, "was_over": False}, "", "", id="within"),
    ],
)
def test_a_promise_beyond_what_there_is_warns_only_where_this_change_makes_it(
    values: dict[str, Any], warned: str, said: str
) -> None:
    found = previewed(preview(together=TOGETHER | values), before="8", unit="GPUs")
    assert [text for text in found.warnings if text.startswith(warned)] == list(found.warnings)
    assert bool(found.warnings) is bool(warned)
    assert any(note.startswith("Already overcommitted") for note in found.notes) is bool(said)


def test_the_sentence_that_was_frozen_is_the_one_that_is_told() -> None:
    together = TOGETHER | {"sentence": "395 of 291 GPUs; before 385.", "was_over": False}
    (warning,) = previewed(preview(together=together), before="8").warnings
    assert warning == "This overcommits capacity. 395 of 291 GPUs; before 385."


def test_a_preview_of_earlier_shows_the_fullest_tier_and_says_that_it_is_one() -> None:
    found = previewed(preview(), before="8", unit="GPUs")
    assert facts(found)["Quota ÷ capacity"] == (
        "175 %",
        "Σ quota ÷ capacity, of the fullest tier",
    )
    assert not found.warnings, "it was promised before"
    assert "Overcommitted before already: 14 of 8 of gold." in found.notes


def test_of_one_tier_the_two_sums_are_the_same() -> None:
    one = preview()["promised"][:1]
    found = previewed(preview(promised=one), before="8", unit="GPUs")
    assert facts(found)["Quota ÷ capacity"] == (
        "150 → 175 %",
        "Σ quota ÷ capacity: 14 of 8 GPUs of gold",
    )
    assert [grid.folded for grid in found.grids if grid.id == "promised"] == [False]


def test_what_is_not_known_of_all_is_said() -> None:
    unknown = TOGETHER | {"capacity_units": None, "promised_ratio": None, "over": False}
    text, words = facts(previewed(preview(together=unknown), before="8"))["Quota ÷ capacity"]
    assert not text
    assert "395 of not known" not in words
    assert "capacity is not known" in words


# ---------------------------------------------------------------- borrowing, evidence, rules


def test_queues_that_lose_nothing_are_one_sentence() -> None:
    loses = preview()["borrowing"][0]
    keeps = loses | {"name": "other", "lost": "0"}
    for rooms, rows, note in (
        ([loses, keeps], 1, "No other queue of the cohort loses anything."),
        ([keeps, keeps], 0, "No queue of the cohort loses anything."),
        ([loses], 1, ""),
    ):
        (grid,) = [
            grid
            for grid in previewed(preview(borrowing=rooms), before="8").grids
            if grid.id == "borrowing"
        ]
        assert (len(grid.rows), grid.note) == (rows, note)


def test_a_column_of_gpu_hours_has_one_decimal_throughout() -> None:
    usage = [
        {"tier": "gold", "allocated_gpu_hours": "13039.93", "busy_gpu_hours": "0"},
        {"tier": "silver", "allocated_gpu_hours": "7947.3", "busy_gpu_hours": "0.001"},
    ]
    told = evidenced(cast("dict[str, Any]", EVIDENCE) | {"usage": usage}, UTC)
    (grid,) = [grid for grid in told.grids if grid.id == "usage"]
    assert [row[1:3] for row in grid.rows] == [("13,039.9", "0.0"), ("7,947.3", "<0.1")]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({"hard": "8", "used": "8"}, "full now", id="by its figures"),
        pytest.param({"hard": "8", "used": "7", "full_now": True}, "full now", id="as frozen"),
        pytest.param({"hard": "8", "used": "7"}, "1 Nov 2025 12:00", id="not yet"),
    ],
)
def test_a_quota_that_is_full_is_not_told_as_a_time(values: dict[str, Any], said: str) -> None:
    quota = {"unit": "GPUs", "exhausted_at": "2025-11-01T12:00:00+00:00"} | values
    (grid,) = evidenced({"quota": quota}, UTC).grids
    assert grid.worded
    assert dict(cast("Any", grid.rows))["Full by"] == said


def test_the_rule_that_decides_stands_with_who_decides() -> None:
    checks = [
        {"name": "rule", "holds": False, "sentence": "No rule approves small raises."},
        {"name": "own", "holds": True, "sentence": "No other team shares this limit."},
        {"name": "two people", "holds": True, "sentence": "10 GPUs: from 4 on two people decide."},
    ]
    told = ruled({"by_rule": False, "approvals_needed": 2, "checks": checks})
    assert (told.who, told.why) == (
        "2 people have to approve this.",
        "10 GPUs: from 4 on two people decide.",
    )
    assert [holds for holds, _ in told.checks] == [False, True]
    one = ruled({"by_rule": False, "approvals_needed": 1, "checks": checks[:2]})
    assert one.why == "No rule approves small raises."
    named = ruled({"approvals_needed": 1, "decides": "own", "checks": checks[:2]})
    assert named.why == "No other team shares this limit."
    assert not ruled({})
    assert list(ruled({"by_rule": True, "checks": []})) == [
        "The site's rules approve this by themselves."
    ]


def test_all_that_is_not_known_is_one_sentence() -> None:
    told = evidenced({"missing": ["hours of gold", "hours of silver"]}, UTC)
    assert list(told.notes) == ["Incomplete data: hours of gold; hours of silver."]


@pytest.mark.parametrize(
    ("texts", "whole", "shown"),
    [
        pytest.param(["1.5", "2"], True, "3.5 GPU-h", id="all hours are known"),
        pytest.param(["1.5"], None, "1.5 GPU-h", id="of an earlier portal"),
        pytest.param(["0"], False, "at least 0.0 GPU-h", id="some hours are unknown"),
        pytest.param(["1.5", None], False, "at least 1.5 GPU-h", id="one tier is unknown"),
        pytest.param([None], False, "not known", id="nothing is known"),
    ],
)
def test_what_was_denied_in_unknown_hours_is_never_zero(
    texts: list[str | None], whole: bool | None, shown: str
) -> None:
    rows = [{"tier": "gold", "denied_gpu_hours": text} for text in texts]
    evidence: dict[str, Any] = {**EVIDENCE, "fairness": rows}
    if whole is not None:
        evidence["denied_whole"] = whole
    assert glance(evidenced(evidence, UTC))["Unmet fair share"][0] == shown

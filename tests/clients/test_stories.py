"""Answers of a preflight as lines that can be read aloud."""

from typing import Any

from gpuportal_client.tables import preflight_story

ROW: dict[str, Any] = {
    "kind": "Deployment",
    "name": "chat",
    "role": "",
    "verdict": "starts",
    "cause": "",
    "explanation": "",
    "tier": "",
    "pods": 0,
    "expected_wait_seconds": None,
    "position": None,
    "quotas": [],
    "cost_per_hour": None,
    "change": None,
    "alternatives": [],
    "unchecked": [],
}


def test_work_without_pods_is_not_only_told_to_start() -> None:
    nothing = "It makes no pods, so it requests nothing."
    assert preflight_story(ROW | {"explanation": nothing}).strip() == f"Deployment/chat: {nothing}"


def test_what_is_not_checked_are_sentences_one_after_the_other() -> None:
    unchecked = ["Volumes are not checked.", "Preemption is not assumed."]
    told = preflight_story(ROW | {"pods": 1, "unchecked": unchecked})
    assert "not checked  Volumes are not checked. Preemption is not assumed." in told

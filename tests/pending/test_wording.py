"""Sentences about pending work: stored as data, put in words when they are read."""

import re
from pathlib import Path

import pytest

from apps.pending.domain.diagnosis import Action, Cause, Diagnosis, columns_of, findings_of, says
from apps.pending.domain.wording import SENTENCES, sentence

DOMAIN = Path(__file__).parents[2] / "apps/pending/domain"
_NAMED = re.compile(r'"([a-z_]+)"')


def test_every_sentence_is_said_and_every_one_that_is_said_is_worded() -> None:
    code = "\n".join(path.read_text() for path in DOMAIN.rglob("*.py") if path.name != "wording.py")
    said = set(re.findall(r'says\(\s*"([a-z_]+)"', code))
    assert said <= SENTENCES.keys()
    named = set(_NAMED.findall(code)) | {action.value for action in Action}
    assert SENTENCES.keys() <= named


def test_what_is_stored_reads_as_what_was_found() -> None:
    found = Diagnosis(
        Cause.CAPACITY, sentences=(says("asks", requests={"nvidia.com/gpu": 2.0, "a\0b": 1.0}),)
    )
    stored = columns_of(found)["findings"]
    assert stored == {"sentences": [["asks", {"requests": {"nvidia.com/gpu": 2.0, "ab": 1.0}}]]}
    assert findings_of(stored).explanation == "Requests 1 ab and 2 nvidia.com/gpu."
    plain = Diagnosis(Cause.CAPACITY, sentences=(says("gated", gates=("a", "\\u0000")),))
    assert columns_of(plain)["findings"] == {"sentences": [["gated", {"gates": ["a", "\\u0000"]}]]}
    lone = Diagnosis(Cause.CAPACITY, context=("\ud800",))
    assert columns_of(lone)["findings"] == {"context": ["\ud800"]}


def test_an_amount_without_a_limit_is_stored_and_worded() -> None:
    found = Diagnosis(Cause.CAPACITY, sentences=(says("too_little_else", total=float("inf")),))
    (one,) = findings_of(columns_of(found)["findings"]).sentences
    assert one.particulars == {"total": None}


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param({"sentences": [["of_tomorrow", {}]]}, id="a sentence of another version"),
        pytest.param({"sentences": [["queue_closed"]]}, id="without particulars"),
        pytest.param({"suggestions": [{"action": "of_tomorrow"}]}, id="an action"),
        pytest.param([], id="no findings at all"),
    ],
)
def test_what_another_version_stored_is_no_error(stored: object) -> None:
    assert isinstance(findings_of(stored).explanation, str)
    assert sentence("free", {"amount": "much"}) == ""

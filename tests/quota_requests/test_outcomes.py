"""What each answer of an API server means; recorded answers where there are any."""

from typing import Any

import pytest

from apps.quota_requests.domain.execution.kube_requests import (
    AfterAnswer,
    NoAnswer,
    ServerAnswer,
    ServerStep,
    answer_of,
    meaning,
    said_once,
)
from tests.quota_requests import recorded
from tests.quota_requests.quota_api import TEST_FAILED


@pytest.mark.parametrize(
    ("name", "then", "words"),
    [
        pytest.param("400-quota-bad-quantity", AfterAnswer.FAILED, "could not read", id="quantity"),
        pytest.param("401-bad-token", AfterAnswer.FAILED, "credentials", id="token"),
        pytest.param(
            "401-deleted-serviceaccount", AfterAnswer.FAILED, "credentials", id="account gone"
        ),
        pytest.param("403-sa-quotas", AfterAnswer.FAILED, "right to patch", id="rights"),
        pytest.param(
            "404-namespace", AfterAnswer.FAILED, "no longer in the cluster", id="namespace"
        ),
        pytest.param(
            "406-not-acceptable", AfterAnswer.FAILED, "does not offer", id="not acceptable"
        ),
        pytest.param(
            "409-conflict-stale-resourceversion", AfterAnswer.READ_FIRST, "same moment", id="409"
        ),
        pytest.param("409-ssa-conflict", AfterAnswer.FAILED, "team-admin", id="another owner"),
        pytest.param("410-exact-resourceversion", AfterAnswer.FAILED, "no longer offers", id="410"),
        pytest.param("415-media-type", AfterAnswer.FAILED, "kind of patch", id="media type"),
        pytest.param(
            "422-quota-negative", AfterAnswer.FAILED, "greater than or equal", id="negative"
        ),
        pytest.param(
            "422-quota-unqualified", AfterAnswer.FAILED, "standard resource", id="unqualified"
        ),
        pytest.param("504-too-large-resourceversion", AfterAnswer.READ_FIRST, "504", id="504"),
    ],
)
def test_recorded_answers_to_a_patch(name: str, then: AfterAnswer, words: str) -> None:
    body = recorded.body(recorded.KUBE, f"errors/{name}.json")
    found = meaning(answer_of(int(name[:3]), body), ServerStep.PATCH)
    assert found.then is then
    assert words in f"{found.sentence} {found.detail}"
    assert body["message"] not in found.sentence


def test_a_rule_of_the_cluster_is_told_from_a_missing_right() -> None:
    body = recorded.body(recorded.KUEUE, "errors/403-clusterqueue-denied-by-webhook.json")
    found = meaning(answer_of(403, body), ServerStep.DRY_RUN)
    assert found.then is AfterAnswer.FAILED
    assert found.sentence == "A rule of the cluster (admission) refused the new value."
    assert "must be greater than or equal to 0" in found.detail


@pytest.mark.parametrize(
    "message",
    [
        'admission webhook "quota.example" denied the request: at most 7',
        "ValidatingAdmissionPolicy 'quota' with binding 'all' denied request: at most 7",
    ],
    ids=["webhook", "policy"],
)
@pytest.mark.parametrize("status", [400, 403, 409, 422])
def test_a_rule_of_the_cluster_may_refuse_with_any_status(status: int, message: str) -> None:
    found = meaning(answer_of(status, {"message": message, "details": {}}), ServerStep.PATCH)
    assert (found.then, found.detail) == (AfterAnswer.FAILED, message)
    assert found.sentence == "A rule of the cluster (admission) refused the new value."


def test_a_webhook_that_cannot_be_tried_out_is_no_refusal_of_the_value() -> None:
    message = 'admission webhook "quota.example" does not support dry run'
    found = meaning(
        answer_of(400, {"message": message, "reason": "BadRequest"}), ServerStep.DRY_RUN
    )
    assert (found.then, found.detail) == (AfterAnswer.FAILED, message)
    assert "does not support dry runs" in found.sentence
    assert "GitOps mode" in found.sentence


@pytest.mark.parametrize(
    ("status", "body", "step", "words"),
    [
        pytest.param(403, {}, ServerStep.READ, "lacks the right to get", id="may not read"),
        pytest.param(403, {}, ServerStep.PATCH, "lacks the right to patch", id="may not write"),
        pytest.param(302, None, ServerStep.READ, "sends elsewhere (302)", id="redirect"),
        pytest.param(
            404, None, ServerStep.READ, "does not know of the object's kind", id="no server"
        ),
        pytest.param(
            404, {"reason": "NotFound"}, ServerStep.READ, "no longer in the cluster", id="gone"
        ),
        pytest.param(401, {}, ServerStep.READ, "have to be renewed", id="credentials"),
    ],
)
def test_a_refusal_says_what_was_refused_and_what_to_do(
    status: int, body: object, step: ServerStep, words: str
) -> None:
    assert words in meaning(answer_of(status, body), step).sentence


@pytest.mark.parametrize("step", ServerStep)
def test_a_yes_without_the_object_proves_nothing(step: ServerStep) -> None:
    found = meaning(ServerAnswer(200, strange=True), step)
    assert found.then is (AfterAnswer.READ_FIRST if step is ServerStep.PATCH else AfterAnswer.RETRY)
    assert "does not show the quota" in found.sentence


@pytest.mark.parametrize("step", ServerStep)
def test_a_failed_test_is_told_from_an_invalid_value(step: ServerStep) -> None:
    found = meaning(answer_of(422, TEST_FAILED), step)
    assert found.then is AfterAnswer.READ_FIRST
    assert "no longer showed the reviewed value" in found.sentence


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize("step", ServerStep)
def test_a_yes_goes_on(status: int, step: ServerStep) -> None:
    assert meaning(ServerAnswer(status), step).then is AfterAnswer.GO_ON


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize(
    ("step", "then"),
    [
        (ServerStep.READ, AfterAnswer.RETRY),
        (ServerStep.DRY_RUN, AfterAnswer.RETRY),
        (ServerStep.PATCH, AfterAnswer.READ_FIRST),
        (ServerStep.READ_BACK, AfterAnswer.RETRY),
    ],
)
def test_an_error_of_the_server_leaves_doubt_only_about_a_patch(
    status: int, step: ServerStep, then: AfterAnswer
) -> None:
    assert meaning(ServerAnswer(status), step).then is then


@pytest.mark.parametrize(
    ("silence", "step", "then"),
    [
        (NoAnswer.UNSENT, ServerStep.PATCH, AfterAnswer.RETRY),
        (NoAnswer.LOST, ServerStep.PATCH, AfterAnswer.READ_FIRST),
        (NoAnswer.UNSENT, ServerStep.READ, AfterAnswer.RETRY),
        (NoAnswer.LOST, ServerStep.READ, AfterAnswer.RETRY),
        (NoAnswer.LOST, ServerStep.DRY_RUN, AfterAnswer.RETRY),
        (NoAnswer.LOST, ServerStep.READ_BACK, AfterAnswer.RETRY),
    ],
)
def test_no_answer_leaves_doubt_only_about_a_patch_that_was_sent(
    silence: NoAnswer, step: ServerStep, then: AfterAnswer
) -> None:
    assert meaning(ServerAnswer(silence=silence), step).then is then


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        pytest.param("7", {}, 7.0, id="header"),
        pytest.param(None, {"details": {"retryAfterSeconds": 3}}, 3.0, id="Status object"),
        pytest.param("soon", {"details": {"retryAfterSeconds": 3}}, 3.0, id="odd header"),
        pytest.param(None, {}, None, id="nothing"),
        pytest.param("0", {}, None, id="none at all"),
        pytest.param("\u00b2", {}, None, id="no digit"),
        pytest.param("9" * 400, {}, None, id="absurd"),
        pytest.param("Wed, 21 Oct 2026 07:28:00 GMT", {}, None, id="date"),
        pytest.param(None, {"details": {"retryAfterSeconds": "soon"}}, None, id="odd text"),
        pytest.param(None, {"details": {"retryAfterSeconds": [3]}}, None, id="list"),
        pytest.param(None, {"details": {"retryAfterSeconds": -3}}, None, id="negative"),
    ],
)
def test_too_many_requests_wait_as_long_as_the_server_says(
    header: str | None, body: dict[str, Any], seconds: float | None
) -> None:
    found = meaning(answer_of(429, body, retry_after=header), ServerStep.PATCH)
    assert (found.then, found.retry_after_seconds) == (AfterAnswer.RETRY, seconds)


@pytest.mark.parametrize("body", [None, "<html>", [], {"details": "odd"}, {"message": None}])
@pytest.mark.parametrize("status", [302, 403, 404, 418])
def test_an_answer_that_is_no_status_object_has_a_sentence_too(status: int, body: object) -> None:
    found = meaning(answer_of(status, body), ServerStep.PATCH)
    assert found.then is AfterAnswer.FAILED
    assert found.sentence.endswith(".")


@pytest.mark.parametrize(
    "answer",
    [
        ServerAnswer(silence=NoAnswer.UNSENT),
        ServerAnswer(503),
        ServerAnswer(429),
        ServerAnswer(200, strange=True),
    ],
)
def test_a_preview_promises_no_other_try(answer: ServerAnswer) -> None:
    words = said_once(meaning(answer, ServerStep.DRY_RUN))
    assert words.endswith("; preview it again later.")
    assert "will be tried" not in words
    assert "waits" not in words


def test_what_is_refused_is_said_alike_in_a_preview() -> None:
    found = meaning(ServerAnswer(403), ServerStep.DRY_RUN)
    assert said_once(found) == found.sentence


def test_warnings_of_the_server_are_kept() -> None:
    warned = ['299 - "quota \\"gpu\\" is above the nodes"', "unreadable"]
    found = meaning(answer_of(200, {}, warnings=warned), ServerStep.DRY_RUN)
    assert found.then is AfterAnswer.GO_ON
    assert found.detail == 'The API server warns: quota "gpu" is above the nodes; unreadable'

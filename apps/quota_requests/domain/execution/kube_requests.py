"""Requests to the API server for a target, and what its answers mean for a change."""

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct, field

from apps.quota_requests.domain.execution.patches import FIELD_MANAGER, Operation
from apps.quota_requests.domain.targets import QueueCell, QuotaKeyTarget, Target

JSON_PATCH: Final = "application/json-patch+json"
SERVER_TIMEOUT_SECONDS: Final = 10
KUEUE: Final = ("v1beta2", "v1beta1")
VOLCANO: Final = ("v1beta1",)
_RULES: Final = ("admission webhook", "ValidatingAdmissionPolicy")
"""What stands in the message where a rule of the cluster said no, of whatever status."""
_NO_DRY_RUN: Final = "does not support dry run"
"""What stands in the message of a 400 where a webhook of the cluster cannot be tried out."""
_MOST_DIGITS: Final = 9
_WARNING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_REFUSED: Final[Mapping[int, str]] = {
    400: "The API server could not read the change",
    401: "The API server does not accept the portal's credentials: those of kubernetes.writer in "
    "the catalog have to be renewed",
    403: "The portal may not do this: its service account lacks the right to patch",
    404: "The object is no longer in the cluster; the portal makes no limit by itself",
    405: "The API server does not offer this",
    406: "The API server does not offer this",
    410: "The API server no longer offers this",
    413: "The API server does not accept the change",
    415: "The API server does not accept this kind of patch",
    422: "The API server holds the new value for invalid",
}
_AGAIN: Final = "; it will be tried again."


class KubeRequest(Struct, frozen=True):
    """A request to the API server, without its address and credentials."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def object_path(target: Target, version: str = "") -> str:
    """Return where the target's object is; `version` is what discovery says is served.

    Without it the newest known one of Kueue or Volcano.
    """
    name = quote(target.name, safe="")
    if isinstance(target, QuotaKeyTarget):
        namespace = quote(target.namespace, safe="")
        return f"/api/v1/namespaces/{namespace}/resourcequotas/{name}"
    if isinstance(target, QueueCell):
        return f"/apis/kueue.x-k8s.io/{version or KUEUE[0]}/clusterqueues/{name}"
    return f"/apis/scheduling.volcano.sh/{version or VOLCANO[0]}/queues/{name}"


def read_request(target: Target, version: str = "") -> KubeRequest:
    """Return the GET of the object. Without a resourceVersion it reads what is stored, no cache."""
    return KubeRequest("GET", object_path(target, version), headers={"Accept": "application/json"})


def patch_request(
    target: Target, patch: Sequence[Operation], *, dry_run: bool, version: str = ""
) -> KubeRequest:
    """Return the PATCH. A dry run goes through admission and changes nothing.

    `timeout` is for the server: a request that it cancels cannot take effect long after the portal
    stopped listening. The client needs a longer timeout than that.
    """
    query = {
        "fieldManager": FIELD_MANAGER,
        # Without it the server drops unknown fields silently and answers 200.
        "fieldValidation": "Strict",
        "timeout": f"{SERVER_TIMEOUT_SECONDS}s",
    }
    if dry_run:
        query["dryRun"] = "All"
    return KubeRequest(
        "PATCH",
        object_path(target, version),
        query,
        {"Accept": "application/json", "Content-Type": JSON_PATCH},
        json.dumps(list(patch), separators=(",", ":")).encode(),
    )


class ServerStep(StrEnum):
    """What is asked of the server while a change is carried out."""

    READ = "read"
    DRY_RUN = "dry run"
    PATCH = "patch"
    READ_BACK = "read back"


class AfterAnswer(StrEnum):
    """What to do after an answer. READ_FIRST: the write may have happened, read before acting."""

    GO_ON = "go on"
    RETRY = "retry"
    READ_FIRST = "look first"
    FAILED = "failed"


class NoAnswer(StrEnum):
    """Why there was no answer. UNSENT: certainly nothing reached the server."""

    UNSENT = "not sent"
    LOST = "sent, no answer"


class ServerAnswer(Struct, frozen=True):
    """What the server answered, or why it did not (`silence`, then `status` is 0).

    `message`, `reason` and `caused` come from its Status object, where it sent one. `strange`: it
    said yes, but not with the object that was asked for, as the sign-in page of a proxy does.
    `warnings` are the texts of its Warning headers.
    """

    status: int = 0
    message: str = ""
    reason: str = ""
    caused: bool = False
    retry_after_seconds: float | None = None
    silence: NoAnswer | None = None
    strange: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def is_yes(self) -> bool:
        return 200 <= self.status < 300


class AnswerMeaning(Struct, frozen=True):
    """What follows from an answer; `sentence` is for the record and the page.

    `detail` are the server's own words, which may name addresses and accounts: for administrators.
    """

    then: AfterAnswer
    sentence: str
    retry_after_seconds: float | None = None
    detail: str = ""


def answer_of(
    status: int,
    body: object,
    *,
    retry_after: str | None = None,
    warnings: Sequence[str] = (),
) -> ServerAnswer:
    """Read a Status object, or whatever else came. `retry_after` is the header, in seconds.

    `warnings` are the values of Warning headers, as `299 - "text"`: only their texts are kept.
    """
    found: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    details = found.get("details")
    details = details if isinstance(details, Mapping) else {}
    said = details.get("retryAfterSeconds")
    return ServerAnswer(
        status=status,
        message=str(found.get("message") or ""),
        reason=str(found.get("reason") or ""),
        caused=bool(details.get("causes") or details.get("kind")),
        retry_after_seconds=_seconds(retry_after) or _seconds(said),
        warnings=tuple(_warning(one) for one in warnings),
    )


def _warning(header: str) -> str:
    found = _WARNING.search(header)
    return found[1].replace('\\"', '"') if found else header.strip()


def _seconds(said: object) -> float | None:
    """Return a number of seconds; None for everything else, a date too: then the portal chooses."""
    text = str(said).strip()
    whole = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return float(text) if whole and int(text) else None


def meaning(answer: ServerAnswer, step: ServerStep) -> AnswerMeaning:
    """Return what an answer to a step means.

    Only a patch can leave doubt: after a lost answer, a conflict or an error of the server it
    has to be looked at what the cluster shows. A 422 without a cause is a patch whose test
    failed: the same status as for an invalid value, told apart by the causes that only that has.
    A rule of the cluster may say no with any status of its own, that of a failed test too.
    """
    # Status 0 would fall through to the texts of real answers.
    if answer.silence is not None:
        return _unanswered(answer.silence, step)
    if answer.is_yes:
        return (
            _strange(step)
            if answer.strange
            else AnswerMeaning(AfterAnswer.GO_ON, "", detail=_warned(answer))
        )
    # The server refuses every dry run when a matching webhook declares side effects.
    if answer.status == 400 and _NO_DRY_RUN in answer.message:
        text = (
            "An admission webhook of the cluster does not support dry runs, without which the "
            "portal writes nothing: its sideEffects have to be declared, or use GitOps mode"
        )
        return _refused(text, answer)
    # Before 422 and 409: a webhook chooses its own status, so only the message tells.
    if 400 <= answer.status < 500 and any(rule in answer.message for rule in _RULES):
        return _refused("A rule of the cluster (admission) refused the new value", answer)
    if answer.status == 422 and not answer.caused:
        return AnswerMeaning(
            AfterAnswer.READ_FIRST,
            "The cluster no longer showed the reviewed value; the patch was refused whole.",
        )
    if answer.status == 409:
        return _conflict(answer)
    # Priority and fairness rejects before the request is handled: nothing was written.
    if answer.status == 429:
        text = "The API server is overloaded; the change is applied later."
        return AnswerMeaning(AfterAnswer.RETRY, text, answer.retry_after_seconds)
    if answer.status >= 500:
        return _broken(answer, step)
    return _refused(_why_refused(answer, step), answer)


def said_once(found: AnswerMeaning) -> str:
    """Return the sentence of a preview, which is not retried automatically."""
    if found.then is not AfterAnswer.RETRY:
        return found.sentence
    words = (
        found.sentence.removesuffix(_AGAIN)
        .removesuffix("; the change is applied later.")
        .rstrip(".")
    )
    return f"{words}; preview it again later."


def _why_refused(answer: ServerAnswer, step: ServerStep) -> str:
    if 300 <= answer.status < 400:
        return (
            f"What answers at the API server's address sends elsewhere ({answer.status}), where "
            "the portal does not go: kubernetes.writer in the catalog has to be mended"
        )
    if answer.status == 403 and step in (ServerStep.READ, ServerStep.READ_BACK):
        return "The portal may not do this: its service account lacks the right to get"
    # The API server sends a Status with a reason; a proxy's or an unknown kind's 404 has none.
    if answer.status == 404 and answer.reason != "NotFound":
        return (
            "What answers at the API server's address does not know of the object's kind (404): "
            "kubernetes.writer in the catalog has to be mended, or the cluster lacks it"
        )
    return _REFUSED.get(answer.status, f"The API server answered {answer.status}")


def _warned(answer: ServerAnswer) -> str:
    """Return what a server warns of while it says yes (`Warning` headers)."""
    return f"The API server warns: {'; '.join(answer.warnings)}" if answer.warnings else ""


def _strange(step: ServerStep) -> AnswerMeaning:
    what = "The API server's answer does not show the quota as it was asked for"
    if step is ServerStep.PATCH:
        return AnswerMeaning(AfterAnswer.READ_FIRST, f"{what}; the cluster is asked what it shows.")
    return AnswerMeaning(AfterAnswer.RETRY, f"{what}{_AGAIN}")


def _unanswered(silence: NoAnswer, step: ServerStep) -> AnswerMeaning:
    # A lost read or dry run changed nothing, so only a lost patch needs a look.
    if silence is NoAnswer.UNSENT or step is not ServerStep.PATCH:
        return AnswerMeaning(AfterAnswer.RETRY, f"The API server could not be reached{_AGAIN}")
    return AnswerMeaning(
        AfterAnswer.READ_FIRST,
        "The change was sent but no answer came; the cluster is asked what it shows.",
    )


def _conflict(answer: ServerAnswer) -> AnswerMeaning:
    # Two 409s: field ownership lasts, a changed resourceVersion is over at the next try.
    if answer.reason == "Conflict" and answer.caused and "conflict with" in answer.message:
        text = "Another owner of this field is in the way"
        return _refused(text, answer)
    return AnswerMeaning(
        AfterAnswer.READ_FIRST,
        "Someone changed the object at the same moment; the cluster is asked what it shows.",
    )


def _broken(answer: ServerAnswer, step: ServerStep) -> AnswerMeaning:
    if step is ServerStep.PATCH:
        text = f"The API server answered {answer.status}; the cluster is asked what it shows."
        return AnswerMeaning(
            AfterAnswer.READ_FIRST, text, answer.retry_after_seconds, answer.message
        )
    text = f"The API server answered {answer.status}{_AGAIN}"
    return AnswerMeaning(AfterAnswer.RETRY, text, answer.retry_after_seconds, answer.message)


def _refused(text: str, answer: ServerAnswer) -> AnswerMeaning:
    return AnswerMeaning(AfterAnswer.FAILED, f"{text}.", detail=answer.message)

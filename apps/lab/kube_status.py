"""Refusals of the Kubernetes API: Status objects with the texts of a real server."""

from apps.lab.answers import Answer, json_answer, text_answer


class Refused(Exception):
    """A request the API server refuses; `answer` is what it sends."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.answer = answer


def _refused(
    code: int, reason: str, message: str, *, details: object = None, token: str = ""
) -> Refused:
    status: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {"continue": token} if token else {},
        "status": "Failure",
        "message": message,
        "reason": reason,
    }
    if details is not None:
        status["details"] = details
    return Refused(json_answer({**status, "code": code}, code))


def not_found(plural: str, name: str) -> Refused:
    """Return the refusal of a name, or of a resource when there is no name."""
    if not name:
        text = "the server could not find the requested resource"
        return _refused(404, "NotFound", text, details={})
    details = {"name": name, "kind": plural}
    return _refused(404, "NotFound", f'{plural} "{name}" not found', details=details)


def missing(_: str) -> Answer:
    """Return what the server says to a path outside every group."""
    return text_answer("404 page not found\n", 404)


def invalid(message: str) -> Refused:
    return _refused(400, "BadRequest", message)


def expired(message: str, *, token: str = "") -> Refused:
    return _refused(410, "Expired", message, token=token)


def too_large(version: int, current: int) -> Refused:
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    text = f"Timeout: Too large resource version: {version}, current: {current}"
    return _refused(504, "Timeout", text, details=details)


def not_allowed() -> Answer:
    """Return the answer to anything that would write."""
    text = "the server does not allow this method on the requested resource"
    return _refused(405, "MethodNotAllowed", text, details={}).answer

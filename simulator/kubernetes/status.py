"""Refusals of the Kubernetes API: Status objects with the texts of a real server."""

from simulator.responses import Response, json_response, text_response


class ApiRefusal(Exception):
    """A request the API server refuses; `answer` is what it sends."""

    def __init__(self, answer: Response) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.answer = answer


def _refused(
    code: int, reason: str, message: str, *, details: object = None, token: str = ""
) -> ApiRefusal:
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
    return ApiRefusal(json_response({**status, "code": code}, code))


def not_found(plural: str, name: str) -> ApiRefusal:
    """Return the refusal of a name, or of a resource when there is no name."""
    if not name:
        text = "the server could not find the requested resource"
        return _refused(404, "NotFound", text, details={})
    details = {"name": name, "kind": plural}
    return _refused(404, "NotFound", f'{plural} "{name}" not found', details=details)


def missing(_: str) -> Response:
    """Return what the server says to a path outside every group."""
    return text_response("404 page not found\n", 404)


def invalid(message: str) -> ApiRefusal:
    return _refused(400, "BadRequest", message)


def forbidden(message: str, name: str, plural: str) -> ApiRefusal:
    return _refused(403, "Forbidden", message, details={"name": name, "kind": plural})


def already_exists(plural: str, name: str) -> ApiRefusal:
    text = f'{plural} "{name}" already exists'
    return _refused(409, "AlreadyExists", text, details={"name": name, "kind": plural})


def conflict(plural: str, name: str) -> ApiRefusal:
    """Return the refusal of a change of a version that is not the latest."""
    text = (
        f'Operation cannot be fulfilled on {plural} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return _refused(409, "Conflict", text, details={"name": name, "kind": plural})


def rejected() -> ApiRefusal:
    """Return what the server says when a patch does not fit, or a test in it fails."""
    text = "the server rejected our request due to an error in our request"
    return _refused(422, "Invalid", text, details={})


_CAUSES = {
    "Invalid value": "FieldValueInvalid",
    "Required value": "FieldValueRequired",
    "Forbidden": "FieldValueForbidden",
}


def unprocessable(kind: str, name: str, field: str, what: str, text: str) -> ApiRefusal:
    """Return the refusal of one field's value; `what` as `Invalid value: "-1"`."""
    message = f"{what}: {text}"
    cause = {"reason": _CAUSES[what.partition(":")[0]], "message": message, "field": field}
    details = {"name": name, "kind": kind, "causes": [cause]}
    return _refused(
        422, "Invalid", f'{kind} "{name}" is invalid: {field}: {message}', details=details
    )


def unsupported(accepted: tuple[str, ...]) -> ApiRefusal:
    text = (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(accepted)}"
    )
    return _refused(415, "UnsupportedMediaType", text)


def expired(message: str, *, token: str = "") -> ApiRefusal:
    return _refused(410, "Expired", message, token=token)


def too_large(version: int, current: int) -> ApiRefusal:
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    text = f"Timeout: Too large resource version: {version}, current: {current}"
    return _refused(504, "Timeout", text, details=details)


def not_allowed() -> Response:
    """Return the answer to what cannot be written."""
    text = "the server does not allow this method on the requested resource"
    return _refused(405, "MethodNotAllowed", text, details={}).answer

"""What an API server's refusals mean for us, in words a person can act on."""

from collections.abc import Mapping

import msgspec

from apps.clusters.adapters.kubernetes.shapes import STATUS, StatusBody
from apps.clusters.ports import SourceRejected, SourceUnavailable

_SNIPPET = 200
ANONYMOUS = "system:anonymous"
"""The user of a request without credentials, as of an empty token file."""


class ContinueExpired(Exception):
    """The server has forgotten the version that a chunked list was begun with (410)."""


def check(status: int, headers: Mapping[str, str], body: bytes, verb: str, path: str) -> None:
    """Return when `status` is 200 and the body may be JSON; raise one of the two errors else."""
    if status == 200 and not _is_page(headers, body):
        return
    if status == 200 or (status < 500 and _is_page(headers, body)):
        raise SourceRejected(
            f"{verb} {path} answered a web page (HTTP {status}), not JSON: a proxy or a sign-in "
            "page stands before the API server; check its address and the credentials"
        )
    if 300 <= status < 400:
        raise SourceRejected(
            f"{verb} {path} is redirected to {headers.get('Location', 'elsewhere')}: "
            "api_server must be the address of the API server itself"
        )
    said = checked_status(body).message or body[:_SNIPPET].decode(errors="replace").strip()
    if status == 429 or status >= 500:
        wait = headers.get("Retry-After", "")
        later = f"; it asks to wait {wait} s" if wait else ""
        unavailable = SourceUnavailable(f"{verb} {path}: HTTP {status}: {said}{later}")
        unavailable.retry_after_seconds = float(wait) if wait.isdecimal() else 0.0
        raise unavailable
    advice = _advice(status, verb, path) if ANONYMOUS not in said else _NO_CREDENTIALS
    raise SourceRejected(f"{verb} {path}: HTTP {status}: {said}. {advice}")


_NO_CREDENTIALS = (
    f"The request had no credentials ({ANONYMOUS}): the token file or the token is empty. No role "
    "has to be changed."
)


def checked_status(body: bytes) -> StatusBody:
    """Return the Status object of an error; an empty one when the body is something else."""
    try:
        return STATUS.decode(body)
    except msgspec.DecodeError:
        return StatusBody()


def _is_page(headers: Mapping[str, str], body: bytes) -> bool:
    kind = headers.get("Content-Type", "").lower()
    return "html" in kind or body[:64].lstrip().lower().startswith((b"<!doctype", b"<html"))


def _advice(status: int, verb: str, path: str) -> str:
    if status == 401:
        return "The token or certificate is not accepted (expired, or of a deleted account)."
    if status == 403:
        return f"The account lacks the verb {verb} on {_resource(path)}: add it to its ClusterRole."
    if status == 404:
        return f"This server does not know {_resource(path)}: check the address, or the API group."
    if status == 406:
        return "This server does not answer in JSON: it is no Kubernetes API server."
    return "The server does not accept this request."


def _resource(path: str) -> str:
    """Return `jobs.batch (cluster-wide)` for /apis/batch/v1/jobs, as RBAC names it."""
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" and len(parts) > 2 else ""
    rest = parts[3 if group else 2 :]
    place = "cluster-wide"
    if len(rest) >= 3 and rest[0] == "namespaces":
        place, rest = f"in namespace {rest[1]}", rest[2:]
    name = rest[0] if rest else path
    return f"{name}{'.' + group if group else ''} ({place})"

"""What must hold in the connection to a Prometheus beyond the type of each value."""

import re
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from apps.operations.domain.schema import OAuth2, Prometheus
from apps.operations.domain.source_positions import Path, Problems

SIGN_INS = (
    "bearer_token_env",
    "bearer_token_file",
    "basic_auth_env",
    "oauth2",
    "sigv4",
    "google_credentials",
)
"""The keys of which one at most can be given: each of them signs requests."""
_SECRET_NAME = re.compile(
    r"(?i)passw|secret|token|credential|authorization|cookie|assertion|signature"
    r"|(?:api|access|subscription)[-_]?key"
    r"|^(?:x-)?(?:auth|bearer|jwt|key|pwd|sig)$"
)
# What the portal itself sends, or HTTP needs: another value would break the request.
_OWN_HEADERS = {
    *("accept", "accept-encoding", "connection", "content-encoding", "content-length"),
    *("content-type", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"),
}
_OWN_PARAMETERS = {"query", "time", "start", "end", "step", "timeout", "limit", "match[]"}
_OAUTH2_PARAMETERS = {
    *("grant_type", "client_id", "client_secret", "client_assertion"),
    *("client_assertion_type", "scope"),
}
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def check_url(url: str | None, path: Path, problems: Problems) -> None:
    """Note a URL that cannot be asked; its text is not shown, it may hold a password."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        # Reading the port is what checks it: `urlsplit` itself takes any text.
        host, _ = parts.hostname, parts.port
    except ValueError:
        problems.add(path, "is not a URL: host or port cannot be read")
        return
    if "@" in parts.netloc:
        problems.add(
            path,
            "holds a user or password; secrets are never in the catalog: name the environment "
            "variable that holds them, in basic_auth_env (user:password) or bearer_token_env",
        )
    elif parts.scheme not in {"http", "https"} or not host:
        problems.add(path, "is not a URL that begins with http:// or https:// and a host")
    elif parts.query or parts.fragment:
        problems.add(path, "has a part after ? or #; only scheme, host, port and path are used")


def check_prometheus(prometheus: Prometheus, path: Path, problems: Problems) -> None:
    """Note what cannot be sent, or must not stand in a catalog."""
    check_url(prometheus.url, (*path, "url"), problems)
    first, *others = [key for key in SIGN_INS if getattr(prometheus, key)] or [""]
    for key in others:
        problems.add((*path, key), f"stands beside {first}; only one sign-in can be sent")
    _check_headers(prometheus, path, problems)
    _check_names(
        prometheus.parameters,
        (*path, "parameters"),
        problems,
        own=_OWN_PARAMETERS,
        instead="send it as a header, with its variable in headers_env",
    )
    if prometheus.oauth2 is not None:
        _check_oauth2(prometheus.oauth2, (*path, "oauth2"), problems)
    if prometheus.sigv4 is not None and any(
        name.lower().startswith("x-amz-") for name in prometheus.headers
    ):
        problems.add((*path, "headers"), "sets a header that sigv4 sets itself (X-Amz-…)")
    if prometheus.key_file is not None and prometheus.cert_file is None:
        problems.add((*path, "key_file"), "goes with cert_file, which is missing")
    if prometheus.cert_file is not None and urlsplit(prometheus.url or "").scheme == "http":
        problems.add((*path, "cert_file"), "is shown over https:// only, and the url has http://")


def _check_headers(prometheus: Prometheus, path: Path, problems: Problems) -> None:
    _check_names(
        prometheus.headers,
        (*path, "headers"),
        problems,
        own=_OWN_HEADERS,
        instead="name the environment variable that holds it, in headers_env",
    )
    given = {name.lower() for name in prometheus.headers}
    signed = next((key for key in SIGN_INS if getattr(prometheus, key)), None)
    for name in prometheus.headers_env:
        at = (*path, "headers_env", name)
        if name.lower() in _OWN_HEADERS:
            problems.add(at, "is a header that the portal sets itself")
        elif name.lower() in given:
            problems.add(at, "is in headers as well; a header has one value")
        elif name.lower() == "authorization" and signed is not None:
            problems.add(at, f"is the header that {signed} sets")


def _check_names(
    names: Iterable[str], path: Path, problems: Problems, *, own: Collection[str], instead: str
) -> None:
    """Note names that the portal sets itself, and those of secrets."""
    for name in names:
        if name.lower() in own:
            problems.add((*path, name), "is set by the portal itself")
        elif _SECRET_NAME.search(name):
            problems.add((*path, name), f"secrets are never in the catalog: {instead}")


def _check_oauth2(oauth2: OAuth2, path: Path, problems: Problems) -> None:
    check_url(oauth2.token_url, (*path, "token_url"), problems)
    url = urlsplit(oauth2.token_url or "https:")
    # What stays on this machine needs no TLS.
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        problems.add(
            (*path, "token_url"), "must begin with https://: the client's secret is sent to it"
        )
    if problems.clean((*path, "client_secret_env"), (*path, "client_assertion_file")) and (
        (oauth2.client_secret_env is None) == (oauth2.client_assertion_file is None)
    ):
        problems.add(path, "needs exactly one of client_secret_env and client_assertion_file")
    _check_names(
        oauth2.parameters,
        (*path, "parameters"),
        problems,
        own=_OAUTH2_PARAMETERS,
        instead="only client_secret_env and client_assertion_file are sent",
    )

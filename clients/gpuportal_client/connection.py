"""The HTTP API of one portal: rows of its lists, and a sentence for whatever goes wrong."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests
from requests.auth import AuthBase

TIMEOUT_SECONDS = 60.0
MAX_PAGE = 500
_SERVER_ERROR = 500
_DEEPEST = 40
"""Members within members; below it, writing an answer would end at Python's own limit."""

Row = dict[str, Any]
Params = Mapping[str, str | int | tuple[str, ...] | None]


class PortalError(Exception):
    """Something went wrong; the text says what, and what to do about it."""


@dataclass(frozen=True, slots=True)
class _TokenHeader(AuthBase):
    """The token of a request.

    A header set by hand would not do: where `.netrc` names the host, requests replaces it by the
    password that is kept there.
    """

    token: str

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Token {self.token}"
        return request


@dataclass(frozen=True, slots=True)
class Portal:
    """A portal by its address (`https://portal.example`), asked with a token."""

    url: str
    token: str

    def rows(self, path: str, params: Params, *, limit: int | None = None) -> list[Row]:
        """Return the rows of a list, up to `limit`. Raises PortalError."""
        found: list[Row] = []
        for page in self._pages(path, params, limit=limit):
            found.extend(page)
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found

    def _pages(self, path: str, params: Params, *, limit: int | None) -> Iterator[list[Row]]:
        size = MAX_PAGE if limit is None else min(limit, MAX_PAGE)
        query: list[tuple[str, str]] = [*_pairs(params), ("page_size", str(size))]
        while True:
            answer = self.get(path, query)
            rows = answer.get("results")
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise PortalError(f"{self.url}/api/v1/{path} is no list of gpuportal: check --url.")
            yield rows
            if not answer.get("next"):
                return
            before, query = query, _query_of(answer["next"])
            if query in ([], before):
                raise PortalError(
                    f"{self.url}/api/v1/{path} names no next page that a gpuportal would: check "
                    "--url."
                )

    def get(self, path: str, query: list[tuple[str, str]] | None = None) -> Row:
        """Return the object at `/api/v1/path`. Raises PortalError."""
        return self._ask("GET", f"/api/v1/{path}", query=query or [])

    def post(self, path: str, body: Row) -> Row:
        """Send `body` as JSON and return the answer. Raises PortalError."""
        return self._ask("POST", f"/api/v1/{path}", body=body)

    def schema(self) -> Row:
        """Return the OpenAPI document that the portal serves. Raises PortalError."""
        return self._ask("GET", "/api/schema/", query=[("format", "json")])

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Row | None = None,
    ) -> Row:
        try:
            response = requests.request(
                method,
                f"{self.url}{path}",
                params=query,
                json=body,
                headers={"Accept": "application/json"},
                auth=_TokenHeader(self.token),
                timeout=TIMEOUT_SECONDS,
                allow_redirects=False,
            )
        except requests.exceptions.SSLError as error:
            raise PortalError(self._insecure(error)) from error
        except requests.Timeout as error:
            raise PortalError(
                f"{self.url} does not answer within {TIMEOUT_SECONDS:.0f} s. Try again, or ask for "
                "a shorter window."
            ) from error
        except (requests.RequestException, UnicodeError) as error:
            raise PortalError(
                f"{self.url} cannot be reached: check --url, your network and your VPN. "
                f"({_cause(error)})"
            ) from error
        except OSError as error:
            # requests itself reads this file, and raises nothing of its own where it is not there.
            raise PortalError(f"REQUESTS_CA_BUNDLE names no file to read. ({error})") from error
        return self._answer(response, path)

    def _insecure(self, error: requests.exceptions.SSLError) -> str:
        cause = _cause(error)
        if "CERTIFICATE_VERIFY_FAILED" not in str(error):
            return (
                f"{self.url} does not speak TLS as this client does: check whether its address "
                f"begins with http:// and its port. ({cause})"
            )
        return (
            f"The certificate of {self.url} is not accepted. Set REQUESTS_CA_BUNDLE to the "
            f"file of your certificate authority. ({cause})"
        )

    def _answer(self, response: requests.Response, path: str) -> Row:
        if response.is_redirect:
            raise PortalError(
                f"{self.url} redirects to {response.headers['Location']}: give that address as "
                "--url. The token is not sent there."
            )
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            answer = None
        if _is_deeper(answer, _DEEPEST):
            answer = None
        if not isinstance(answer, dict) and response.status_code >= _SERVER_ERROR:
            raise PortalError(
                f"{self.url}{path} answers {response.status_code}: the portal, or a proxy before "
                "it, is in trouble. Try again, then tell its administrator."
            )
        if not isinstance(answer, dict):
            raise PortalError(
                f"{self.url}{path} answers {response.status_code} with something else than JSON: "
                "it is no gpuportal, or a proxy before it refuses."
            )
        if response.ok:
            return answer
        raise PortalError(self._refusal(response, answer, path))

    def _refusal(self, response: requests.Response, problem: Row, path: str) -> str:
        detail = _details(problem)
        status = response.status_code
        if status == requests.codes.unauthorized:
            # A token that was revoked or has expired is told by the portal how to be replaced: once
            # is enough, and the command of this client has the address with it.
            detail = detail.partition(" Make another")[0]
            return (
                f"{self.url} does not accept the token: {detail} Make one at {self.url}/tokens/, "
                f"then: gpuportal login {self.url}"
            )
        if status == requests.codes.not_found and "lists the endpoints" in detail:
            return (
                f"{self.url} does not know {path}: the name is wrong, or the portal is older than "
                "this client."
            )
        if status in {requests.codes.too_many_requests, requests.codes.service_unavailable}:
            seconds = response.headers.get("Retry-After")
            return f"{detail} Try again in {seconds} s." if seconds else detail
        if "is not a parameter here" in detail:
            return f"{detail} ({self.url} may be older than this client.)"
        return detail


def _pairs(params: Params) -> list[tuple[str, str]]:
    """Return the parameters that have a value; a list is one value with commas."""
    pairs = []
    for name, value in params.items():
        text = ",".join(value) if isinstance(value, tuple) else value
        if text is not None and text != "":
            pairs.append((name, str(text)))
    return pairs


def _query_of(address: Any) -> list[tuple[str, str]]:
    """Return the parameters of the address of a page; none where it is no address.

    Only its query: behind a proxy the host in it may be one that this machine cannot reach, and
    the token goes to no other host.
    """
    try:
        return parse_qsl(urlsplit(address).query) if isinstance(address, str) else []
    except ValueError:
        return []


def _is_deeper(value: Any, most: int) -> bool:
    """Return whether lists and objects lie within each other more than `most` times."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def _details(problem: Row) -> str:
    """Return what a problem document says; a foreign document's text where it is none."""
    detail = problem.get("detail") or problem.get("title") or problem
    return str(detail)


def _cause(error: BaseException) -> str:
    """Return the innermost reason of a failed request, which the outer ones wrap in noise."""
    reason: Any = error
    while True:
        inner = getattr(reason, "reason", None) or next(
            (a for a in getattr(reason, "args", ()) if isinstance(a, BaseException)), None
        )
        if not isinstance(inner, BaseException):
            return str(inner or reason).rpartition(": ")[2] or type(reason).__name__
        reason = inner

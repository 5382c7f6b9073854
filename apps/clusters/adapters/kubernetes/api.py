"""A Kubernetes API server behind the port `ClusterSource`.

The official client gives the connection and its credentials; bodies are decoded here, because
its model classes take many times longer than the JSON itself.
"""

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import urllib3
from kubernetes.client import ApiClient, ApiException
from kubernetes.config.config_exception import ConfigException

from apps.clusters.adapters.kubernetes.clients import CERTIFICATE_FAULTS, Clients, credentials
from apps.clusters.adapters.kubernetes.shapes import LINE, STATUS, Decoders, ListPage, StatusBody
from apps.clusters.domain.credentials import Credential
from apps.clusters.ports import (
    Listing,
    ObjectChange,
    SourceHealth,
    SourceRejected,
    SourceUnavailable,
    WatchExpired,
)
from gpuportal.garbage import gc_paused
from gpuportal.telemetry.metrics import SourceRequest, source_request

_SNIPPET = 200
ANONYMOUS = "system:anonymous"
"""The user of a request without credentials, as of an empty token file."""
_NO_CREDENTIALS = (
    f"The request had no credentials ({ANONYMOUS}): the token file or the token is empty. No role "
    "has to be changed."
)
CHUNK = 500
_RESTARTS = 3
_READ_BYTES = 1 << 16
_REVIEWS_VERSION = "authorization.k8s.io/v1"
_REVIEWED = msgspec.json.Decoder(dict[str, Any])


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
    rejected = SourceRejected(f"{verb} {path}: HTTP {status}: {said}. {advice}")
    rejected.credentials = status == 401
    raise rejected


def checked_status(body: bytes) -> StatusBody:
    """Return the Status object of an error; an empty one when the body is something else."""
    try:
        return STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
    path = path.partition("?")[0]
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" and len(parts) > 2 else ""
    rest = parts[3 if group else 2 :]
    place = "cluster-wide"
    if len(rest) >= 3 and rest[0] == "namespaces":
        place, rest = f"in namespace {rest[1]}", rest[2:]
    name = rest[0] if rest else path
    return f"{name}{'.' + group if group else ''} ({place})"


@functools.cache
def _decoders(plural: str, annotated: bool) -> Decoders:  # noqa: FBT001 - of a cache
    return Decoders(plural, annotated=annotated)


class KubernetesApi:
    """One API server; may be used by several threads at once.

    `watch_seconds` is how long a watch is asked to last; a stream that is silent for
    `silence_seconds` longer is taken for broken (a server sends bookmarks every minute).
    `annotated`: pods are shown with all of their annotations.
    """

    def __init__(
        self,
        clients: Clients,
        *,
        chunk: int = CHUNK,
        timeout_seconds: float = 60.0,
        watch_seconds: int = 60,
        silence_seconds: float = 30.0,
        annotated: bool = False,
    ) -> None:
        self._clients = clients
        self._annotated = annotated
        self._chunk = chunk
        self._timeout = (10.0, timeout_seconds)
        self._watch_seconds = watch_seconds
        self._watch_timeout = (10.0, watch_seconds + silence_seconds)
        self._server = str(clients.current().configuration.host)
        self._streams: set[urllib3.BaseHTTPResponse] = set()
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, annotated: bool = False) -> "KubernetesApi":
        """Return the API server of a catalog entry; raises SourceRejected when that is unusable."""
        return cls(Clients(config), annotated=annotated)

    # ------------------------------------------------------------ the port

    @gc_paused()
    def list(self, path: str) -> Listing:
        """Return all objects of a collection, read in chunks, as of one version.

        When the server forgets that version in the middle the list starts again; if that keeps
        happening, the rest is read with the token the server offers. The objects then are of
        several versions, and the watch starts from the first one, so that nothing is missed.
        """
        for _ in range(_RESTARTS):
            try:
                return self._list(path, inconsistent=False)
            except ContinueExpired:
                continue
        return self._list(path, inconsistent=True)

    def version(self, path: str) -> str:
        """Return the present version of a collection, by a list of one object."""
        status, body, headers = self._read(path, {"limit": "1"})
        check(status, headers, body, "list", path)
        page: ListPage[Any] = _decode(self._decoders(path).page, body, path)
        return str((page.metadata or {}).get("resourceVersion", ""))

    def watch(self, path: str, *, resource_version: str) -> Iterator[ObjectChange]:
        """Yield changes after that version until the server ends the stream in order."""
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._watch_seconds),
            "resourceVersion": resource_version,
        }
        decoder = self._decoders(path).item
        with self._request(path, query, timeout=self._watch_timeout) as response:
            # In the answer itself, before any line; in the stream it comes as a line (`_change`).
            if response.status == 410:
                raise WatchExpired(f"{path}: the server has forgotten version {resource_version}")
            if response.status != 200:
                check(response.status, response.headers, response.data, "watch", path)
            for line in self._parts(response, path):
                yield _change(line, decoder, path)

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return one object; None when there is none (404)."""
        status, body, headers = self._read(path, {})
        if status == 404:
            return None
        check(status, headers, body, "get", path)
        item: Mapping[str, Any] = _decode(self._decoders(path.rpartition("/")[0]).item, body, path)
        return item

    def health(self) -> SourceHealth:
        """Return the server's version."""
        version = self.get("/version") or {}
        return SourceHealth(str(version.get("gitVersion", "")))

    def may(
        self, verb: str, group: str, resource: str, namespace: str = "", name: str = ""
    ) -> bool:
        """Say whether the account may do `verb` on a resource, without a namespace in all of them.

        Asked by a SelfSubjectAccessReview, which every account may create and changes nothing.
        """
        wanted = {"verb": verb, "group": group, "resource": resource}
        wanted |= {"namespace": namespace, "name": name} if namespace else {}
        review = {
            "apiVersion": _REVIEWS_VERSION,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }
        path = f"/apis/{_REVIEWS_VERSION}/selfsubjectaccessreviews"
        with self._request(path, {}, timeout=self._timeout, body=review) as response:
            status, answer, headers = response.status, response.data, response.headers
        # A review is created, which is 201; 200 would be something else.
        if status != 201:
            check(status, headers, answer, "create", path)
        found: Mapping[str, Any] = _decode(_REVIEWED, answer, path)
        return bool((found.get("status") or {}).get("allowed"))

    def credentials(self) -> Sequence[Credential]:
        """Return what the account signs in with, as far as its end can be read."""
        return credentials(self._clients.current(), self._clients.entry)

    def close(self) -> None:
        """End every open watch, from any thread; their readers see SourceUnavailable."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        for response in streams:
            _shut(response)
        self._clients.clear()

    def _decoders(self, path: str) -> Decoders:
        return _decoders(_plural(path), self._annotated)

    # ------------------------------------------------------------ lists

    def _list(self, path: str, *, inconsistent: bool) -> Listing:
        items: list[Mapping[str, Any]] = []
        version = token = ""
        while True:
            page, token = self._page(path, token, inconsistent=inconsistent)
            items.extend(page.items or ())
            # That of the first page: a watch from a later one could miss changes in between.
            version = version or (page.metadata or {}).get("resourceVersion", "")
            if not token:
                return Listing(
                    items=_unique(items) if inconsistent else items, resource_version=version
                )

    def _page(self, path: str, token: str, *, inconsistent: bool) -> tuple[ListPage[Any], str]:
        """Return one chunk and the token of the next; after a 410, one more try if allowed."""
        status, body, headers = self._read(path, self._chunk_query(token))
        # Servers keep the version of a chunked list for some minutes only.
        if status == 410 and token:
            offered = checked_status(body).token
            if not inconsistent or not offered:
                raise ContinueExpired(path)
            status, body, headers = self._read(path, self._chunk_query(offered))
        check(status, headers, body, "list", path)
        page: ListPage[Any] = _decode(self._decoders(path).page, body, path)
        if not page.kind.endswith("List"):
            raise SourceRejected(
                f"GET {path} answered {page.kind or 'no kind'}, not a Kubernetes list: "
                "is api_server the address of an API server?"
            )
        return page, (page.metadata or {}).get("continue") or ""

    def _chunk_query(self, token: str) -> dict[str, str]:
        query = {"limit": str(self._chunk)}
        return query | {"continue": token} if token else query

    # ------------------------------------------------------------ requests

    def _read(self, path: str, query: Mapping[str, str]) -> tuple[int, bytes, Mapping[str, str]]:
        with (
            source_request("kubernetes", self._server) as measured,
            self._request(path, query, timeout=self._timeout) as response,
        ):
            measured.received(len(response.data))
            return response.status, response.data, response.headers

    @contextmanager
    def _request(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        timeout: tuple[float, float],
        body: Mapping[str, Any] | None = None,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Open a GET, or a POST of `body`; whatever breaks meanwhile is SourceUnavailable."""
        response: urllib3.BaseHTTPResponse | None = None
        try:
            client = self._clients.current()
            response = self._sent(client, path, query, timeout, body)
            # A token that was replaced meanwhile; nothing was done yet, so it may be asked again.
            if response.status == 401 and self._clients.renewed(client):
                self._finish(response)
                response = self._sent(self._clients.current(), path, query, timeout, body)
            self._open(response)
            yield response
        except urllib3.exceptions.MaxRetryError as error:
            raise SourceUnavailable(_broken(path, error.reason or error)) from error
        except urllib3.exceptions.HTTPError as error:
            raise SourceUnavailable(_broken(path, error)) from error
        except (OSError, ConfigException) as error:
            raise SourceUnavailable(_broken(path, error)) from error
        except ApiException as error:
            raise _insecure(path, str(error.reason)) from error
        finally:
            if response is not None:
                self._finish(response)

    def _sent(
        self,
        client: ApiClient,
        path: str,
        query: Mapping[str, str],
        timeout: tuple[float, float],
        body: Mapping[str, Any] | None,
    ) -> urllib3.BaseHTTPResponse:
        """Return the answer's head; its body is still to be read."""
        # A collection may be narrowed to one object, as `?fieldSelector=metadata.name=NAME`.
        path, _, narrowed = path.partition("?")
        method, url, headers, sent, _ = client.param_serialize(
            "GET" if body is None else "POST",
            path,
            query_params=[*parse_qsl(narrowed), *query.items()],
            header_params={
                "Accept": "application/json",
                "Content-Type": "application/json",
                "User-Agent": "gpuportal",
            },
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = client.call_api(method, url, headers, body=sent, _request_timeout=timeout)
        response: urllib3.BaseHTTPResponse = answer.response
        return response

    def _open(self, response: urllib3.BaseHTTPResponse) -> None:
        with self._lock:
            self._streams.add(response)
            closed = self._closed
        if closed:
            raise SourceUnavailable("this connection was closed")

    def _finish(self, response: urllib3.BaseHTTPResponse) -> None:
        """Give the connection back when it was read to its end, else drop it."""
        with self._lock:
            self._streams.discard(response)
        if not response.closed:
            response.close()
        response.release_conn()

    def _parts(self, response: urllib3.BaseHTTPResponse, path: str) -> Iterator[bytes]:
        """Yield the lines of a stream as they come; a half line at its end means it was cut."""
        rest = b""
        received = SourceRequest("kubernetes", self._server).received
        while True:
            # Only what has arrived, without blocking for more.
            part = response.read1(_READ_BYTES)
            if not part:
                break
            received(len(part))
            *lines, rest = (rest + part).split(b"\n")
            yield from (line for line in lines if line.strip())
        if rest.strip():
            raise SourceUnavailable(f"the watch of {path} was cut in the middle of a line")
        if self._closed:
            raise SourceUnavailable("this connection was closed")


def _plural(path: str) -> str:
    return path.partition("?")[0].rpartition("/")[2]


def _change(line: bytes, decoder: msgspec.json.Decoder[Any], path: str) -> ObjectChange:
    event = _decode(LINE, line, path)
    if event.type == "ERROR":
        status = _decode(STATUS, event.object, path)
        if status.code == 410:
            raise WatchExpired(f"{path}: {status.message}")
        unavailable = SourceUnavailable(f"the watch of {path} ended with: {status.message}")
        unavailable.retry_after_seconds = status.retry_after_seconds
        raise unavailable
    return ObjectChange(type=event.type, object=_decode(decoder, event.object, path))


def _decode(decoder: msgspec.json.Decoder[Any], body: bytes | msgspec.Raw, path: str) -> Any:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise SourceRejected(f"GET {path} is not what Kubernetes answers: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceUnavailable(f"GET {path} answered a body cut short: {error}") from error
    except RecursionError as error:
        raise SourceRejected(f"GET {path} is nested deeper than any object is") from error


def _unique(items: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Drop what an inconsistent list shows twice; the later copy is the newer one."""
    return list({(i.get("metadata") or {}).get("uid", n): i for n, i in enumerate(items)}.values())


def _broken(path: str, error: object) -> str:
    return f"the Kubernetes API did not answer GET {path}: {type(error).__name__}: {error}"


def _insecure(path: str, reason: str) -> SourceUnavailable | SourceRejected:
    """Return what the client raises as ApiException of status 0: whatever is wrong with TLS."""
    text = f"GET {path}: no secure connection to the Kubernetes API: {' '.join(reason.split())}"
    if not any(mark in reason for mark in CERTIFICATE_FAULTS):
        return SourceUnavailable(text)
    rejected = SourceRejected(
        f"{text}. Check the certificate authority, and that the client certificate fits its key"
    )
    # Files of certificates are replaced one after the other.
    rejected.credentials = True
    return rejected


def _shut(response: urllib3.BaseHTTPResponse) -> None:
    """Wake up the thread that reads this response."""
    # Neither an ended nor an already broken stream needs it.
    with suppress(OSError, RuntimeError, ValueError):
        response.shutdown()

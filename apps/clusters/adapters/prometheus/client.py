"""Sending queries to one Prometheus: a capped number at a time, repeated where that can help."""

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import requests
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util import make_headers
from urllib3.util.retry import Retry

from apps.clusters.adapters.certificates import of_certificate
from apps.clusters.adapters.prometheus.http_api import (
    END_MARGIN_SECONDS,
    PrometheusConfig,
    decode_error,
    without_secrets,
)
from apps.clusters.adapters.prometheus.sign_in import Header, Secret, sign_in_of
from apps.clusters.domain.credentials import Credential, of_token
from apps.clusters.domain.window import SLOT_SECONDS
from apps.clusters.ports import SourceRejected, SourceUnavailable
from gpuportal.telemetry.metrics import source_request

ATTEMPTS = 4
CONNECT_TIMEOUT_SECONDS = 10.0
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
# What urllib3 can read: gzip, and zstd where its package is installed.
_ENCODINGS = make_headers(accept_encoding=True)["accept-encoding"]
_MOST_SAID = 500
_REPEATED = {408, 425, 429, 500, 502, 503, 504}

_gates: dict[tuple[str, int], threading.BoundedSemaphore] = {}
_gates_lock = threading.Lock()


def _gate(url: str, in_flight: int) -> threading.BoundedSemaphore:
    """Return the one semaphore that all connections of this process to a server share."""
    with _gates_lock:
        return _gates.setdefault((url, in_flight), threading.BoundedSemaphore(in_flight))


class Request(NamedTuple):
    """One call of the API; `form` is sent as a body, so that no query is too long for a URL."""

    path: str
    form: Mapping[str, str]


def instant_request(query: str, at: float) -> Request:
    """Return the call that evaluates `query` at `at`, Unix seconds to the millisecond."""
    return Request("/api/v1/query", {"query": query, "time": f"{at:.3f}"})


def slots_request(query: str, first: int, last: int) -> Request:
    """Return the call that evaluates `query` once for each slot from `first` to `last`."""
    return Request(
        "/api/v1/query_range",
        {
            "query": query,
            "start": f"{slot_end(first):.3f}",
            "end": f"{slot_end(last):.3f}",
            "step": str(SLOT_SECONDS),
        },
    )


def slot_end(slot: int) -> float:
    """Return the time at which a query sees exactly the samples of `slot`."""
    return slot + SLOT_SECONDS - END_MARGIN_SECONDS


class _Repeatable(Exception):
    """A failure that may pass by itself; `wait_seconds` is what the server asked for, if so."""

    def __init__(self, text: str, wait_seconds: float | None = None) -> None:
        super().__init__(text)
        self.wait_seconds = wait_seconds


class _Connection(PrometheusConnect):  # type: ignore[misc]
    """prometheus-api-client's connection, with a pooled session and form bodies.

    Its own query methods put POST queries into the URL, round range queries to whole seconds
    and decode into dictionaries, so only its connection is used.
    """

    def __init__(self, config: PrometheusConfig, in_flight: int) -> None:
        session = requests.Session()
        # Proxies of the environment are for other hosts than this one.
        session.trust_env = not config.loopback
        no_retry = Retry(0, redirect=False)
        super().__init__(
            url=config.url,
            session=session,
            retry=no_retry,
            # Compressing costs more than it saves where no network lies between.
            headers={
                "Accept-Encoding": "identity" if config.loopback else _ENCODINGS,
                "Accept": "application/json",
            },
            method="POST",
        )
        session.params = dict(config.parameters)
        self._adapter = HTTPAdapter(
            max_retries=no_retry, pool_connections=1, pool_maxsize=in_flight, pool_block=False
        )
        session.mount(config.url, self._adapter)
        self._config = config
        self._files_lock = threading.Lock()
        self._files = _file_states(config)

    def send(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | None,
        *,
        headers: Mapping[str, str],
        auth: requests.auth.AuthBase,
        timeout: tuple[float, float],
    ) -> "_HttpAnswer":
        """Return the whole answer; raises what requests raises."""
        self._renew_tls()
        with self._session.request(
            method,
            f"{self.url}{path}",
            data=form,
            headers={**self.headers, **headers},
            auth=auth,
            verify=self._config.ca_file or True,
            cert=self._config.certificate,
            timeout=timeout,
            # A redirect is mostly a login page; followed, it would turn the query into a GET.
            allow_redirects=False,
            stream=True,
        ) as response:
            return _HttpAnswer(response.status_code, response.headers, _whole(response))

    def _renew_tls(self) -> None:
        """Let go of connections that were opened with other certificates than those of now."""
        if not self._files:
            return
        files = _file_states(self._config)
        with self._files_lock:
            changed, self._files = files != self._files, files
        if changed:
            self._adapter.poolmanager.clear()


def _file_states(config: PrometheusConfig) -> dict[str, tuple[int, int, int] | None]:
    """Return what tells that a file of TLS was replaced; None for one that cannot be read."""
    found: dict[str, tuple[int, int, int] | None] = {}
    for path in config.tls_files.values():
        try:
            state = Path(path).stat()
        except OSError:
            found[path] = None
        else:
            found[path] = (state.st_mtime_ns, state.st_ino, state.st_size)
    return found


class _HttpAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def _whole(response: requests.Response) -> bytes:
    """Return the body in one read; requests itself reads in pieces of 10 kB, at thrice the cost.

    Raises what requests raises where a body breaks off.
    """
    try:
        body: bytes = response.raw.read(decode_content=True)
    except ReadTimeoutError as error:
        raise requests.exceptions.ReadTimeout(error) from error
    except HTTPError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error
    return body


class PrometheusApi:
    """One server; safe to use from several threads.

    `secret` gives the value of an environment variable that the catalog names. `wait` is called
    with the seconds to pause before a request is repeated; `jitter` gives a fraction 0..1 that
    spreads these pauses.
    """

    def __init__(
        self,
        config: PrometheusConfig,
        *,
        timeout_seconds: float = 120.0,
        in_flight: int = 2,
        secret: Secret = lambda _name: "",
        wait: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self.in_flight = in_flight
        self._timeout = timeout_seconds
        self._secret = secret
        self._sign_in = sign_in_of(config.sign_in, secret)
        self._wait = wait
        self._jitter = jitter
        self._connection = _Connection(config, in_flight)
        self._gate = _gate(config.url, in_flight)
        self._pool: ThreadPoolExecutor | None = None
        self._pool_lock = threading.Lock()
        self._pool_process = 0

    def close(self) -> None:
        """End the threads and close the pooled connections."""
        with self._pool_lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._pool_process == os.getpid():
            pool.shutdown(wait=True, cancel_futures=True)
        self._connection.close()

    def credentials(self) -> list[Credential]:
        """Return what requests are signed with, where its end can be read.

        Raises as `post`, where a token cannot be had.
        """
        found = []
        signed = self._sign_in.auth()
        if isinstance(signed, Header) and signed.value:
            token = signed.value.rpartition(" ")[2]
            found.append(of_token(token, "the token for Prometheus"))
        if self.config.cert_file:
            what = f"the client certificate {self.config.cert_file}"
            found.append(of_certificate(self.config.cert_file, what))
        return [one for one in found if one is not None]

    def post(self, request: Request) -> bytes:
        """Send one query and return the body of its answer.

        Raises SourceUnavailable after some attempts, SourceRejected at once.
        """
        form = {**request.form, "timeout": f"{self._timeout:g}s"}
        return self._repeat("POST", request.path, form)

    def get(self, path: str) -> bytes:
        """Read an endpoint that takes no query; raises as `post`."""
        return self._repeat("GET", path, None)

    def many(self, wanted: Iterable[Request]) -> Iterator[bytes]:
        """Yield the bodies of the answers in the order of the requests.

        At most the allowed number of requests is in flight. One more may be done and kept until a
        slow one before it is done, so that the server always has work. No more bodies than that are
        in memory, however many requests there are.
        """
        queue = iter(wanted)
        pool = self._workers()
        pending: deque[Future[bytes]] = deque(
            pool.submit(self.post, request) for request in islice(queue, self.in_flight + 1)
        )
        try:
            while pending:
                body = pending.popleft().result()
                pending.extend(pool.submit(self.post, request) for request in islice(queue, 1))
                yield body
        finally:
            # Nothing blocks here: a generator that is given up ends wherever the garbage collector
            # runs, which may be one of the workers.
            for future in pending:
                future.cancel()

    def _workers(self) -> ThreadPoolExecutor:
        """Return the threads that send queries; made on first use, and anew after a fork."""
        with self._pool_lock:
            # Threads do not survive a fork, and Celery forks its workers.
            if self._pool is None or self._pool_process != os.getpid():
                self._pool = ThreadPoolExecutor(self.in_flight, thread_name_prefix="prometheus")
                self._pool_process = os.getpid()
            return self._pool

    def _repeat(self, method: str, path: str, form: Mapping[str, str] | None) -> bytes:
        for attempt in range(ATTEMPTS):
            try:
                with self._gate, source_request("prometheus", self.config.url) as measured:
                    body = self._once(method, path, form)
                    measured.received(len(body))
                    return body
            except _Repeatable as failure:
                last = attempt == ATTEMPTS - 1
                seconds = self._seconds(attempt, failure.wait_seconds)
                # A server that requests more time gets it: the task is tried again later.
                if last or seconds > LONGEST_WAIT_SECONDS:
                    raise SourceUnavailable(self._say(str(failure))) from failure.__cause__
                self._wait(seconds)
        raise AssertionError("unreachable")

    def _seconds(self, attempt: int, asked: float | None) -> float:
        if asked is not None:
            return asked
        # Spread, so that workers that failed together do not come back together.
        return FIRST_WAIT_SECONDS * 2.0**attempt * (0.5 + 0.5 * self._jitter())

    def _once(self, method: str, path: str, form: Mapping[str, str] | None) -> bytes:
        auth = self._sign_in.auth()
        answer = self._answered(method, path, form, auth)
        # A token that was rotated or withdrawn; a second refusal is a person's matter.
        if answer.status == requests.codes.unauthorized and self._sign_in.renewed(auth):
            answer = self._answered(method, path, form, self._sign_in.auth())
        return self._body(answer)

    def _answered(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | None,
        auth: requests.auth.AuthBase,
    ) -> _HttpAnswer:
        headers = self.config.sent_headers(self._secret)
        try:
            return self._connection.send(
                method,
                path,
                form,
                headers=headers,
                auth=auth,
                timeout=(min(CONNECT_TIMEOUT_SECONDS, self._timeout), self._timeout),
            )
        except requests.exceptions.SSLError as error:
            raise self._rejected(
                f"cannot be spoken to securely ({_short(error)}); "
                "check ca_file and cert_file in the catalog, and whether it is https:// at all"
            ) from error
        except requests.exceptions.Timeout as error:
            raise _Repeatable(f"did not answer within {self._timeout:g} s") from error
        except requests.exceptions.InvalidURL as error:
            raise self._rejected("the URL cannot be used; correct it in the catalog") from error
        except requests.exceptions.RequestException as error:
            raise _Repeatable(f"cannot be reached ({_short(error)})") from error
        except ValueError as error:
            # requests reads where an answer leads to, although the redirect is not followed.
            raise self._rejected(f"answers with a redirect to no address ({error})") from error
        except OSError as error:
            lost = [
                f"{key} {path!r}"
                for key, path in self.config.tls_files.items()
                if not os.access(path, os.R_OK)
            ]
            named = " and ".join(lost) or "a file of TLS"
            raise self._rejected(f"needs {named}, which cannot be read") from error

    def _body(self, answer: _HttpAnswer) -> bytes:
        status, headers, body = answer
        if status == requests.codes.ok:
            # A body shorter than announced was noticed already; one that was cut before it was
            # counted (by a proxy that buffers) shows only here.
            if not body or (body[:1] == b"{" and not body[-16:].rstrip().endswith(b"}")):
                raise _Repeatable(f"sent an answer that was cut off after {len(body)} bytes")
            return body
        said = decode_error(body)
        # Of a long one the beginning: it is kept, shown and mailed.
        text = f": {said[1][:_MOST_SAID]}" if said and said[1] else ""
        if status in _REPEATED:
            message = f"answers with HTTP {status}{text}"
            # The same query would take as long again.
            if said and said[0] == "timeout":
                raise SourceUnavailable(
                    self._say(f"{message}; the query took longer than the server allows")
                )
            raise _Repeatable(message, _retry_after(headers))
        raise self._rejected(f"answers with HTTP {status}{text}{self._advice(answer)}")

    def _advice(self, answer: _HttpAnswer) -> str:
        status = answer.status
        if 300 <= status < 400:
            where = without_secrets(answer.headers.get("Location", ""))
            return (
                f", a redirect to {where or 'nowhere'}, not followed: it is mostly a login "
                f"page; {self._sign_in.hint}, or put the final URL into the catalog"
            )
        return {
            401: f"; {self._sign_in.hint}",
            403: f"; the sign-in is known but may not read; {self._sign_in.hint}",
            404: "; there is no Prometheus API at this URL: give the part before /api/v1",
            405: "; the API must allow POST queries",
            413: "; a proxy on the way limits the size of requests",
        }.get(status, "")

    def _rejected(self, text: str) -> SourceRejected:
        return SourceRejected(self._say(text))

    def _say(self, text: str) -> str:
        return f"Prometheus at {self.config.shown_url} {text}"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a Retry-After header demands; None without a usable one.

    A time in the past is none: a server that is down would be asked again at once.
    """
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        return _usable(float(value))
    except ValueError:
        pass
    try:
        asked = parsedate_to_datetime(value).timestamp()
        # Held against the server's own clock, which need not agree with ours.
        now = parsedate_to_datetime(headers.get("Date", "")).timestamp()
    except (ValueError, TypeError):
        return None
    return _usable(asked - now)


def _usable(seconds: float) -> float | None:
    return seconds if seconds >= 0 else None


def _short(error: BaseException) -> str:
    """Return the innermost reason of a nested network error, without addresses in memory."""
    inner: BaseException = error
    while isinstance(reason := getattr(inner, "reason", None), BaseException):
        inner = reason
    arguments = [a for a in inner.args if isinstance(a, BaseException)]
    if arguments:
        return _short(arguments[0])
    text = str(inner)
    return text.rpartition("object at ")[2].partition(": ")[2] or text

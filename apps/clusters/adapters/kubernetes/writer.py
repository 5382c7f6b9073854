"""The clients through which quotas are changed: single requests whose fate is told exactly."""

from collections.abc import Mapping
from typing import Any

import msgspec
import urllib3
from kubernetes.client import ApiClient
from kubernetes.config.config_exception import ConfigException

from apps.clusters.adapters.kubernetes.clients import CERTIFICATE_FAULTS, Clients
from apps.clusters.ports import Reply, SourceRejected, Unanswered

CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0
"""Longer than the server may take for a request, by the `timeout` that it is sent with."""
_NEVER_SENT = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)


class KubernetesWriter:
    """An API server under the account that may change quotas; no request is ever repeated.

    A request that broke counts as lost unless it certainly never left: whether a server that
    went silent has acted is for the caller to find out.
    """

    def __init__(
        self,
        clients: Clients,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._clients = clients
        self._timeout = urllib3.Timeout(connect=connect_seconds, read=read_seconds)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "KubernetesWriter":
        """Return the writer of a catalog entry; raises SourceRejected when that is unusable."""
        return cls(Clients(config))

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> Reply:
        """Send a request once and return the answer of whatever status, or why there is none."""
        try:
            client = self._clients.current()
            _, url, all_headers, _, _ = client.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params={**headers, "User-Agent": "gpuportal"},
                auth_settings=["BearerToken"],
            )
        except (OSError, ConfigException, ValueError, SourceRejected):
            # A token file or a credential program that failed or gave rubbish: nothing was sent.
            return Reply(unanswered=Unanswered.UNSENT)
        reply = self._send(client, method, url, all_headers, body)
        if reply.status == 401:
            # Not sent again: the next request has what may have been replaced meanwhile.
            self._clients.renewed(client)
        return reply

    def _send(
        self, client: ApiClient, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        # Straight to the pool: the client's own way turns bodies that are not lists into merges.
        try:
            response = client.rest_client.pool_manager.request(
                method,
                url,
                body=body or None,
                headers=dict(headers),
                timeout=self._timeout,
                retries=False,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            return Reply(unanswered=_fate(error))
        except (OSError, ValueError):
            # A ValueError is a header that cannot be sent, as a token with a line of its own.
            return Reply(unanswered=Unanswered.LOST)
        return Reply(
            status=response.status,
            body=_decoded(response.data),
            retry_after=response.headers.get("Retry-After"),
            warnings=tuple(response.headers.getlist("Warning")),
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._clients.clear()


def _fate(error: urllib3.exceptions.HTTPError) -> Unanswered:
    """Say whether a request that failed may have reached the server."""
    if isinstance(error, _NEVER_SENT):
        return Unanswered.UNSENT
    # A certificate is refused before anything is sent; other faults of TLS may come any time.
    if isinstance(error, urllib3.exceptions.SSLError):
        before = any(mark in str(error) for mark in CERTIFICATE_FAULTS)
        return Unanswered.UNSENT if before else Unanswered.LOST
    return Unanswered.LOST


def _decoded(content: bytes) -> object:
    """Return the JSON of an answer; None for a page of a proxy and the like."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None

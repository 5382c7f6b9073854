"""The official client of a catalog entry, made anew when what it signs in with has changed.

Tokens and certificates of a cluster expire: the kubelet replaces projected tokens, operators
replace kubeconfigs, programs give credentials for an hour. A client reads them once.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from kubernetes import client, config
from kubernetes.config import incluster_config
from kubernetes.config.config_exception import ConfigException

from apps.clusters.adapters.certificates import of_certificate
from apps.clusters.domain.credentials import Credential, of_token
from apps.clusters.ports import SourceRejected
from gpuportal import env

logger = logging.getLogger(__name__)

_CONNECTIONS = 32
_REFUSED_SECONDS = 10.0
"""After a refusal, credentials are fetched anew no sooner than this: a program makes them."""
_CLUSTER_FILES = ("certificate-authority",)
_USER_FILES = ("tokenFile", "client-certificate", "client-key")
CERTIFICATE_FAULTS = ("CERTIFICATE_VERIFY", "X509", "PEM lib")
"""What OpenSSL says of certificates and keys that cannot be used, before a request is sent."""
_MISSHAPEN = (TypeError, AttributeError, KeyError, RecursionError)
"""What the client raises for a kubeconfig of another shape than it takes for granted."""
_State = tuple[int, int, int] | None


class Clients:
    """Gives the client of an entry; safe to use from several threads.

    Files are looked at for each request, which costs microseconds; only a changed one is read.
    Raises SourceRejected, with how to fix it, when the entry or what it points to is unusable.
    """

    def __init__(
        self, entry: Mapping[str, Any], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.entry = entry
        self._clock = clock
        self._lock = threading.Lock()
        self._fetched_at = clock()
        self._state = self._observed_state()
        self._client = api_client(entry)

    def current(self) -> client.ApiClient:
        """Return the client whose credentials are those of now."""
        with self._lock:
            observed = self._observed_state()
            if observed != self._state:
                self._replace(observed)
            return self._client

    def renewed(self, refused: client.ApiClient) -> bool:
        """Say whether there are other credentials than those that were answered with 401."""
        with self._lock:
            if self._client is not refused:
                return True
            now = self._clock()
            if now - self._fetched_at < _REFUSED_SECONDS:
                return False
            before = _signature(refused)
            self._replace(self._observed_state())
            return _signature(self._client) != before

    def clear(self) -> None:
        """Let go of the connections that are not in use."""
        with self._lock:
            self._client.rest_client.pool_manager.clear()

    def _replace(self, observed: "tuple[str, Mapping[Path, _State]]") -> None:
        self._fetched_at = self._clock()
        fresh = api_client(self.entry)
        # Streams that are open go on; what is idle was opened with the old certificate.
        self._client.rest_client.pool_manager.clear()
        self._client, self._state = fresh, observed
        logger.info("Kubernetes credentials were read again: %s", _named(self.entry))

    def _observed_state(self) -> "tuple[str, Mapping[Path, _State]]":
        """Return what tells that credentials were replaced: a token, and the state of files."""
        variable = self.entry.get("bearer_token_env")
        token = _variable(str(variable)) if variable and self.entry.get("api_server") else ""
        return token, {path: _state(path) for path in _files(self.entry)}


def api_client(entry: Mapping[str, Any]) -> client.ApiClient:
    """Return the official client for `{kubeconfig, context}`, `{in_cluster}` or `{api_server}`.

    Raises SourceRejected, with how to fix it, when the entry or what it points to is unusable.
    """
    configuration = client.Configuration()
    # Each collection that is watched keeps one open.
    configuration.connection_pool_maxsize = _CONNECTIONS
    # Retrying is for the caller, which has longer pauses and can be stopped.
    configuration.retries = False
    try:
        if entry.get("kubeconfig"):
            _from_kubeconfig(entry, configuration)
        elif entry.get("in_cluster"):
            _from_pod(entry, configuration)
        elif entry.get("api_server"):
            _from_address(entry, configuration)
        else:
            raise SourceRejected(
                "the cluster's kubernetes entry must have kubeconfig, in_cluster or api_server"
            )
        _hold_token(configuration, _named(entry))
        return client.ApiClient(configuration)
    except (ConfigException, OSError, ValueError, yaml.YAMLError) as error:
        raise _unusable(f"Kubernetes cannot be reached as configured: {error}") from error
    except _MISSHAPEN as error:
        raise _unusable(f"{_named(entry)} is no kubeconfig ({type(error).__name__})") from error


def _unusable(text: str) -> SourceRejected:
    """Return an error after which credentials are tried again soon: machines replace them."""
    rejected = SourceRejected(text)
    rejected.credentials = True
    return rejected


def _hold_token(configuration: client.Configuration, named: str) -> None:
    """Take the end of line off the token, now and whenever the client fetches another.

    http.client refuses a header with one, and repeats the whole token in its error.
    """
    fetch = configuration.refresh_api_key_hook

    def held(of: client.Configuration) -> None:
        if fetch is not None:
            fetch(of)
        token = of.api_key.get("BearerToken")
        if token is None:
            return
        token = str(token).strip()
        if not token.isascii() or not token.isprintable():
            raise _unusable(f"{named} holds no token: one line of ASCII letters is needed")
        of.api_key["BearerToken"] = token

    held(configuration)
    configuration.refresh_api_key_hook = held  # type: ignore[assignment]


def credentials(signed: client.ApiClient, entry: Mapping[str, Any]) -> list[Credential]:
    """Return what the client signs in with, where its end can be read; nothing is verified."""
    held = signed.configuration
    token = str(held.api_key.get("BearerToken") or "").rpartition(" ")[2]
    certificate = held.cert_file
    found = [
        of_token(token, f"the token of {_named(entry)}"),
        of_certificate(certificate, f"the client certificate of {_named(entry)}")
        if certificate
        else None,
    ]
    return [one for one in found if one is not None]


def _from_pod(entry: Mapping[str, Any], configuration: client.Configuration) -> None:
    """Take the account of the pod, or the one whose token lies in `token_folder`."""
    token, authority = _pod_files(entry)
    loader = incluster_config.InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=str(token), cert_filename=str(authority)
    )
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]


def _pod_files(entry: Mapping[str, Any]) -> tuple[Path, Path]:
    """Return the files of the token and of the server's authority."""
    if entry.get("token_folder"):
        folder = Path(str(entry["token_folder"]))
        return folder / "token", folder / "ca.crt"
    return (
        Path(incluster_config.SERVICE_TOKEN_FILENAME),
        Path(incluster_config.SERVICE_CERT_FILENAME),
    )


def _from_kubeconfig(entry: Mapping[str, Any], configuration: client.Configuration) -> None:
    path = str(entry["kubeconfig"])
    if not Path(path).is_file():
        raise SourceRejected(f"the kubeconfig {path} is not there or cannot be read")
    config.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=path,
        context=entry.get("context") or None,
        client_configuration=configuration,
        persist_config=False,
    )
    signed = configuration.api_key or configuration.cert_file or configuration.username
    if not signed and _has_user(path, entry.get("context")):
        # Requests would be sent without any, and refused as those of an account without rights.
        raise _unusable(
            f"the user in the kubeconfig {path} has no credentials: its token or token file is "
            "empty, its program (exec) failed as the log tells, or no such user is listed"
        )


def _has_user(kubeconfig: str, context: str | None) -> bool:
    """Say whether the context names a user, other than one that is listed as empty."""
    read = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))

    def listed(section: str, inner: str, name: str | None) -> Any:
        found = [one.get(inner) for one in read.get(section) or () if one.get("name") == name]
        return found[0] if found else None

    user = (listed("contexts", "context", context or read.get("current-context")) or {}).get("user")
    return bool(user) and listed("users", "user", user) != {}


def _from_address(entry: Mapping[str, Any], configuration: client.Configuration) -> None:
    address = str(entry["api_server"]).rstrip("/")
    if urlsplit(address).scheme not in {"http", "https"}:
        raise SourceRejected(f"api_server is {address!r}: http://HOST:PORT or https://… is needed")
    configuration.host = address
    if entry.get("ca_file"):
        configuration.ssl_ca_cert = str(entry["ca_file"])
    variable = entry.get("bearer_token_env")
    if variable:
        token = _variable(str(variable)).strip()
        if not token:
            raise _unusable(
                f"neither {variable} (bearer_token_env) nor {variable}_FILE is set to a token"
            )
        configuration.api_key["BearerToken"] = token
        configuration.api_key_prefix["BearerToken"] = "Bearer"


def _variable(name: str) -> str:
    """Return a variable's value. Raises SourceRejected where its file is away, as in a rotation."""
    try:
        return env.text(name, "")
    except ValueError as error:
        raise _unusable(f"Kubernetes cannot be reached as configured: {error}") from error


def _files(entry: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files that the client of an entry is made from."""
    if entry.get("kubeconfig"):
        path = Path(str(entry["kubeconfig"]))
        yield path
        yield from _named_files(path)
    elif entry.get("in_cluster"):
        yield from _pod_files(entry)
    elif entry.get("ca_file"):
        yield Path(str(entry["ca_file"]))


_named_in: dict[tuple[Path, _State], tuple[Path, ...]] = {}


def _named_files(kubeconfig: Path) -> tuple[Path, ...]:
    """Return the files that a kubeconfig names; it is parsed again only when it has changed."""
    key = (kubeconfig, _state(kubeconfig))
    if key not in _named_in:
        if len(_named_in) > _CONNECTIONS:
            _named_in.clear()
        try:
            _named_in[key] = tuple(_parsed_files(kubeconfig))
        except (OSError, ValueError, yaml.YAMLError, *_MISSHAPEN):
            # The client says what is wrong with it.
            _named_in[key] = ()
    return _named_in[key]


def _parsed_files(kubeconfig: Path) -> Iterator[Path]:
    read = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    for section, inner, keys in (
        ("clusters", "cluster", _CLUSTER_FILES),
        ("users", "user", _USER_FILES),
    ):
        for item in (read.get(section) if isinstance(read, dict) else None) or ():
            values = (item.get(inner) if isinstance(item, dict) else None) or {}
            yield from (kubeconfig.parent / str(values[key]) for key in keys if values.get(key))


def _state(path: Path) -> _State:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def _signature(made: client.ApiClient) -> tuple[str, bytes]:
    held = made.configuration
    try:
        certificate = Path(held.cert_file).read_bytes() if held.cert_file else b""
    except OSError:
        certificate = b""
    return str(held.api_key.get("BearerToken") or ""), certificate


def _named(entry: Mapping[str, Any]) -> str:
    """Return what a person looks for to put these credentials right."""
    if entry.get("kubeconfig"):
        return f"the kubeconfig {entry['kubeconfig']}"
    if entry.get("in_cluster"):
        return f"the service account of the pod ({_pod_files(entry)[0]})"
    return str(entry.get("bearer_token_env") or "api_server")

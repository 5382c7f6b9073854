"""From the catalog's `kubernetes` entry to a client of that API server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from apps.clusters.ports import SourceRejected
from gpuportal import env

_CONNECTIONS = 32


def api_client(entry: Mapping[str, Any]) -> client.ApiClient:
    """Return the official client for `{kubeconfig, context}`, `{in_cluster}` or `{api_server}`.

    Raises SourceRejected, with what to mend, when the entry or what it points to cannot be used.
    """
    configuration = client.Configuration()
    # Each collection that is watched keeps one open.
    configuration.connection_pool_maxsize = _CONNECTIONS
    # Retrying is for the caller, who waits longer and can be stopped.
    configuration.retries = False
    try:
        if entry.get("kubeconfig"):
            _from_kubeconfig(entry, configuration)
        elif entry.get("in_cluster"):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        elif entry.get("api_server"):
            _from_address(entry, configuration)
        else:
            raise SourceRejected(
                "the cluster's kubernetes entry must have kubeconfig, in_cluster or api_server"
            )
        return client.ApiClient(configuration)
    except (ConfigException, OSError, ValueError) as error:
        raise SourceRejected(f"Kubernetes cannot be reached as configured: {error}") from error


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


def _from_address(entry: Mapping[str, Any], configuration: client.Configuration) -> None:
    address = str(entry["api_server"]).rstrip("/")
    if urlsplit(address).scheme not in {"http", "https"}:
        raise SourceRejected(f"api_server is {address!r}: http://HOST:PORT or https://… is needed")
    configuration.host = address
    if entry.get("ca_file"):
        configuration.ssl_ca_cert = str(entry["ca_file"])
    variable = entry.get("bearer_token_env")
    if variable:
        token = env.text(str(variable), "").strip()
        if not token:
            raise SourceRejected(
                f"neither {variable} (bearer_token_env) nor {variable}_FILE is set to a token"
            )
        configuration.api_key["BearerToken"] = token
        configuration.api_key_prefix["BearerToken"] = "Bearer"

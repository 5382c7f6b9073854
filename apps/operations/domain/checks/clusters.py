"""Clusters: their names, and connections that name no secret."""

from urllib.parse import urlsplit

from apps.operations.domain.checks.names import check_once
from apps.operations.domain.schema import Account, Catalog, Cluster, Prometheus
from apps.operations.domain.source_positions import Path, Problems

_WAYS = ("kubeconfig", "in_cluster", "api_server")
# What else belongs to one way of connecting, and to which.
_BELONGS = {"context": "kubeconfig", "bearer_token_env": "api_server", "ca_file": "api_server"}


def check(catalog: Catalog, problems: Problems) -> None:
    """Check every cluster."""
    clusters = [(("clusters", i), c) for i, c in enumerate(catalog.clusters) if c]
    check_once(
        (((*path, "name"), cluster.name) for path, cluster in clusters),
        problems,
        what="a second cluster of that name",
    )
    for path, cluster in clusters:
        _check_cluster(cluster, path, problems)


def _check_cluster(cluster: Cluster, path: Path, problems: Problems) -> None:
    if cluster.prometheus is not None:
        _check_prometheus(cluster.prometheus, (*path, "prometheus"), problems)
    if cluster.kubernetes is not None:
        at = (*path, "kubernetes")
        _check_account(cluster.kubernetes, at, problems)
        if cluster.kubernetes.writer is not None:
            _check_account(cluster.kubernetes.writer, (*at, "writer"), problems)
            _check_apart(cluster.kubernetes, cluster.kubernetes.writer, at, problems)


def _check_prometheus(prometheus: Prometheus, path: Path, problems: Problems) -> None:
    _check_url(prometheus.url, (*path, "url"), problems)
    if prometheus.bearer_token_env and prometheus.basic_auth_env:
        problems.add(
            (*path, "basic_auth_env"),
            "stands beside bearer_token_env; only one of the two can be sent",
        )


def _check_account(account: Account, path: Path, problems: Problems) -> None:
    _check_url(account.api_server, (*path, "api_server"), problems)
    if not problems.clean(*((*path, way) for way in _WAYS)):
        return
    ways = [way for way in _WAYS if getattr(account, way)]
    if len(ways) != 1:
        problems.add(
            path,
            f"has {' and '.join(ways) or 'none of them'}; exactly one of kubeconfig, "
            "in_cluster: true and api_server is needed (no kubernetes key at all: metrics only)",
        )
        return
    for key, way in _BELONGS.items():
        if getattr(account, key) is not None and way != ways[0]:
            problems.add((*path, key), f"goes with {way}, not with {ways[0]}")


def _check_apart(reader: Account, writer: Account, path: Path, problems: Problems) -> None:
    """Refuse one account for both: what watches all day long must not be able to write.

    A server that asks for no account, as a simulated one, has none to tell apart.
    """
    token = writer.bearer_token_env
    same = (
        (writer.in_cluster and reader.in_cluster)
        or (writer.kubeconfig and _file(writer) == _file(reader))
        or (token and (token, writer.api_server) == (reader.bearer_token_env, reader.api_server))
    )
    if same:
        problems.add(
            (*path, "writer"),
            "is the account that watches the cluster; quotas are changed under one of its own "
            "(deploy/rbac-quota-writer.yaml)",
        )


def _file(account: Account) -> tuple[str | None, str | None]:
    return account.kubeconfig, account.context


def _check_url(url: str | None, path: Path, problems: Problems) -> None:
    """Note a URL that cannot be asked; its text is not shown, it may hold a password."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
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

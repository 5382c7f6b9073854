"""Which portal, which token, and the cluster and namespace of the kubeconfig."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer
import yaml

from gpuportal_client.connection import Portal, PortalError


def account_file() -> Path:
    """Return where `login` keeps address and token."""
    return Path(typer.get_app_dir("gpuportal")) / "account.yaml"


def checked_url(url: str) -> str:
    """Return the address without its last slash. Raises PortalError where it is none."""
    try:
        parts = urlsplit(url.strip())
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        port_is_valid = False
    has_host = port_is_valid and parts.scheme in {"http", "https"} and bool(parts.hostname)
    # Paths of the API are put behind it.
    if not has_host or parts.query or parts.fragment:
        raise PortalError(f"“{url}” is no address of a portal: write https://portal.example")
    return url.strip().rstrip("/")


def save_account(portal: Portal) -> Path:
    """Keep address and token in a file that only its owner reads; return the file.

    Raises PortalError.
    """
    path = account_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yaml.safe_dump({"url": portal.url, "token": portal.token}, file)
    except OSError as error:
        raise PortalError(
            f"{path} cannot be written: {error.strerror}. Set GPUPORTAL_URL and GPUPORTAL_TOKEN "
            "instead."
        ) from error
    return path


def portal_from(url: str | None) -> Portal:
    """Return the portal of `url`, of the environment, or of `login`. Raises PortalError."""
    account = _mapping(account_file())
    kept = account.get("url")
    address = url or os.environ.get("GPUPORTAL_URL") or kept
    if not address:
        raise PortalError(
            "No portal is known. Sign in once: gpuportal login https://portal.example"
        )
    address = checked_url(str(address))
    # The kept token belongs to the kept address: another server must not see it.
    token = os.environ.get("GPUPORTAL_TOKEN") or (account.get("token") if address == kept else None)
    if not token:
        raise PortalError(f"No token for {address}. Sign in once: gpuportal login {address}")
    return Portal(address, checked_token(str(token)))


def checked_token(token: str) -> str:
    """Return the token without blanks around it. Raises PortalError where it cannot be one."""
    found = token.strip()
    if not re.fullmatch("[!-~]+", found):
        raise PortalError("The token has characters that no token has: copy it again.")
    return found


@dataclass(frozen=True, slots=True)
class KubeScope:
    """The current context of the kubeconfig; empty texts where there is none."""

    cluster: str = ""
    namespace: str = ""


def kube_scope() -> KubeScope:
    """Return cluster and namespace of the current context, as kubectl would take them."""
    listed = os.environ.get("KUBECONFIG", "")
    files = [Path(name) for name in listed.split(os.pathsep) if name]
    configs = [_mapping(file) for file in files or [Path.home() / ".kube" / "config"]]
    current = next((c["current-context"] for c in configs if c.get("current-context")), None)
    for config in configs:
        contexts = config.get("contexts")
        for entry in contexts if isinstance(contexts, list) else []:
            if current and isinstance(entry, dict) and entry.get("name") == current:
                context = entry.get("context")
                named = context if isinstance(context, dict) else {}
                return KubeScope(
                    str(named.get("cluster") or ""), str(named.get("namespace") or "default")
                )
    return KubeScope()


def _mapping(path: Path) -> dict[str, Any]:
    """Return the YAML mapping of a file; empty where there is no file. Raises PortalError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeError) as error:
        raise PortalError(f"{path} cannot be read: {error}") from error
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise PortalError(f"{path} is no YAML{line}: {getattr(error, 'problem', error)}") from error
    except (ValueError, RecursionError) as error:
        # A date that no calendar has, or lists within lists without end.
        raise PortalError(f"{path} cannot be read: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise PortalError(f"{path} holds something else than settings.")
    return found

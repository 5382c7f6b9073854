#!/usr/bin/env python3
"""Write the secrets that docker-compose.yml mounts, once; what is there stays as it is.

Run it as `make secrets`. With `--kubernetes` nothing is written: it prints a Secret for
`kubectl apply -f -`, which names the databases of deploy/kustomize/components/embedded-databases.
"""

import json
import secrets
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "var" / "secrets"


def made(postgres: str, redis: str) -> list[dict[str, str]]:
    """Return new secrets by name for databases on these hosts; those of a group fit together."""
    postgres_password, redis_password = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    return [
        {"secret_key": secrets.token_urlsafe(64)},
        {
            "postgres_password": postgres_password,
            "database_url": f"postgresql://portal:{postgres_password}@{postgres}:5432/portal",
        },
        {
            "redis_password": redis_password,
            "broker_url": f"redis://:{redis_password}@{redis}:6379/0",
            "cache_url": f"redis://:{redis_password}@{redis}:6379/1",
        },
    ]


def write(name: str, value: str) -> None:
    path = FOLDER / name
    path.write_text(value + "\n", encoding="ascii")
    # Compose mounts the file with this mode, and containers run as other users; the folder, which
    # they do not see, keeps everybody else on this machine out.
    path.chmod(0o444)


def write_files() -> int:
    """Write each group of which nothing is there; return 1 where a part of one is missing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(0o700)
    (FOLDER.parent / "credentials").mkdir(exist_ok=True)
    torn = 0
    for group in made("postgres", "redis"):
        there = [name for name in group if (FOLDER / name).exists()]
        if not there:
            for name, value in group.items():
                write(name, value)
            sys.stderr.write(f"Wrote {', '.join(group)} to {FOLDER}\n")
            continue
        missing = sorted(set(group) - set(there))
        torn += bool(missing)
        sys.stderr.write(
            f"{FOLDER} holds {', '.join(there)} already: it stays as it is. A database keeps the "
            "password it was made with, so remove these only together with its volume.\n"
        )
        if missing:
            sys.stderr.write(f"Missing beside them: {', '.join(missing)}\n")
    return 1 if torn else 0


def secret() -> str:
    """Return a manifest of the Secret that deploy/kustomize/base mounts."""
    groups = made("gpuportal-postgres", "gpuportal-redis")
    values = {name.replace("_", "-"): value for group in groups for name, value in group.items()}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "gpuportal-secrets", "namespace": "gpuportal"},
        "stringData": values,
    }
    return json.dumps(manifest, indent=2)


def main(arguments: list[str]) -> int:
    if arguments == ["--kubernetes"]:
        sys.stdout.write(secret() + "\n")
        return 0
    if arguments:
        sys.stderr.write("usage: make_secrets.py [--kubernetes]\n")
        return 2
    return write_files()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

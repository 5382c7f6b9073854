#!/usr/bin/env python3
"""Write the secrets that docker-compose.yml mounts, once; what is there stays as it is.

Run it as `make secrets`.
"""

import secrets
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "var" / "secrets"


def write(name: str, value: str) -> None:
    path = FOLDER / name
    path.write_text(value + "\n", encoding="ascii")
    # Compose mounts the file with this mode, and containers run as other users; the folder, which
    # they do not see, keeps everybody else on this machine out.
    path.chmod(0o444)


def main() -> int:
    names = ("secret_key", "postgres_password", "database_url")
    there = [name for name in names if (FOLDER / name).exists()]
    if there:
        sys.stderr.write(
            f"{FOLDER} holds {', '.join(there)} already: nothing was written. The database keeps "
            "the password it was made with, so remove these only together with its volume.\n"
        )
        return 0 if len(there) == len(names) else 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(0o700)
    (FOLDER.parent / "credentials").mkdir(exist_ok=True)
    password = secrets.token_urlsafe(32)
    write("secret_key", secrets.token_urlsafe(64))
    write("postgres_password", password)
    write("database_url", f"postgresql://portal:{password}@postgres:5432/portal")
    sys.stderr.write(f"Wrote {', '.join(names)} to {FOLDER}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

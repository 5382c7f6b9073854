"""The servers and the browser that tests use: where they are, and how Debian brings them.

`python -m tests.programs` installs what is missing; it needs root or sudo without a password.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Debian package → the programs that tests start from it.
PACKAGES = {
    "prometheus": ("prometheus", "promtool"),
    "redis-server": ("redis-server",),
    "postgresql": ("initdb", "postgres"),
    "chromium": ("chromium",),
    "pgbouncer": ("pgbouncer",),
    "faketime": ("faketime",),
}
# Those of them whose package brings a service of the same name.
SERVICES = {"prometheus", "redis-server", "postgresql", "pgbouncer"}
_POLICY = Path("/usr/sbin/policy-rc.d")
_SYSTEMD = Path("/run/systemd/system")


class ProgramMissing(RuntimeError):
    """A program that tests start is not there; the text names the Debian package."""


def find(program: str) -> Path:
    """Return the path of `program`; PostgreSQL's newest where several are installed.

    Raises ProgramMissing.
    """
    found = shutil.which(program)
    if found is not None:
        return Path(found)
    # Debian keeps PostgreSQL's server programs out of PATH, one folder for each version.
    folders = Path("/usr/lib/postgresql").glob(f"*/bin/{program}")
    versions = sorted(folders, key=lambda path: float(path.parts[4]), reverse=True)
    if versions:
        return versions[0]
    package = next((name for name, has in PACKAGES.items() if program in has), program)
    raise ProgramMissing(
        f"{program} is not installed: `make test` installs it where it may, "
        f"else install the Debian package {package}"
    )


def clock_library() -> Path:
    """Return the library that gives a process another clock, preloaded. Raises ProgramMissing."""
    find("faketime")
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    return library


def missing_packages() -> list[str]:
    """Return the Debian packages of which a program is not there."""
    return [name for name, programs in PACKAGES.items() if not all(map(_is_there, programs))]


def _is_there(program: str) -> bool:
    try:
        find(program)
    except ProgramMissing:
        return False
    return True


def install(packages: list[str]) -> None:
    """Install Debian packages, with no service of theirs started now or at the next boot.

    Needs root. Raises CalledProcessError when apt-get fails.
    """
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with _no_services():
        _run(["apt-get", "update"], environment)
        _run(["apt-get", "install", "-y", "--no-install-recommends", *packages], environment)
    if _SYSTEMD.is_dir():
        ours = sorted(set(packages) & SERVICES)
        if ours:
            _run(["systemctl", "disable", *ours], environment)


@contextmanager
def _no_services() -> Iterator[None]:
    """Tell Debian's installers to start nothing; an administrator's own word on it stays."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)


def _run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)  # noqa: S603 - fixed words


def _has_sudo() -> bool:
    sudo = shutil.which("sudo")
    if sudo is None:
        return False
    asked = subprocess.run([sudo, "-n", "true"], check=False, capture_output=True)  # noqa: S603 - fixed words
    return asked.returncode == 0


def main() -> int:
    """Install what is missing; return 0 when everything is there, else say what to install."""
    missing = missing_packages()
    if not missing:
        return 0
    names = " ".join(missing)
    if shutil.which("apt-get") is None:
        sys.stderr.write(
            f"The tests need programs that are not installed. This system has no apt-get; "
            f"install what Debian has as: {names}\n"
        )
        return 1
    sys.stderr.write(f"Installing from Debian what the tests need: {names}\n")
    try:
        if os.geteuid() == 0:
            install(missing)
        elif _has_sudo():
            _run(["sudo", "-n", sys.executable, "-m", "tests.programs"], dict(os.environ))
        else:
            sys.stderr.write(
                "Neither root nor sudo without a password. Run this, then again what you ran:\n"
                f"  sudo apt-get install --no-install-recommends {names}\n"
            )
            return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error}\nIts output is above. Are Debian's packages reachable?\n")
        return 1
    still = missing_packages()
    if still:
        sys.stderr.write(f"Installed, but programs are still missing: {' '.join(still)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

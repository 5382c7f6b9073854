#!/usr/bin/env python3
"""Build the image of a release, and write it with all that belongs to it to `var/release/VERSION`.

`make release TAG=NAME:VERSION NODE_IMAGE=…@sha256:… PYTHON_IMAGE=…@sha256:…`. A base without its
digest is refused: another one could come under its name, and the content of the release would be
unknown afterwards. The version is that of pyproject.toml, and CHANGELOG.md says what is new in it.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from release_bundle import (
    BundleRefused,
    check_committed,
    new_folder,
    version,
    write_bundle,
    write_lists,
)

ROOT = Path(__file__).resolve().parent.parent
BASES = ("NODE_IMAGE", "PYTHON_IMAGE")
PINNED = re.compile(r"\S+@sha256:[0-9a-f]{64}")


def problems(tag: str, bases: dict[str, str], changelog: str) -> list[str]:
    """Return what a release lacks; nothing where it can be built."""
    found = [
        f"{name}={base or '(empty)'}: a base with its digest is needed, as NAME:TAG@sha256:…"
        for name, base in bases.items()
        if not PINNED.fullmatch(base)
    ]
    if not tag.endswith(f":{version()}"):
        found.append(f"TAG={tag or '(empty)'}: name the image, as gpuportal:{version()}")
    if not re.search(
        rf"^## {re.escape(version())} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE
    ):
        found.append(f"CHANGELOG.md has no section `## {version()} (YYYY-MM-DD)`")
    return found


def build(builder: str, tag: str, bases: dict[str, str]) -> bool:
    """Build the image and say whether that went well."""
    given = bases | {"VERSION": version()}
    words = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
    command = [builder, "build", *words, "--tag", tag, "--file", "Dockerfile", "."]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0  # noqa: S603 - our own words


def save(builder: str, tag: str, file: Path) -> bool:
    """Write the image to a file that `docker load` reads, and say whether that went well."""
    if Path(builder).name == "buildah":
        words = ["push", "--quiet", tag, f"docker-archive:{file}:{tag}"]
    else:
        words = ["save", "--output", str(file), tag]
    return subprocess.run([builder, *words], cwd=ROOT, check=False).returncode == 0  # noqa: S603 - our own words


def release(builder: str, tag: str, bases: dict[str, str]) -> str:
    """Build and write everything; return what went wrong, or nothing."""
    try:
        check_committed()
        folder = new_folder()
        write_lists(folder)  # before the image: an unknown license stops the release
        if not build(builder, tag, bases) or not save(builder, tag, folder / "image.tar"):
            return f"{builder} could not build the image or write it; its output is above"
        write_bundle(folder)
    except BundleRefused as refused:
        return str(refused)
    sys.stderr.write(f"release: {folder}\n")
    return ""


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 + len(BASES):
        sys.stderr.write("usage: release_image.py TAG NODE_IMAGE PYTHON_IMAGE\n")
        return 2
    tag, bases = arguments[0], dict(zip(BASES, arguments[1:], strict=True))
    found = problems(tag, bases, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    builder = shutil.which("docker") or shutil.which("podman") or shutil.which("buildah")
    if builder is None:
        found.append("docker, podman or buildah is needed")
    if not found and builder is not None:
        found = [text] if (text := release(builder, tag, bases)) else []
    sys.stderr.write("".join(f"{text}\n" for text in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

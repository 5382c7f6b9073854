#!/usr/bin/env python3
"""Build the image of a release: `make release TAG=… NODE_IMAGE=…@sha256:… PYTHON_IMAGE=…@sha256:…`.

A base without its digest is refused: another one could come under its name, and nobody could say
afterwards what the release was made of.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASES = ("NODE_IMAGE", "PYTHON_IMAGE")
PINNED = re.compile(r"\S+@sha256:[0-9a-f]{64}")


def problems(tag: str, bases: dict[str, str]) -> list[str]:
    """Return what a release lacks; nothing where it can be built."""
    found = [
        f"{name}={base or '(empty)'}: a base with its digest is needed, as NAME:TAG@sha256:…"
        for name, base in bases.items()
        if not PINNED.fullmatch(base)
    ]
    return found if tag else [*found, "TAG is empty: name the image, as gpuportal:1.0.0"]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 + len(BASES):
        sys.stderr.write("usage: release_image.py TAG NODE_IMAGE PYTHON_IMAGE\n")
        return 2
    tag, bases = arguments[0], dict(zip(BASES, arguments[1:], strict=True))
    if found := problems(tag, bases):
        sys.stderr.write("\n".join(found) + "\n")
        return 1
    builder = shutil.which("docker") or shutil.which("podman") or shutil.which("buildah")
    if builder is None:
        sys.stderr.write("docker, podman or buildah is needed\n")
        return 1
    words = [word for name, base in bases.items() for word in ("--build-arg", f"{name}={base}")]
    command = [builder, "build", *words, "--tag", tag, "--file", "Dockerfile", "."]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

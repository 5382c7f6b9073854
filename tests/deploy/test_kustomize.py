"""What `kubectl apply -k` sends: rendered, held against Kubernetes' schemas, and consistent."""

import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import msgspec
import pytest
import yaml
from django.core.management import get_commands
from django.utils import timezone

from apps.operations.domain.alert_rules import prometheus_rule
from apps.operations.services.catalog.yaml_reader import read_catalog
from tests.deploy.rendering import (
    ALONE,
    GIVEN_CONFIG_MAPS,
    GIVEN_SECRETS,
    KUSTOMIZE,
    MATRIX,
    OVERLAYS,
    PAIRS,
    ROOT,
    Manifest,
    containers,
    named,
    overlay_of,
    pod_templates,
    rendered,
)
from tests.programs import find
from tests.test_repository import variables_read

# The oldest version with admission policies, and a newer one.
VERSIONS = ("1.30", "1.37")
SCHEMAS: dict[str, Manifest] = yaml.safe_load(
    (Path(__file__).parent / "custom_resources.yaml").read_text(encoding="utf-8")
)
PROCESSES = ["beat", "watch", "web", "worker-alerts", "worker-collect", "worker-exports"]
PROCESSES += ["worker-pending", "worker-quota-requests"]


@pytest.fixture(scope="module")
def renders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Manifest, ...]]:
    """Return by name what each overlay, each choice of components and each one alone render."""
    home = tmp_path_factory.mktemp("overlays").resolve()
    folders = {name: KUSTOMIZE / "overlays" / name for name in OVERLAYS}
    for chosen in [*PAIRS, *ALONE]:
        name = "+".join(chosen)
        folders[name] = overlay_of(chosen, home / name)
    return {name: rendered(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def objects(renders: dict[str, tuple[Manifest, ...]]) -> list[Manifest]:
    """Return every object that any of them has, once."""
    return [
        msgspec.json.decode(text)
        for text in {
            msgspec.json.encode(manifest, order="sorted")
            for manifests in renders.values()
            for manifest in manifests
        }
    ]


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_what_kubernetes_takes(objects: list[Manifest], version: str) -> None:
    check(objects, version)


@pytest.mark.exhaustive
@pytest.mark.parametrize("chosen", MATRIX, ids="+".join)
def test_every_choice_of_components_is_what_kubernetes_takes(
    chosen: tuple[str, ...], tmp_path: Path
) -> None:
    manifests = rendered(overlay_of(chosen, tmp_path.resolve()))
    check(manifests, VERSIONS[0])
    variables = {name for manifest in manifests for name in manifest.get("data", ())}
    assert ("GPUPORTAL_EXPORTS_S3_BUCKET" in variables) == ("exports-s3" in chosen)


def check(manifests: Iterable[Manifest], version: str) -> None:
    """Raise for an object that this version of Kubernetes would refuse."""
    for manifest in manifests:
        if manifest["kind"] not in SCHEMAS:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_every_custom_resource_is_what_its_controller_takes(objects: list[Manifest]) -> None:
    found = [manifest for manifest in objects if manifest["kind"] in SCHEMAS]
    assert {manifest["kind"] for manifest in found} == set(SCHEMAS)
    for manifest in found:
        jsonschema.validate(manifest, SCHEMAS[manifest["kind"]])


def test_no_render_names_an_object_twice(renders: dict[str, tuple[Manifest, ...]]) -> None:
    for manifests in renders.values():
        names = [(m["kind"], m["metadata"]["name"]) for m in manifests]
        assert len(names) == len(set(names))


def test_every_pod_is_restricted(objects: list[Manifest]) -> None:
    """As Pod Security's profile `restricted` wants it, and with a root that is read-only."""
    for name, template in pod_templates(objects):
        pod = template["spec"]["securityContext"]
        assert pod["runAsNonRoot"], name
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert template["spec"]["automountServiceAccountToken"] is False
        for container in containers(template):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]


def test_every_token_ends(objects: list[Manifest]) -> None:
    tokens = [
        source["serviceAccountToken"]
        for _, template in pod_templates(objects)
        for volume in template["spec"].get("volumes", ())
        for source in volume.get("projected", {}).get("sources", ())
        if "serviceAccountToken" in source
    ]
    assert tokens
    assert {token["expirationSeconds"] for token in tokens} == {3600}
    assert not [m for m in objects if m["kind"] == "Secret"]


def test_what_pods_name_is_there(renders: dict[str, tuple[Manifest, ...]]) -> None:
    for manifests in renders.values():
        maps = named(manifests, "ConfigMap").keys() | GIVEN_CONFIG_MAPS
        claims = named(manifests, "PersistentVolumeClaim").keys()
        accounts = named(manifests, "ServiceAccount").keys() | {None}
        for _, template in pod_templates(manifests):
            spec = template["spec"]
            assert spec.get("serviceAccountName") in accounts
            words = msgspec.json.encode(spec).decode()
            assert set(_values(spec, "secretName")) <= GIVEN_SECRETS, words
            assert set(_values(spec, "claimName")) <= claims
            for volume in spec.get("volumes", ()):
                assert volume.get("configMap", {}).get("name", "kube-root-ca.crt") in maps
            volumes = {volume["name"] for volume in spec["volumes"]} | {"data"}
            for container in containers(template):
                assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
                for source in container.get("envFrom", ()):
                    assert source.get("configMapRef", {}).get("name", "kube-root-ca.crt") in maps


def _values(found: Any, key: str) -> list[str]:
    if isinstance(found, dict):
        own = [found[key]] if key in found else []
        return own + [value for child in found.values() for value in _values(child, key)]
    if isinstance(found, list):
        return [value for child in found for value in _values(child, key)]
    return []


def test_selectors_find_their_pods(renders: dict[str, tuple[Manifest, ...]]) -> None:
    for manifests in renders.values():
        labels = {
            name: template["metadata"]["labels"] for name, template in pod_templates(manifests)
        }
        for manifest in manifests:
            spec = manifest.get("spec", {})
            wanted = spec.get("selector", {})
            if manifest["kind"] in {"Deployment", "StatefulSet"}:
                assert wanted["matchLabels"].items() <= labels[manifest["metadata"]["name"]].items()
            elif manifest["kind"] == "Service":
                assert any(wanted.items() <= found.items() for found in labels.values())
            elif manifest["kind"] == "PodDisruptionBudget":
                assert any(
                    wanted["matchLabels"].items() <= found.items() for found in labels.values()
                )


def test_the_base_runs_all_processes_and_one_worker_for_each_queue() -> None:
    base = rendered(KUSTOMIZE / "base")
    deployments = named(base, "Deployment")
    assert sorted(deployments) == [f"gpuportal-{name}" for name in PROCESSES]
    assert sorted(named(base, "Job")) == ["gpuportal-migrate"]
    for _, template in pod_templates(base):
        assert template["metadata"]["labels"]["app.kubernetes.io/name"] == "gpuportal"


def test_commands_are_those_of_the_image_and_of_the_portal(objects: list[Manifest]) -> None:
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for name, template in pod_templates(objects):
        for container in containers(template):
            command = container.get("command", [])
            if command[:2] == ["python", "manage.py"]:
                assert command[2] in get_commands()
            if command[:1] == ["gunicorn"]:
                assert all(word.partition("=")[0] in image for word in command), name
            if command[:1] == ["celery"]:
                assert command[1:3] in (["--app=gpuportal", "worker"], ["--app=gpuportal", "beat"])


def documented_overlay(start: str, end: str, components: list[str], place: Path) -> Path:
    """Return an overlay with the patches that the document shows between two of its words."""
    document = (ROOT / "docs/how-to/install-in-kubernetes.md").read_text(encoding="utf-8")
    words = document[document.index(start) :]
    words = words[words.index("    patches:") : words.index(end)]
    folder = overlay_of(components, place.resolve())
    with (folder / "kustomization.yaml").open("a", encoding="utf-8") as file:
        file.write(textwrap.dedent(words))
    return folder


def test_the_documented_patch_leads_migrations_past_pgbouncer(tmp_path: Path) -> None:
    folder = documented_overlay("## Use PgBouncer", "In the chart", ["exports-volume"], tmp_path)
    (job,) = named(rendered(folder), "Job").values()
    check([job], VERSIONS[0])
    (container,) = job["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one["value"] for one in container["env"]}
    assert given.keys() == {"DATABASE_URL_FILE", "GPUPORTAL_PGBOUNCER"}


def test_the_documented_patch_gives_each_account_the_pull_secret(tmp_path: Path) -> None:
    folder = documented_overlay(
        "## Pull from a private registry",
        "## Use PgBouncer",
        ["exports-volume", "quota-writer"],
        tmp_path,
    )
    accounts = named(rendered(folder), "ServiceAccount")
    check(accounts.values(), VERSIONS[0])
    assert accounts.keys() == {"gpuportal-reader", "gpuportal-quota-writer"}
    assert all(one["imagePullSecrets"] == [{"name": "registry"}] for one in accounts.values())


def test_the_documented_patch_mounts_the_kubeconfig_of_another_cluster(tmp_path: Path) -> None:
    folder = documented_overlay(
        "In an overlay, add a patch for each:",
        "The catalog names",
        ["exports-volume", "quota-writer"],
        tmp_path,
    )
    deployments = named(rendered(folder), "Deployment")
    check(deployments.values(), VERSIONS[0])
    assert sorted(deployments) == [f"gpuportal-{name}" for name in PROCESSES]
    for one in deployments.values():
        pod = one["spec"]["template"]["spec"]
        (volume,) = (v for v in pod["volumes"] if v["name"] == "west")
        assert volume["secret"]["secretName"] == "west"
        (portal,) = (c for c in pod["containers"] if c["name"] == "portal")
        places = {mount["name"]: mount["mountPath"] for mount in portal["volumeMounts"]}
        assert places["west"] == "/etc/gpuportal/kubeconfigs/west"


def test_only_pods_that_change_quotas_get_the_writers_of_other_clusters(tmp_path: Path) -> None:
    document = (ROOT / "docs/how-to/install-in-kubernetes.md").read_text(encoding="utf-8")
    words = document[document.index("patch for these two Deployments:") :]
    words = words[words.index("    patches:") : words.index("The catalog names")]
    folder = overlay_of(["exports-volume", "quota-writer"], tmp_path.resolve())
    with (folder / "kustomization.yaml").open("a", encoding="utf-8") as file:
        file.write(textwrap.dedent(words))
    deployments = named(rendered(folder), "Deployment")
    check(deployments.values(), VERSIONS[0])
    given = {
        name
        for name, one in deployments.items()
        if any(v["name"] == "west-writer" for v in one["spec"]["template"]["spec"]["volumes"])
    }
    assert given == {"gpuportal-web", "gpuportal-worker-quota-requests"}


def test_settings_know_every_variable(objects: list[Manifest]) -> None:
    for manifest in objects:
        if manifest["metadata"]["name"].startswith("gpuportal-settings"):
            given = {name.removesuffix("_FILE") for name in manifest["data"]}
            assert given <= variables_read()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_example_of_a_catalog_can_be_loaded(overlay: str) -> None:
    path = KUSTOMIZE / "overlays" / overlay / "catalog.yaml"
    catalog, _ = read_catalog(path.read_text(encoding="utf-8"), path.name, now=timezone.now())
    assert catalog.clusters


@pytest.mark.parametrize(
    ("rendered_as", "files"),
    [
        ("gpuportal-reader", ["rbac-reader.yaml"]),
        ("gpuportal-reader-claims", ["rbac-reader-claims.yaml"]),
        ("gpuportal-quota-writer", ["rbac-quota-writer.yaml"]),
    ],
)
def test_rights_are_those_of_the_files_for_other_clusters(
    rendered_as: str, files: list[str]
) -> None:
    (given,) = files
    alone = list(yaml.safe_load_all((ROOT / "deploy" / given).read_text(encoding="utf-8")))
    role = named(rendered(KUSTOMIZE / "overlays" / "ingress"), "ClusterRole")[rendered_as]
    assert role["rules"] == named(alone, "ClusterRole")[rendered_as]["rules"]


def test_the_writer_s_token_is_where_quotas_are_changed_and_nowhere_else() -> None:
    writers = {
        name
        for name, template in pod_templates(rendered(KUSTOMIZE / "overlays" / "ingress"))
        if template["spec"]["serviceAccountName"] == "gpuportal-quota-writer"
    }
    assert writers == {"gpuportal-web", "gpuportal-worker-quota-requests"}


def test_the_writer_reads_what_the_reader_reads() -> None:
    """Else the doctor, run in a pod of web, would miss rights that the watch has."""
    bindings = named(rendered(KUSTOMIZE / "overlays" / "ingress"), "ClusterRoleBinding").values()
    roles: dict[str, set[str]] = {"gpuportal-reader": set(), "gpuportal-quota-writer": set()}
    for binding in bindings:
        for subject in binding["subjects"]:
            roles[subject["name"]].add(binding["roleRef"]["name"])
    assert roles["gpuportal-quota-writer"] == {*roles["gpuportal-reader"], "gpuportal-quota-writer"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlays_name_the_image_that_the_document_builds(overlay: str) -> None:
    document = (ROOT / "docs/how-to/install-in-kubernetes.md").read_text(encoding="utf-8")
    built = document.partition("docker build --tag ")[2].split()[0]
    images = {
        container["image"]
        for name, template in pod_templates(rendered(KUSTOMIZE / "overlays" / overlay))
        if name not in {"gpuportal-postgres", "gpuportal-redis"}
        for container in containers(template)
    }
    assert images == {built}


def test_the_alert_rules_are_those_of_the_command() -> None:
    """`manage.py alert_rules` writes the file anew."""
    path = KUSTOMIZE / "components" / "prometheus-operator" / "prometheus-rule.yaml"
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == prometheus_rule()


@pytest.mark.prometheus
def test_prometheus_takes_the_alert_rules(
    renders: dict[str, tuple[Manifest, ...]], tmp_path: Path
) -> None:
    (rule,) = named(renders["gateway"], "PrometheusRule").values()
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(rule["spec"]), encoding="utf-8")
    subprocess.run(  # noqa: S603 - our own words
        [find("promtool"), "check", "rules", path], check=True, capture_output=True
    )


def test_the_secret_that_is_made_has_what_pods_mount() -> None:
    made = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, ROOT / "scripts" / "make_secrets.py", "--kubernetes"],
        check=True,
        capture_output=True,
    )
    secret = msgspec.json.decode(made.stdout)
    kubernetes_validate.validate(secret, VERSIONS[0], strict=True)
    assert secret["metadata"]["name"] == "gpuportal-secrets"
    trial = rendered(KUSTOMIZE / "overlays" / "trial")
    folder = "/etc/gpuportal/secrets/"
    (settings,) = (m for m in trial if m["metadata"]["name"].startswith("gpuportal-settings"))
    files = {value.removeprefix(folder) for value in settings["data"].values() if folder in value}
    for _, template in pod_templates(trial):
        files.update(item["key"] for item in _items(template["spec"]["volumes"]))
    assert files == secret["stringData"].keys()
    assert "gpuportal-postgres" in secret["stringData"]["database-url"]
    assert {"gpuportal-postgres", "gpuportal-redis"} <= named(trial, "Service").keys()


def _items(volumes: list[Manifest]) -> list[dict[str, str]]:
    return [item for volume in volumes for item in volume.get("secret", {}).get("items", ())]

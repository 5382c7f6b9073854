"""The chart beside the Kustomize base: the same objects, values that are declared, whole blocks.

Where `helm` is in PATH or in $HELM, it is linted and rendered, and its objects are compared.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import msgspec
import pytest
import yaml

from tests.deploy.rendering import (
    KUSTOMIZE,
    ROOT,
    Manifest,
    named,
    overlay_of,
    pod_templates,
    rendered,
)

CHART = ROOT / "deploy" / "chart"
TEMPLATES = sorted((CHART / "templates").iterdir())
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in TEMPLATES}
CUSTOM = {"ServiceMonitor", "HTTPRoute", "PrometheusRule"}
# Helm makes the namespace (--create-namespace) and gives the catalog where it is in the values.
OF_ONE_ALONE = {("Namespace", "gpuportal"), ("ConfigMap", "gpuportal-catalog")}
EVERYTHING = ["ingress", "httproute", "exports-volume", "quota-writer", "prometheus-operator"]
EVERYTHING += ["embedded-databases", "grafana-dashboards"]
ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
PROGRAMS = "/opt/gpuportal-programs"
HELM = os.environ.get("HELM") or shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not in PATH, and HELM is not set")


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return found


def schema() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((CHART / "values.schema.json").read_bytes())
    return found


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, ...]:
    """Return the objects of the base with all components."""
    folder = tmp_path_factory.mktemp("everything").resolve()
    return rendered(overlay_of(EVERYTHING, folder))


def key(manifest: Manifest) -> tuple[str, str]:
    """Return kind and name, without the hash of settings and the revision of the Job."""
    name = manifest["metadata"]["name"]
    return manifest["kind"], re.sub(r"^(gpuportal-(?:settings|migrate))-\w+$", r"\1", name)


def written() -> Iterator[tuple[str, str]]:
    """Yield kind and name of each object that a template begins."""
    for text in TEXTS.values():
        for part in re.split(r"^---$", text, flags=re.MULTILINE):
            kind = re.search(r"^kind: (\w+)$", part, flags=re.MULTILINE)
            name = re.search(r"^metadata:\n  name: ([\w-]+)", part, flags=re.MULTILINE)
            if kind and name:
                yield kind[1], name[1].removesuffix("-")


def test_chart_and_base_have_the_same_objects(everything: tuple[Manifest, ...]) -> None:
    mine = list(written())
    assert len(mine) == len(set(mine))
    assert set(mine) | OF_ONE_ALONE == {key(manifest) for manifest in everything} | OF_ONE_ALONE


@pytest.mark.parametrize("name", TEXTS)
def test_every_value_that_a_template_takes_is_declared(name: str) -> None:
    known, described = values(), schema()
    for path in re.findall(r"\.Values\.([\w.]+)", TEXTS[name]):
        found: Any = known
        shape = described
        for word in path.split("."):
            assert word in found, path
            found, shape = found[word], shape["properties"][word]


def test_every_declared_value_is_taken() -> None:
    used = {path for text in TEXTS.values() for path in re.findall(r"\.Values\.([\w.]+)", text)}

    def unused(found: Any, path: str) -> Iterator[str]:
        if path in used:
            return
        if isinstance(found, dict) and found:
            for word, value in found.items():
                yield from unused(value, f"{path}.{word}".removeprefix("."))
        else:
            yield path

    assert list(unused(values(), "")) == []


def test_the_schema_takes_the_values_and_no_others() -> None:
    jsonschema.validate(values(), schema())
    for wrong in ({"web": {"replica": 2}}, {"hosts": "x"}, {"web": {"replicas": "two"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values(), **wrong}, schema())


@pytest.mark.parametrize("name", TEXTS)
def test_blocks_are_whole(name: str) -> None:
    text = TEXTS[name]
    assert "{{" not in ACTION.sub("", text)
    depth = 0
    for action in ACTION.findall(text):
        word = action.split(" ")[0]
        depth += word in {"if", "with", "range", "define"}
        depth -= word == "end"
        assert depth >= 0, action
    assert depth == 0


def test_every_partial_is_there_and_every_one_is_included() -> None:
    whole = "".join(TEXTS.values())
    defined = re.findall(r'define "([\w.]+)"', whole)
    assert set(re.findall(r'include "([\w.]+)"', whole)) == set(defined)
    assert len(defined) == len(set(defined))


@pytest.mark.parametrize("name", TEXTS)
def test_files_that_are_read_are_there(name: str) -> None:
    for path in re.findall(r'\.Files\.Get "([^"]+)"', TEXTS[name]):
        assert (CHART / path).is_file()


def test_rights_and_alert_rules_are_those_of_the_base(everything: tuple[Manifest, ...]) -> None:
    def held(name: str) -> Any:
        return yaml.safe_load((CHART / "files" / f"{name}.yaml").read_text(encoding="utf-8"))

    roles = named(everything, "ClusterRole")
    for name in ("reader", "reader-claims", "quota-writer"):
        assert held(f"{name}-rules") == roles[f"gpuportal-{name}"]["rules"]
    (rule,) = named(everything, "PrometheusRule").values()
    assert held("alert-rules") == rule["spec"]


def test_settings_and_open_ports_are_those_of_the_base(everything: tuple[Manifest, ...]) -> None:
    (settings,) = (m for m in everything if key(m) == ("ConfigMap", "gpuportal-settings"))
    mine = dict(re.findall(r'set \$settings "(\w+)" "([^"]*)"', TEXTS["_helpers.tpl"]))
    assert mine == {k: v for k, v in settings["data"].items() if k not in _CHOSEN}
    policy = named(everything, "NetworkPolicy")["gpuportal"]
    ports = [one["port"] for one in policy["spec"]["egress"][1]["ports"]]
    assert values()["networkPolicy"]["egressPorts"] == ports


def test_dashboards_are_those_of_the_base(everything: tuple[Manifest, ...]) -> None:
    held = named(everything, "ConfigMap")["gpuportal-dashboards"]
    assert held["metadata"]["labels"]["grafana_dashboard"] == "1"
    for folder in (CHART / "files" / "dashboards", ROOT / "deploy" / "grafana"):
        found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
        assert held["data"] == found, f"copy deploy/grafana/*.json to {folder}"


def test_the_admission_policy_is_that_of_the_base() -> None:
    """All but the namespaces, which are a value of the chart, and labels."""
    ours = TEXTS["quota-writer.yaml"]
    path = KUSTOMIZE / "components" / "quota-writer" / "admission-policy.yaml"
    base = path.read_text(encoding="utf-8")
    policy = base[base.index("spec:\n") : base.index("---\n")]
    namespaces = "{{ .Values.quotaWriter.namespaces | toJson | quote }}"
    assert policy.replace('expression: "[]"', f"expression: {namespaces}") in ours


def helm(*words: str) -> str:
    assert HELM is not None
    done = subprocess.run([HELM, *words], capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_helm
def test_helm_finds_nothing_wrong() -> None:
    helm("lint", "--strict", str(CHART))


def helm_template(*words: str) -> list[Manifest]:
    """Return what helm renders. Raises ValidationError where an object is not of its schema."""
    given = ("template", "gpuportal", str(CHART), "--namespace", "gpuportal")
    text = helm(*given, "--kube-version", "1.30.0", *words)
    made = [m for m in yaml.load_all(text, yaml.CSafeLoader) if m]
    for manifest in made:
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, "1.30", strict=True)
    return made


@needs_helm
def test_what_helm_renders_is_what_the_base_renders(everything: tuple[Manifest, ...]) -> None:
    switched = ["ingress", "httpRoute", "quotaWriter", "prometheusOperator", "embeddedDatabases"]
    switched += ["grafanaDashboards"]
    words = [word for name in switched for word in ("--set", f"{name}.enabled=true")]
    base = {key(m): alike(m) for m in everything if key(m) not in OF_ONE_ALONE}
    assert {key(m): alike(m) for m in helm_template(*words)} == base


NAMES = "# Teams\n\nteams:\n  - {name: vision}\n"
TAINT = [{"key": "gpu", "operator": "Exists"}]
TOKEN = {"credentials": {"name": "gpuportal-variables", "key": "GPUPORTAL_METRICS_TOKEN"}}
NOTE = {"sidecar.istio.io/inject": "false"}
POD = ("spec", "template", "spec")
WEB = ("Deployment", "gpuportal-web")
JOB = ("Job", "gpuportal-migrate")
CLAIM = ("PersistentVolumeClaim", "gpuportal-exports")
# Values, the object that shows them, the way to the field, and what is there; None: no object.
OPTIONS: dict[str, tuple[dict[str, Any], tuple[str, str], tuple[str | int, ...], Any]] = {
    "digest": (
        {"image": {"digest": "sha256:" + "a" * 64}},
        WEB,
        (*POD, "containers", 0, "image"),
        "gpuportal@sha256:" + "a" * 64,
    ),
    "large number as a setting": (
        {"settings": {"GPUPORTAL_N": 1000000}},
        ("ConfigMap", "gpuportal-settings"),
        ("data", "GPUPORTAL_N"),
        "1000000",
    ),
    "yes and no as settings": (
        {"settings": {"GPUPORTAL_HTTPS": "no"}},
        ("ConfigMap", "gpuportal-settings"),
        ("data", "GPUPORTAL_HTTPS"),
        "no",
    ),
    "catalog": (
        {"catalog": NAMES},
        ("ConfigMap", "gpuportal-catalog"),
        ("data", "catalog.yaml"),
        NAMES,
    ),
    "tolerations": ({"tolerations": TAINT}, WEB, (*POD, "tolerations"), TAINT),
    "tolerations of databases": (
        {"tolerations": TAINT, "embeddedDatabases": {"enabled": True}},
        ("StatefulSet", "gpuportal-redis"),
        (*POD, "tolerations"),
        TAINT,
    ),
    "annotations": ({"podAnnotations": NOTE}, JOB, (*POD[:2], "metadata", "annotations"), NOTE),
    "a way past PgBouncer": (
        {"migrate": {"env": [{"name": "DATABASE_URL", "value": "x"}]}},
        JOB,
        (*POD, "containers", 0, "env"),
        [{"name": "DATABASE_URL", "value": "x"}],
    ),
    "no volume": ({"exportsVolume": {"enabled": False}}, CLAIM, (), None),
    "volume of another": ({"exportsVolume": {"existingClaim": "mine"}}, CLAIM, (), None),
    "storage class": (
        {"exportsVolume": {"storageClassName": "-"}},
        CLAIM,
        ("spec", "storageClassName"),
        "-",
    ),
    "ingress": (
        {"ingress": {"className": "nginx"}},
        ("Ingress", "gpuportal"),
        ("spec", "ingressClassName"),
        "nginx",
    ),
    "no port outward but DNS": (
        {"networkPolicy": {"egressPorts": []}},
        ("NetworkPolicy", "gpuportal"),
        ("spec", "egress"),
        [{"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}],
    ),
    "no writer": (
        {"quotaWriter": {"enabled": False}},
        WEB,
        (*POD, "serviceAccountName"),
        "gpuportal-reader",
    ),
    "namespaces of the writer": (
        {"quotaWriter": {"namespaces": ["a", "b"]}},
        ("ValidatingAdmissionPolicy", "gpuportal-quota-writer"),
        ("spec", "variables", 2, "expression"),
        '["a","b"]',
    ),
    "labels of Prometheus": (
        {"prometheusOperator": {"enabled": True, "labels": {"release": "prometheus"}}},
        ("ServiceMonitor", "gpuportal"),
        ("metadata", "labels", "release"),
        "prometheus",
    ),
    "a token for Prometheus": (
        {"prometheusOperator": {"enabled": True, "authorization": TOKEN}},
        ("ServiceMonitor", "gpuportal"),
        ("spec", "endpoints", 0, "authorization"),
        TOKEN,
    ),
}


@needs_helm
@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_renders_what_it_says(option: str, tmp_path: Path) -> None:
    chosen, where, way, wanted = OPTIONS[option]
    file = tmp_path / "values.yaml"
    file.write_bytes(msgspec.json.encode(chosen))
    found: Any = {key(m): m for m in helm_template("--values", str(file))}.get(where)
    for word in way:
        found = found[word]
    assert found == wanted


@needs_helm
def test_other_clusters_have_their_kubeconfigs_and_programs(tmp_path: Path) -> None:
    programs = [{"name": "login", "image": "login:1", "command": ["cp", "/login", PROGRAMS]}]
    chosen = {"secrets": {"kubeconfigs": ["west", "7"]}, "execPrograms": programs}
    jsonschema.validate({**values(), **chosen}, schema())
    file = tmp_path / "values.yaml"
    file.write_bytes(msgspec.json.encode(chosen))
    pods = [spec["spec"] for _, spec in pod_templates(helm_template("--values", str(file)))]
    assert len(pods) == 9, "each Deployment, and the Job that needs none of it"
    for pod in filter(lambda one: "initContainers" in one, pods):
        program = pod["initContainers"][1]
        assert (program["image"], program["command"][-1]) == ("login:1", PROGRAMS)
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["7"]["secret"]["secretName"] == "7"
        mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
        assert mounts["west"] == "/etc/gpuportal/kubeconfigs/west"
        assert mounts["programs"] == PROGRAMS


@needs_helm
def test_only_pods_that_change_quotas_get_the_writers_of_other_clusters(tmp_path: Path) -> None:
    chosen = {"quotaWriter": {"kubeconfigs": ["west-writer"]}}
    jsonschema.validate({**values(), **chosen}, schema())
    file = tmp_path / "values.yaml"
    file.write_bytes(msgspec.json.encode(chosen))
    given = {
        name
        for name, spec in pod_templates(helm_template("--values", str(file)))
        if any(volume["name"] == "west-writer" for volume in spec["spec"]["volumes"])
    }
    assert given == {"gpuportal-web", "gpuportal-worker-quota-requests"}


# What an overlay or a value chooses.
_CHOSEN = {"GPUPORTAL_ALLOWED_HOSTS", "GPUPORTAL_URL"}


def alike(manifest: Manifest) -> Manifest:
    """Return an object without what Helm or Kustomize put there for themselves."""
    copy: Manifest = msgspec.json.decode(msgspec.json.encode(manifest))
    copy["metadata"] = {"name": key(manifest)[1]}
    if manifest["kind"] == "ConfigMap":
        copy["data"] = {k: v for k, v in manifest["data"].items() if k not in _CHOSEN}
    spec = copy.get("spec", {})
    if "template" in spec:
        spec["template"]["metadata"].pop("annotations", None)
    result: Manifest = _same(copy)
    return result


def _same(found: Any) -> Any:
    """Return lists of named things in order, and text with its blanks as one."""
    if isinstance(found, dict):
        kept = {k: _same(v) for k, v in found.items() if k != "app.kubernetes.io/managed-by"}
        return {k: v for k, v in kept.items() if v not in ({}, [])}
    if isinstance(found, list):
        held = [_same(value) for value in found]
        if all(isinstance(value, dict) and "name" in value for value in held):
            held.sort(key=lambda value: str(value["name"]))
        return held
    if isinstance(found, str):
        return re.sub(r"^gpuportal-settings-\w+$", "gpuportal-settings", " ".join(found.split()))
    return found

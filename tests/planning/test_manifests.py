"""Manifests of every kind as the pods that they make, and bad ones as one sentence."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apps.planning.domain.manifests.documents import MOST_CHARACTERS, ManifestError
from apps.planning.domain.manifests.kinds import KINDS
from apps.planning.domain.manifests.read import read_manifest
from apps.planning.domain.manifests.submissions import Manifest

GPU = "nvidia.com/gpu"
CONTAINER = {"name": "main", "resources": {"limits": {GPU: 8}}}
SPEC = {"containers": [CONTAINER]}
TEMPLATE = {"spec": SPEC}
REPLICAS = {
    "Master": {"replicas": 1, "template": TEMPLATE},
    "Worker": {"replicas": 3, "template": TEMPLATE},
}
OF_REPLICAS = [("master", 1, 1), ("worker", 3, 3)]
RAY = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [
        {"groupName": "big", "replicas": 2, "numOfHosts": 4, "template": TEMPLATE},
        {"groupName": "small", "minReplicas": 1, "template": TEMPLATE},
    ],
}
OF_RAY = [("head", 1, 1), ("big", 8, 4), ("small", 1, 1)]
INDEXED = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": TEMPLATE}
STEPS = {"steps": [{"computeResources": {"limits": {GPU: 1}}}]}
ARGO = {
    "nodeSelector": {"pool": "a100"},
    "templates": [{"name": "train", "container": CONTAINER}, {"name": "all", "steps": [[]]}],
}
CASES: dict[str, tuple[dict[str, Any], Sequence[tuple[str, int | None, int]]]] = {
    "Pod": (SPEC, [("", 1, 1)]),
    "Job": ({"parallelism": 4, "completions": 3, "template": TEMPLATE}, [("", 3, 1)]),
    "CronJob": ({"jobTemplate": {"spec": INDEXED}}, [("", 4, 4)]),
    "Deployment": ({"replicas": 2, "template": TEMPLATE}, [("", 2, 1)]),
    "ReplicaSet": ({"template": TEMPLATE}, [("", 1, 1)]),
    "ReplicationController": ({"template": TEMPLATE}, [("", 1, 1)]),
    "StatefulSet": ({"replicas": 0, "template": TEMPLATE}, [("", 0, 1)]),
    "DaemonSet": ({"template": TEMPLATE}, [("", None, 1)]),
    "JobSet": (
        {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": INDEXED}}]},
        [("w", 8, 8)],
    ),
    "TrainJob": (
        {"trainer": {"numNodes": 4, "resourcesPerNode": {"limits": {GPU: 8}}}},
        [("node", 4, 4)],
    ),
    **{
        kind: ({key: REPLICAS}, OF_REPLICAS)
        for kind, key in {
            "PyTorchJob": "pytorchReplicaSpecs",
            "TFJob": "tfReplicaSpecs",
            "MPIJob": "mpiReplicaSpecs",
            "XGBoostJob": "xgbReplicaSpecs",
            "MXJob": "mxReplicaSpecs",
            "PaddleJob": "paddleReplicaSpecs",
            "JAXJob": "jaxReplicaSpecs",
        }.items()
    },
    "RayCluster": (RAY, OF_RAY),
    "RayJob": ({"rayClusterSpec": RAY}, OF_RAY),
    "RayService": ({"rayClusterConfig": RAY}, OF_RAY),
    "LeaderWorkerSet": (
        {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}},
        [("leader", 2, 1), ("worker", 4, 2)],
    ),
    "Workflow": (ARGO, [("train", 1, 1)]),
    "WorkflowTemplate": (ARGO, [("train", 1, 1)]),
    "ClusterWorkflowTemplate": (ARGO, [("train", 1, 1)]),
    "CronWorkflow": ({"workflowSpec": ARGO}, [("train", 1, 1)]),
    "Task": (STEPS, [("", 1, 1)]),
    "TaskRun": ({"taskSpec": STEPS}, [("", 1, 1)]),
    "Pipeline": ({"tasks": [{"name": "fit", "taskSpec": STEPS}]}, [("fit", 1, 1)]),
    "PipelineRun": (
        {"pipelineSpec": {"tasks": [{"name": "fit", "taskSpec": STEPS}]}},
        [("fit", 1, 1)],
    ),
}


def written(kind: str, spec: object, **metadata: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"} | metadata, "spec": spec}


def pods(manifest: Manifest) -> list[tuple[str, int | None, int]]:
    return [(t.role, t.count, t.gang) for one in manifest.submissions for t in one.templates]


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_makes_the_pods_that_its_controller_makes(kind: str) -> None:
    spec, made = CASES[kind]
    as_yaml = read_manifest(yaml.safe_dump(written(kind, spec)))
    assert pods(as_yaml) == made
    assert read_manifest(json.dumps(written(kind, spec), indent="\t")) == as_yaml


@pytest.mark.parametrize(
    ("group", "pods"),
    [
        pytest.param({"replicas": 0, "minReplicas": 2, "maxReplicas": 4}, 2, id="no fewer"),
        pytest.param({"replicas": 9, "minReplicas": 0, "maxReplicas": 4}, 4, id="no more"),
        pytest.param({"replicas": 3, "maxReplicas": 2**31 - 1}, 3, id="any number"),
        pytest.param({"replicas": 3, "numOfHosts": 2, "suspend": True}, 0, id="suspended"),
    ],
)
def test_a_group_of_ray_begins_within_its_limits(group: dict[str, Any], pods: int) -> None:
    groups = [{"groupName": "w", "template": TEMPLATE, **group}]
    spec = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": groups}
    (one,) = read_manifest(yaml.safe_dump(written("RayCluster", spec))).submissions
    assert [part.count for part in one.templates] == [1, pods]


def test_an_elastic_job_starts_with_fewer_workers_than_it_would_have() -> None:
    spec = {"elasticPolicy": {"minReplicas": 2}, "pytorchReplicaSpecs": REPLICAS}
    found = read_manifest(yaml.safe_dump(written("PyTorchJob", spec)))
    assert pods(found) == [("master", 1, 1), ("worker", 3, 2)]


@pytest.mark.parametrize(
    ("least", "gang"), [pytest.param({}, 2, id="all"), pytest.param({"minAvailable": 1}, 1, id="1")]
)
def test_a_job_of_volcano_has_tasks_a_queue_and_a_scheduler(
    least: dict[str, int], gang: int
) -> None:
    tasks = [{"name": "work", "replicas": 2, "template": TEMPLATE}]
    job = {"kind": "Job", "spec": {"queue": "gpus", "tasks": tasks, **least}}
    text = yaml.safe_dump({"apiVersion": "batch.volcano.sh/v1alpha1", **job})
    (one,) = read_manifest(text).submissions
    (part,) = one.templates
    assert (part.role, part.count, part.gang) == ("work", 2, gang)
    assert (one.queue, part.spec["schedulerName"]) == ("gpus", "volcano")


def test_a_queue_and_a_priority_are_those_of_the_object_or_of_its_pods() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": "high"}
    own = read_manifest(yaml.safe_dump(written("Job", {"template": TEMPLATE}, labels=labels)))
    of_pods = {"template": {"metadata": {"labels": labels}, "spec": SPEC}}
    found = read_manifest(yaml.safe_dump(written("Deployment", of_pods, namespace="vision")))
    assert {(s.queue, s.priority_class) for s in (*own.submissions, *found.submissions)} == {
        ("main", "high")
    }
    assert found.submissions[0].namespace == "vision"


@pytest.mark.parametrize(
    ("pods", "total", "made"),
    [
        pytest.param([8, 8], "2", [(2, 2)], id="like pods"),
        pytest.param([8], "3", [(3, 3)], id="the others come later"),
        pytest.param([8, 1, 1], "3", [(1, 1), (2, 2)], id="two kinds of pods"),
        pytest.param([8], "many", [(1, 1)], id="no number"),
        pytest.param([8], "9" * 5000, [(1_000_000, 1_000_000)], id="more than can be"),
    ],
)
def test_pods_of_a_group_of_kueue_are_one_submission(
    pods: list[int], total: str, made: list[tuple[int, int]]
) -> None:
    metadata = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "both", "kueue.x-k8s.io/queue-name": "main"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": total},
    }
    texts = [
        yaml.safe_dump(
            {
                "kind": "Pod",
                "metadata": metadata | {"name": f"p{at}"},
                "spec": {"containers": [{"resources": {"limits": {GPU: gpus}}}]},
            }
        )
        for at, gpus in enumerate(pods)
    ]
    (one,) = read_manifest("---\n".join(texts)).submissions
    assert (one.name, one.queue) == ("both", "main")
    assert [(part.count, part.gang) for part in one.templates] == made


def test_a_job_of_ray_on_a_cluster_that_is_there_only_submits() -> None:
    own = {"spec": {"containers": [{"name": "submit", "resources": {"limits": {"cpu": 2}}}]}}
    for more, limits in (({}, {}), ({"submitterPodTemplate": own}, {"cpu": 2})):
        spec = {"clusterSelector": {"ray.io/cluster": "shared"}, "entrypoint": "run"} | more
        found = read_manifest(yaml.safe_dump(written("RayJob", spec)))
        (one,) = found.submissions[0].templates
        assert (one.role, one.count) == ("submitter", 1)
        assert one.spec["containers"][0]["resources"].get("limits", {}) == limits
    assert "spec.rayClusterSpec" in str(refusal(yaml.safe_dump(written("RayJob", {}))))


@pytest.mark.parametrize(("least", "gangs"), [(4, [1, 3]), (3, [1, 1]), (None, [1, 3])])
def test_a_job_of_kubeflow_is_a_gang_of_as_many_pods_as_it_says(
    least: int | None, gangs: list[int]
) -> None:
    spec: dict[str, Any] = {"pytorchReplicaSpecs": REPLICAS}
    if least is not None:
        spec["runPolicy"] = {"schedulingPolicy": {"minAvailable": least}}
    found = read_manifest(yaml.safe_dump(written("PyTorchJob", spec)))
    assert [one.gang for one in found.submissions[0].templates] == gangs


@pytest.mark.parametrize(
    ("replicas", "pods"),
    [("3", 3), ("010", 8), ("0x10", 16), ("0b11", 3), ("1_000", 1000), ("0", 0), ("+2", 2)],
)
def test_numbers_are_read_as_kubectl_does(replicas: str, pods: int) -> None:
    spec = f"replicas: {replicas}\n  template: {{spec: {{containers: [{{}}]}}}}"
    (one,) = read_manifest(f"kind: Deployment\nspec:\n  {spec}").submissions[0].templates
    assert one.count == pods


def test_several_documents_and_lists_are_read_and_other_kinds_named() -> None:
    listed = {"kind": "List", "items": [written("Pod", SPEC), written("Service", {})]}
    text = "---\n" + yaml.safe_dump_all([listed, written("Pod", SPEC)]) + "---\n"
    found = read_manifest(text)
    assert [one.kind for one in found.submissions] == ["Pod", "Pod"]
    assert found.other_kinds == ("Service",)


def test_an_object_whose_pods_another_one_tells_is_named() -> None:
    runs = [
        written("TaskRun", {"taskRef": {"name": "fit"}}),
        written("Workflow", {"workflowTemplateRef": {"name": "train"}}),
    ]
    found = read_manifest(yaml.safe_dump_all([*runs, written("Pod", SPEC)]))
    assert (len(found.submissions), found.other_kinds) == (1, ("TaskRun", "Workflow"))
    with pytest.raises(ManifestError, match="TaskRun, Workflow"):
        read_manifest(yaml.safe_dump_all(runs))


def test_claims_alone_are_asked_for_by_a_pod_that_has_nothing_else() -> None:
    devices = {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    text = yaml.safe_dump_all(
        [written("ResourceClaim", devices), written("ResourceClaimTemplate", {"spec": devices})]
    )
    found = read_manifest(text)
    uses = [one.templates[0].spec["resourceClaims"][0] for one in found.submissions]
    assert [sorted(use)[1] for use in uses] == ["resourceClaimName", "resourceClaimTemplateName"]
    assert len(found.claims) == len(found.claim_templates) == 1
    with_pod = read_manifest(text + "---\n" + yaml.safe_dump(written("Pod", SPEC)))
    assert [one.kind for one in with_pod.submissions] == ["Pod"]


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 20)
)
POD = "kind: Pod\nspec:\n  containers:\n  - resources:\n      limits: "


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        pytest.param("", 1, "", id="nothing"),
        pytest.param("kind: Pod\nspec: [1, 2", 3, "spec[2]", id="an open list"),
        pytest.param("- kind: Pod", 1, "", id="no object"),
        pytest.param("kind: Pod\nkind: Pod", 2, "kind", id="a key twice"),
        pytest.param("a: !!python/object/apply:os.getcwd []\nb: 1", 1, "kind", id="harmless list"),
        pytest.param("a: !!python/name:os.getcwd x", 1, "a", id="a tag that makes objects"),
        pytest.param("a: &b [*b]", 1, "a[0]", id="an alias of itself"),
        pytest.param(BOMB, 5, "a4[3]", id="a billion laughs"),
        pytest.param("a: " + "[" * 100_000, 1, "a" + "[0]" * 63, id="very deep"),
        pytest.param("x" * (MOST_CHARACTERS + 1), 1, "", id="very long"),
        pytest.param("---\na: 1\n" * 101, 203, "", id="very many documents"),
        pytest.param("kind: Pod\nspec: {name: \0}", 1, "", id="a NUL"),
        pytest.param("kind: Pod\nspec: \ud800", 1, "", id="half a character"),
        pytest.param("kind: ConfigMap", 1, "kind", id="no pods"),
        pytest.param("spec: {}", 1, "kind", id="no kind"),
        pytest.param("kind: Pod\nspec: 3", 2, "spec", id="no spec"),
        pytest.param(
            "kind: Job\nspec:\n  parallelism: -1", 3, "spec.parallelism", id="less than 0"
        ),
        pytest.param(
            "kind: Job\nspec:\n  parallelism: many", 3, "spec.parallelism", id="no number"
        ),
        pytest.param("kind: Job\nspec:\n  backoffLimit: 1", 2, "spec.template", id="no template"),
        pytest.param(
            POD + f"{{{GPU}: 1.5}}", 5, f"spec.containers[0].resources.limits.{GPU}", id="1.5 GPUs"
        ),
        pytest.param(
            POD + "{cpu: 4 cores}", 5, "spec.containers[0].resources.limits.cpu", id="no quantity"
        ),
        pytest.param(
            POD + f"{{{GPU}: 1e30}}", 5, f"spec.containers[0].resources.limits.{GPU}", id="too many"
        ),
        pytest.param(
            f"kind: Pod\nspec:\n  containers: [{{}}]\n  resources:\n    limits: {{{GPU}: 2}}",
            5,
            f"spec.resources.limits.{GPU}",
            id="GPUs of the pod as a whole",
        ),
        pytest.param(
            f"kind: Pod\nspec:\n  containers:\n  - resources: {{requests: {{{GPU}: 1}}}}",
            4,
            f"spec.containers[0].resources.requests.{GPU}",
            id="GPUs without a limit",
        ),
        pytest.param(
            "kind: Pod\nspec:\n  nodeSelector: {gpu: true}\n  containers: [{}]",
            3,
            "spec.nodeSelector.gpu",
            id="a label that is no text",
        ),
        pytest.param(
            "kind: Pod\nmetadata:\n  annotations: {gpu-fraction: 0.5}\nspec:\n  containers: [{}]",
            3,
            "metadata.annotations.gpu-fraction",
            id="an annotation that is no text",
        ),
    ],
)
def test_a_bad_manifest_gets_one_sentence_with_line_and_field(
    text: str, line: int, field: str
) -> None:
    with pytest.raises(ManifestError) as raised:
        read_manifest(text)
    error = raised.value
    assert (error.line, error.field) == (line, field)
    assert str(error) == f"Line {line}{', ' * bool(field)}{field}: {error.problem}."
    assert "\n" not in str(error)


GOOD = [yaml.safe_dump(written(kind, CASES[kind][0])) for kind in KINDS]
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
)


@st.composite
def changed_objects(draw: st.DrawFn) -> str:
    """Return a manifest in which some value is another, of any type."""
    whole: Any = yaml.safe_load(draw(st.sampled_from(GOOD)))
    at, key = whole, draw(st.sampled_from(sorted(whole)))
    while isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
        at = at[key]
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
    at[key] = draw(ODD)
    return yaml.safe_dump(whole)


@st.composite
def cut_texts(draw: st.DrawFn) -> str:
    """Return a manifest with some of its characters gone or replaced."""
    text = draw(st.sampled_from(GOOD))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 40)))
    return text[:start] + draw(st.text(max_size=8)) + text[end:]


@settings(max_examples=500, deadline=None)
@given(changed_objects())
@example("kind: JAXJob\nspec:\n  jaxReplicaSpecs:\n    ? ''\n    : null\n")
def test_a_changed_object_is_read_or_refused_with_its_line_and_field(text: str) -> None:
    error = refusal(text)
    if error is None:
        return
    assert error.field
    assert str(error) == f"Line {error.line}, {error.field}: {error.problem}."
    # What is missing is reported where the nearest that is there begins.
    begins = beginning(yaml.safe_load(text), error.field)
    assert begins in text.splitlines()[error.line - 1]
    assert begins or error.line == 1


def refusal(text: str) -> ManifestError | None:
    try:
        read_manifest(text)
    except ManifestError as error:
        return error
    return None


def beginning(whole: Any, field: str) -> str:
    """Return how the innermost part of a field begins that a document has; empty without any."""
    if isinstance(whole, dict):
        for key, value in whole.items():
            rest = field.removeprefix(str(key))
            if (not key or rest != field) and (not rest or rest[0] in ".["):
                # YAML quotes odd keys, and may write an empty one without its colon.
                plain = re.fullmatch(r"[a-zA-Z][\w./-]+", str(key))
                own = f"{key}:" if plain else ":" if key else "''"
                return beginning(value, rest.removeprefix(".")) or own if rest else own
    if isinstance(whole, list) and (found := re.match(r"\[(\d+)\](\.?)", field)):
        if (at := int(found[1])) >= len(whole):
            return ""
        rest = field[found.end() :]
        return (beginning(whole[at], rest) if rest or found[2] else "") or "- "
    return ""


@settings(max_examples=500, deadline=None)
@given(st.one_of(changed_objects(), cut_texts(), st.text()))
def test_a_fuzzed_manifest_is_read_or_gets_a_sentence(text: str) -> None:
    error = refusal(text)
    if error is None:
        assert read_manifest(text).submissions
    else:
        assert str(error).startswith(f"Line {error.line}")
        assert 1 <= error.line <= len(text.splitlines()) + 2

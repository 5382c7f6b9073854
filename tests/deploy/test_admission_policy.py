"""What the API server lets the account that changes quotas do: its expressions, evaluated."""

from typing import Any

import cel
import pytest

from tests.deploy.rendering import KUSTOMIZE, named, rendered

GPU, MIG = "requests.nvidia.com/gpu", "requests.nvidia.com/mig-1g.10gb"
WRITER = "system:serviceaccount:gpuportal:gpuportal-quota-writer"


def policy() -> dict[str, Any]:
    found = named(rendered(KUSTOMIZE / "overlays" / "ingress"), "ValidatingAdmissionPolicy")
    spec: dict[str, Any] = found["gpuportal-quota-writer"]["spec"]
    return spec


def denials(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    *,
    resource: str = "resourcequotas",
    namespaces: str = "[]",
) -> list[str]:
    """Return why the API server would refuse to make `old` into `new`."""
    request = {
        "operation": "UPDATE" if old else "CREATE",
        "namespace": "vision",
        "resource": {"resource": resource},
        "userInfo": {"username": WRITER},
    }
    spec = policy()
    context = {"request": request, "oldObject": old, "object": new, "variables": {}}
    variables = dict[str, Any]()
    for variable in spec["variables"]:
        expression = variable["expression"]
        if variable["name"] == "namespaces":
            expression = namespaces
        context["variables"] = variables
        variables[variable["name"]] = cel.evaluate(expression, context)
    found = []
    for validation in spec["validations"]:
        try:
            holds = cel.evaluate(validation["expression"], context)
        except (RuntimeError, ValueError, TypeError, KeyError):
            holds = False  # failurePolicy: Fail
        if not holds:
            found.append(validation["message"])
    return found


def quota(*, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    hard = {GPU: "8", MIG: "2", "cpu": "4"} | spec.pop("hard", {})
    metadata = {"name": "gpus", "namespace": "vision", "labels": labels or {"team": "vision"}}
    return {"metadata": metadata, "spec": {"hard": hard, **spec}}


@pytest.mark.parametrize("changed", [{GPU: "9"}, {MIG: "1"}, {GPU: "0", MIG: "0"}, {}])
def test_amounts_of_gpus_may_be_changed(changed: dict[str, str]) -> None:
    assert denials(quota(), quota(hard=changed)) == []


def without(key: str) -> dict[str, Any]:
    made = quota()
    del made["spec"]["hard"][key]
    return made


REFUSED = {
    "another key": quota(hard={"cpu": "5"}),
    "another key beside a GPU": quota(hard={GPU: "9", "cpu": "5"}),
    "a key that is new": quota(hard={"pods": "5"}),
    "a GPU key that is new": quota(hard={"requests.nvidia.com/mig-7g.80gb": "1"}),
    "a key taken away": without("cpu"),
    "a GPU key taken away": without(GPU),
    "a key that only looks like it": quota(hard={"limits.nvidia.com/gpu": "1"}),
    "scopes": quota(scopes=["BestEffort"]),
    "a label": quota(labels={"team": "speech"}),
}


@pytest.mark.parametrize("new", REFUSED.values(), ids=REFUSED)
def test_nothing_else_of_a_quota_may_be_changed(new: dict[str, Any]) -> None:
    assert denials(quota(), new) != []


def test_no_quota_may_be_made() -> None:
    assert denials(None, quota()) != []


@pytest.mark.parametrize(("named_ones", "allowed"), [('["vision"]', True), ('["speech"]', False)])
def test_namespaces_can_be_named(named_ones: str, *, allowed: bool) -> None:
    found = denials(quota(), quota(hard={GPU: "9"}), namespaces=named_ones)
    assert found == ([] if allowed else ["the portal may not change quotas in this namespace"])


def queue(**changed: str) -> dict[str, Any]:
    gpu = {"name": "nvidia.com/gpu", "nominalQuota": "8", "borrowingLimit": "2"}
    cpu = {"name": "cpu", "nominalQuota": "64"}
    gpu |= {k: v for k, v in changed.items() if k in gpu or k == "lendingLimit"}
    cpu["nominalQuota"] = changed.get("cpu", cpu["nominalQuota"])
    flavor = {"name": changed.get("flavor", "a100"), "resources": [cpu, gpu]}
    group = {"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [flavor]}
    cohort = changed.get("cohort", "all")
    return {"metadata": {"name": "q"}, "spec": {"cohort": cohort, "resourceGroups": [group]}}


def test_the_nominal_quota_of_gpus_may_be_changed() -> None:
    assert denials(queue(), queue(nominalQuota="9"), resource="clusterqueues") == []


@pytest.mark.parametrize(
    "changed",
    [
        {"borrowingLimit": "3"},
        {"lendingLimit": "3"},
        {"cpu": "65"},
        {"cohort": "other"},
        {"flavor": "h100"},
        {"nominalQuota": "9", "cpu": "65"},
    ],
    ids=lambda changed: "+".join(changed),
)
def test_nothing_else_of_a_cluster_queue_may_be_changed(changed: dict[str, str]) -> None:
    assert denials(queue(), queue(**changed), resource="clusterqueues") != []


def groups(*names: str) -> dict[str, Any]:
    """Return a queue with a group for each of `RESOURCE:FLAVOR,FLAVOR`."""
    made = []
    for name in names:
        resource, _, flavors = name.partition(":")
        amounts = [{"name": resource, "nominalQuota": "8"}]
        each = [{"name": flavor, "resources": amounts} for flavor in flavors.split(",")]
        made.append({"coveredResources": [resource], "flavors": each})
    return {"metadata": {"name": "q"}, "spec": {"resourceGroups": made}}


@pytest.mark.parametrize(
    "changed",
    [
        ("cpu:any", "nvidia.com/gpu:h100,a100"),
        ("cpu:any", "nvidia.com/gpu:a100,a100"),
        ("nvidia.com/gpu:a100,h100", "cpu:any"),
        ("nvidia.com/gpu:a100,h100", "nvidia.com/gpu:a100,h100"),
    ],
    ids=["flavors moved", "flavor replaced", "groups moved", "group replaced"],
)
def test_groups_and_flavors_stay_as_they_are(changed: tuple[str, ...]) -> None:
    before = groups("cpu:any", "nvidia.com/gpu:a100,h100")
    assert denials(before, before, resource="clusterqueues") == []
    assert denials(before, groups(*changed), resource="clusterqueues") != []


@pytest.mark.parametrize("field", ["capability", "deserved"])
def test_of_a_volcano_queue_gpus_may_be_changed_alone(field: str) -> None:
    def made(gpus: str, cpu: str = "64", weight: int = 1) -> dict[str, Any]:
        amounts = {"nvidia.com/gpu": gpus, "cpu": cpu}
        return {"metadata": {"name": "q"}, "spec": {field: amounts, "weight": weight}}

    assert denials(made("8"), made("9"), resource="queues") == []
    assert denials(made("8"), made("8", cpu="65"), resource="queues") != []
    assert denials(made("8"), made("8", weight=2), resource="queues") != []


def test_others_are_not_asked() -> None:
    (condition,) = policy()["matchConditions"]

    def asked(name: str) -> bool:
        request = {"userInfo": {"username": name}}
        return bool(cel.evaluate(condition["expression"], {"request": request}))

    assert asked(WRITER)
    assert not asked("system:serviceaccount:gpuportal:gpuportal-reader")
    assert not asked("ada:gpuportal-quota-writer")

"""Changes of the fault scenarios through the API: as a real server takes and refuses them."""

import json
from typing import Any

import pytest

from tests.simulator.applying import Kube
from tests.simulator.client import Served, serving, with_query
from tests.simulator.only_faults import OnlyFaults, at_minute, faults_once

GPU = "nvidia.com/gpu"
QUOTA = "/api/v1/namespaces/speech-lab/resourcequotas/gpus"
FIELD = "/spec/hard/requests.nvidia.com~1gpu"
JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
Object = dict[str, Any]


@pytest.fixture(scope="module")
def only_faults() -> OnlyFaults:
    return faults_once()


def replaced(old: str, new: str) -> list[Object]:
    return [
        {"op": "test", "path": FIELD, "value": old},
        {"op": "replace", "path": FIELD, "value": new},
    ]


def send(client: Served, method: str, path: str, body: Any, kind: str) -> tuple[int, Object]:
    return Kube(client).send(method, path, body, kind)


def test_a_quota_is_patched_with_its_owner_and_version(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(3)) as client:
        before = client.get(QUOTA)
        path = with_query(QUOTA, fieldManager="gpuportal")
        status, after = send(client, "PATCH", path, replaced("2", "5"), JSON_PATCH)

        assert status == 200
        assert after["spec"]["hard"] == {f"requests.{GPU}": "5"}
        assert int(after["metadata"]["resourceVersion"]) > int(
            before["metadata"]["resourceVersion"]
        )
        (owner,) = after["metadata"]["managedFields"]
        assert (owner["manager"], owner["operation"]) == ("gpuportal", "Update")
        assert owner["fieldsV1"] == {"f:spec": {"f:hard": {f"f:requests.{GPU}": {}}}}
        now = client.get(QUOTA)
        assert now["status"]["hard"] == {f"requests.{GPU}": "5"}
        assert now["metadata"]["managedFields"] == after["metadata"]["managedFields"]


def test_another_manager_takes_the_field_over(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(3)) as client:
        for manager, old, new in (("a", "2", "5"), ("b", "5", "6")):
            path = with_query(QUOTA, fieldManager=manager)
            send(client, "PATCH", path, replaced(old, new), JSON_PATCH)

        owners = client.get(QUOTA)["metadata"]["managedFields"]
        # As a real server does: the map stays with who was there before, the key does not.
        assert [(owner["manager"], owner["fieldsV1"]["f:spec"]["f:hard"]) for owner in owners] == [
            ("a", {}),
            ("b", {f"f:requests.{GPU}": {}}),
        ]


def test_a_dry_run_changes_nothing(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(3)) as client:
        before = client.get(QUOTA)
        path = with_query(QUOTA, dryRun="All", fieldManager="gpuportal")
        status, told = send(client, "PATCH", path, replaced("2", "5"), JSON_PATCH)

        assert (status, told["spec"]["hard"][f"requests.{GPU}"]) == (200, "5")
        assert client.get(QUOTA) == before


@pytest.mark.parametrize(
    ("body", "kind", "code", "reason", "message"),
    [
        pytest.param(replaced("9", "5"), JSON_PATCH, 422, "Invalid",
                     "the server rejected our request due to an error in our request",
                     id="a test that fails"),
        pytest.param({"metadata": {"resourceVersion": "1"}}, MERGE, 409, "Conflict",
                     'Operation cannot be fulfilled on resourcequotas "gpus": the object has been '
                     "modified; please apply your changes to the latest version and try again",
                     id="a stale version"),
        pytest.param(replaced("2", "-1"), JSON_PATCH, 422, "Invalid",
                     f'ResourceQuota "gpus" is invalid: spec.hard[requests.{GPU}]: Invalid value: '
                     '"-1": must be greater than or equal to 0', id="a negative limit"),
        pytest.param(replaced("2", "lots"), JSON_PATCH, 400, "BadRequest",
                     'ResourceQuota in version "v1" cannot be handled as a ResourceQuota: '
                     "quantities must match the regular expression "
                     "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'", id="no quantity"),
        pytest.param({}, "text/plain", 415, "UnsupportedMediaType", None, id="a media type"),
    ],
)  # fmt: skip
def test_a_quota_patch_is_refused_as_a_server_does(
    only_faults: OnlyFaults, body: Any, kind: str, code: int, reason: str, message: str | None
) -> None:
    with serving(only_faults, at_minute(3)) as client:
        before = client.get(QUOTA)
        status, told = send(client, "PATCH", QUOTA, body, kind)

        assert (status, told["kind"], told["code"], told["reason"]) == (
            code, "Status", code, reason,
        )  # fmt: skip
        assert message in {None, told["message"]}
        assert client.get(QUOTA) == before


def test_what_is_not_of_the_faults_cannot_be_changed(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(3)) as client:
        path = "/api/v1/namespaces/elsewhere/resourcequotas/gpus"
        status, told = send(client, "PATCH", path, {}, MERGE)

        assert (status, told["reason"]) == (403, "Forbidden")
        assert client.raw("/api/v1/namespaces/elsewhere/pods")[0] == 200


def test_a_pod_over_quota_is_refused(only_faults: OnlyFaults) -> None:
    pod = {
        "metadata": {"name": "x"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "i",
                    "resources": {"requests": {GPU: "9"}, "limits": {GPU: "9"}},
                }
            ]
        },
    }
    with serving(only_faults, at_minute(3)) as client:
        path = "/api/v1/namespaces/speech-lab/pods"
        status, told = send(client, "POST", path, pod, "application/json")

        assert status == 403
        assert told["message"] == (
            f'pods "x" is forbidden: exceeded quota: gpus, requested: requests.{GPU}=9, '
            f"used: requests.{GPU}=0, limited: requests.{GPU}=2"
        )


def test_what_is_there_already_is_not_made_again(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(12)) as client:
        pod = client.get("/api/v1/namespaces/robotics-lab/pods/simulate")
        path = "/api/v1/namespaces/robotics-lab/pods"
        status, told = send(client, "POST", path, pod, "application/json")

        assert (status, told["reason"]) == (409, "AlreadyExists")


def test_a_pods_selector_cannot_be_changed(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(12)) as client:
        path = "/api/v1/namespaces/robotics-lab/pods/wrong-rack"
        patch = {"spec": {"nodeSelector": None}}
        status, told = send(client, "PATCH", path, patch, MERGE)

        assert (status, told["reason"]) == (422, "Invalid")
        assert "pod updates may not change fields other than" in told["message"]


def test_a_watch_tells_a_change_and_what_follows_at_once(only_faults: OnlyFaults) -> None:
    """The clock stands still: what comes, comes because of the change."""
    with serving(only_faults, at_minute(28)) as client:
        listed = client.get("/api/v1/pods")
        path = with_query(
            "/api/v1/pods", watch="true",
            resourceVersion=listed["metadata"]["resourceVersion"], timeoutSeconds=20,
        )  # fmt: skip
        with client.open(path) as stream:
            taints = [{"key": GPU, "value": "present", "effect": "NoSchedule"}]
            patch = {"spec": {"unschedulable": None, "taints": taints}}
            status, _ = send(client, "PATCH", "/api/v1/nodes/a10-05", patch, MERGE)
            lines = (json.loads(line) for line in stream)
            told = next(
                one for one in lines if one["object"]["metadata"]["name"] == "after-maintenance"
            )

        assert status == 200
        assert told["type"] == "MODIFIED"
        assert told["object"]["spec"]["nodeName"] == "a10-05"
        assert int(told["object"]["metadata"]["resourceVersion"]) > int(
            listed["metadata"]["resourceVersion"]
        )


def test_a_list_and_a_watch_miss_nothing_between_changes(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(3)) as client:
        seen = [client.get("/api/v1/resourcequotas")["metadata"]["resourceVersion"]]
        for old, new in (("2", "3"), ("3", "4"), ("4", "5")):
            send(client, "PATCH", QUOTA, replaced(old, new), JSON_PATCH)
            seen.append(client.get("/api/v1/resourcequotas")["metadata"]["resourceVersion"])
        path = with_query("/api/v1/resourcequotas", watch="true", resourceVersion=seen[1],
                          timeoutSeconds=1)  # fmt: skip
        with client.open(path) as stream:
            told = [json.loads(line)["object"] for line in stream]

        assert sorted(seen, key=int) == seen
        assert {one["spec"]["hard"][f"requests.{GPU}"] for one in told} == {"4", "5"}


def test_changes_outlast_a_cycle_and_the_script_goes_on(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(3)) as client:
        send(client, "PATCH", QUOTA, replaced("2", "5"), JSON_PATCH)
        client.clock.advance(120 * 60 + 25 * 60)
        quota = client.get(QUOTA)
        pods = client.get("/api/v1/namespaces/speech-lab/pods")["items"]

        assert quota["spec"]["hard"] == {f"requests.{GPU}": "5"}
        assert len([p for p in pods if p["metadata"]["name"].startswith("voice-serve")]) == 3


def test_without_changes_the_live_faults_would_be_as_written(only_faults: OnlyFaults) -> None:
    """A change of nothing forks the faults; what is shown stays the same, cycle after cycle."""
    paths = ("/api/v1/pods", "/api/v1/nodes", "/apis/kueue.x-k8s.io/v1beta2/workloads")
    with (
        serving(only_faults, at_minute(50)) as forked,
        serving(only_faults, at_minute(50)) as plain,
    ):
        send(forked, "PATCH", QUOTA, {"metadata": {"labels": {"touched": "yes"}}}, MERGE)
        for minutes in (0, 33, 70):
            for client in (forked, plain):
                client.clock.advance(60 * minutes)
            for path in paths:
                names = [
                    {(i["metadata"]["uid"], i["metadata"]["name"], json.dumps(i["spec"]))
                     for i in client.get(path)["items"]}
                    for client in (forked, plain)
                ]  # fmt: skip
                assert names[0] == names[1]


def test_the_script_leaves_a_quota_alone_that_somebody_set_back(only_faults: OnlyFaults) -> None:
    with serving(only_faults, at_minute(3)) as client:
        for old, new in (("2", "5"), ("5", "2")):
            send(client, "PATCH", QUOTA, replaced(old, new), JSON_PATCH)
        client.clock.advance(60 * 60)

        assert client.get(QUOTA)["spec"]["hard"] == {f"requests.{GPU}": "2"}

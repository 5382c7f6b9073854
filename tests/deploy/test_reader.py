"""What the account that reads clusters may do: all that the portal asks for, and nothing more."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from apps.clusters.domain.pods.ledger import PLURALS
from apps.clusters.ports import Listing, SourceHealth
from apps.clusters.services.watch.collections import (
    _GROUPS,
    AUTOSCALER_STATUS,
    COLLECTIONS,
    EVERYWHERE,
    TEMPLATES,
    plural_of,
)
from apps.clusters.services.watch.owner_lookup import LIST_FROM, OwnerLookup
from apps.operations.domain.observations import explaining
from tests.servers import ROOT

READER = ROOT / "deploy" / "rbac-reader.yaml"
TOKEN = ROOT / "deploy" / "rbac-reader-token.yaml"


def reader_rules() -> list[dict[str, Any]]:
    manifests = list(yaml.safe_load_all(READER.read_text(encoding="utf-8")))
    roles = [manifest for manifest in manifests if manifest["kind"] in {"ClusterRole", "Role"}]
    return [rule for role in roles for rule in role["rules"]]


def test_the_reader_may_only_read() -> None:
    assert reader_rules()
    for rule in reader_rules():
        assert set(rule["verbs"]) <= {"get", "list", "watch"}
        assert "*" not in rule["resources"] + rule["apiGroups"]
        assert "secrets" not in rule["resources"]
        # A ConfigMap may hold anything: one is read, by its name.
        if "configmaps" in rule["resources"]:
            assert rule["resources"] == ["configmaps"]
            assert rule["resourceNames"] == ["cluster-autoscaler-status"]


def test_the_reader_may_follow_the_status_of_cluster_autoscaler() -> None:
    right, *others = {right._replace(verb="") for right in explaining([AUTOSCALER_STATUS])}
    assert others == []
    (rule,) = (rule for rule in reader_rules() if right.resource in rule["resources"])
    assert (rule["apiGroups"], rule["resourceNames"]) == ([right.group], [right.name])
    assert right.namespace == "kube-system"
    assert {one.verb for one in explaining([AUTOSCALER_STATUS])} <= set(rule["verbs"])


def reader_may() -> dict[str, set[str]]:
    """Return resource → verbs, the core group's resources without a group."""
    return {
        f"{resource}.{group}".rstrip("."): set(rule["verbs"])
        for rule in reader_rules()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.mark.parametrize("path", COLLECTIONS)
def test_the_reader_may_follow_what_watch_follows(path: str) -> None:
    resource = path.removeprefix("/api/v1/")
    assert reader_may()[resource] >= {"list", "watch"}


class NotingSource:
    """A cluster that answers nothing and notes which verbs it is asked for, by resource."""

    def __init__(self) -> None:
        self.asked: dict[str, set[str]] = defaultdict(set)

    def get(self, path: str) -> None:
        self._note("get", re.sub(r"/[^/]+$", "", path))

    def list(self, path: str, **_: object) -> Listing:
        self._note("list", path)
        return Listing(resource_version="1", items=[])

    def version(self, path: str) -> str:
        raise AssertionError("owners are not watched")

    def watch(self, path: str, *, resource_version: str) -> Iterator[Any]:
        raise AssertionError("owners are not watched")

    def health(self) -> SourceHealth:
        raise AssertionError("nobody asks for it here")

    def close(self) -> None:
        pass

    def _note(self, verb: str, path: str) -> None:
        parts = re.sub(r"/namespaces/[^/]+", "", path).strip("/").split("/")
        group = parts[1] if parts[0] == "apis" else ""
        self.asked[f"{parts[-1]}.{group}".rstrip(".")].add(verb)


def owned_pods(kind: str, api_version: str, count: int) -> list[dict[str, Any]]:
    def owner(number: int) -> dict[str, Any]:
        name = {"kind": kind, "apiVersion": api_version, "name": f"o{number}", "uid": f"o{number}"}
        return {**name, "controller": True}

    return [
        {
            "metadata": {
                "uid": f"p{number}",
                "name": f"p{number}",
                "namespace": "vision",
                "ownerReferences": [owner(number)],
            }
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [1, LIST_FROM], ids=["one", "many"])
@pytest.mark.parametrize(
    ("kind", "api_version"),
    [
        ("ReplicationController", "v1"),
        ("ReplicaSet", "apps/v1"),
        ("Deployment", "apps/v1"),
        ("StatefulSet", "apps/v1"),
        ("DaemonSet", "apps/v1"),
        ("Job", "batch/v1"),
        ("CronJob", "batch/v1"),
    ],
)
def test_the_reader_may_read_owners_as_the_portal_does(
    kind: str, api_version: str, count: int
) -> None:
    source = NotingSource()
    OwnerLookup(source).top_owners(owned_pods(kind, api_version, count))
    assert source.asked
    for resource, verbs in source.asked.items():
        assert reader_may()[resource] >= verbs


def rights() -> frozenset[tuple[str, str]]:
    """Return (API group, plural) of all that is listed and watched to explain waiting."""
    everywhere = {
        (path.split("/")[2] if path.startswith("/apis/") else "", plural_of(path))
        for path in EVERYWHERE
    }
    optional = {(group.name, plural) for group in _GROUPS for plural in group.kinds}
    return frozenset(everywhere | optional | {("resource.k8s.io", TEMPLATES)})


def test_the_reader_may_get_and_list_every_kind_of_owner() -> None:
    kinds = reader_may().keys() - {path.removeprefix("/api/v1/") for path in COLLECTIONS}
    assert set(PLURALS.values()) <= {kind.partition(".")[0] for kind in kinds}
    watched = {f"{plural}.{group}".rstrip(".") for group, plural in rights()}
    alone = sorted(kinds - watched)
    assert [kind for kind in alone if reader_may()[kind] != {"get", "list"}] == []


@pytest.mark.parametrize(("group", "plural"), sorted(rights()))
def test_the_reader_may_follow_what_explains_pending(group: str, plural: str) -> None:
    assert reader_may()[f"{plural}.{group}".rstrip(".")] == {"get", "list", "watch"}


def test_a_token_that_does_not_expire_is_made_only_where_asked_for() -> None:
    kinds = {m["kind"] for m in yaml.safe_load_all(READER.read_text(encoding="utf-8"))}
    assert "Secret" not in kinds
    (secret,) = yaml.safe_load_all(TOKEN.read_text(encoding="utf-8"))
    (account,) = (
        manifest["metadata"]
        for manifest in yaml.safe_load_all(READER.read_text(encoding="utf-8"))
        if manifest["kind"] == "ServiceAccount"
    )
    named = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    assert (named, secret["metadata"]["namespace"]) == (account["name"], account["namespace"])

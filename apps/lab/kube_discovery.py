"""What the API server says of itself: version, groups and resources."""

from collections.abc import Mapping

from apps.lab.kube_entities import COLLECTIONS

_VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "2026-08-21T11:29:11Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def discovery(path: str) -> object | None:
    """Return the discovery document of a path, None when it is none."""
    return _DOCUMENTS.get(path.rstrip("/"))


def _group(name: str) -> dict[str, object]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(group_version: str) -> dict[str, object]:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": [
            {
                "name": collection.plural,
                "singularName": collection.kind.lower(),
                "namespaced": collection.namespaced,
                "kind": collection.kind,
                "verbs": ["get", "list", "watch"],
            }
            for collection in COLLECTIONS
            if collection.group_version == group_version
        ],
    }


def _group_document(name: str) -> dict[str, object]:
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


_DOCUMENTS: Mapping[str, object] = {
    "/version": _VERSION,
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group("apps"), _group("batch")],
    },
    "/apis/apps": _group_document("apps"),
    "/apis/batch": _group_document("batch"),
    "/api/v1": _resources("v1"),
    "/apis/apps/v1": _resources("apps/v1"),
    "/apis/batch/v1": _resources("batch/v1"),
}

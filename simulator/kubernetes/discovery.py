"""What the API server says of itself: version, groups and resources."""

from collections.abc import Mapping, Sequence

from simulator.kubernetes.entities import Collection

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


def documents(collections: Sequence[Collection]) -> Mapping[str, object]:
    """Return the discovery document of each path of a server with these collections."""
    versions = dict.fromkeys(collection.group_version for collection in collections)
    groups = [version for version in versions if "/" in version]
    return {
        "/version": _VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(version) for version in groups],
        },
        **{f"/apis/{one.partition('/')[0]}": _group_document(one) for one in groups},
        **{
            ("/api/v1" if version == "v1" else f"/apis/{version}"): _resources(version, collections)
            for version in versions
        },
    }


def _group(group_version: str) -> dict[str, object]:
    name, _, short = group_version.partition("/")
    version = {"groupVersion": group_version, "version": short}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(group_version: str, collections: Sequence[Collection]) -> dict[str, object]:
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
            for collection in collections
            if collection.group_version == group_version
        ],
    }


def _group_document(group_version: str) -> dict[str, object]:
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group_version)}

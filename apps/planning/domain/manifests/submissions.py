"""What a manifest submits: the pods of each object, and the claims beside them."""

from typing import Any

from msgspec import Struct, field

from apps.clusters.domain.kube_json import JsonObject, mapping, text, words
from apps.planning.domain.manifests.documents import Document, ManifestError, Path

MOST_PODS = 1_000_000
_POD_NAME = ("metadata", "name")


class PodTemplate(Struct, frozen=True):
    """Pods of one kind of an object: their spec as Kubernetes writes it, and how many.

    `role` tells the kinds of an object apart; empty where it has one. `count` None: one pod on
    each node that fits, as of a DaemonSet. `gang`: how many of them start together or not at all;
    1 where each starts by itself; `step` of them at once come after these. `notes`
    are sentences about what of them is not counted.
    """

    spec: JsonObject
    metadata: JsonObject = field(default_factory=dict)
    count: int | None = 1
    role: str = ""
    gang: int = 1
    step: int = 1
    notes: tuple[str, ...] = ()


class Submission(Struct, frozen=True):
    """An object that makes pods. Its `namespace` may be empty.

    `labels` and `annotations` are those by which queues are named: its own and its templates'.
    `parallel`: its templates run at the same time; otherwise one after the other. `together` is how
    many pods of all templates start together at least; 0 where nothing tells.
    """

    kind: str
    name: str
    namespace: str
    templates: tuple[PodTemplate, ...]
    metadata: JsonObject = field(default_factory=dict)
    queue: str = ""
    priority_class: str = ""
    parallel: bool = True
    suspended: bool = False
    together: int = 0


class Manifest(Struct, frozen=True):
    """What a text submits. `claims` and `claim_templates` are as they were written.

    `other_kinds` make no pods, or pods that it does not have; they were not looked at.
    """

    submissions: tuple[Submission, ...]
    claims: tuple[JsonObject, ...] = ()
    claim_templates: tuple[JsonObject, ...] = ()
    other_kinds: tuple[str, ...] = ()


class Reader:
    """Reads fields of a document where each must have its type. Raises ManifestError."""

    def __init__(self, document: Document, at: Path = ()) -> None:
        self._document = document
        self._at = at
        found: Any = document.body
        for key in at:
            found = found[key]
        self.value = found

    def error(self, problem: str, *path: str | int) -> ManifestError:
        """Return an error of a field below."""
        return self._document.error(problem, *self._at, *path)

    def at(self, *path: str | int) -> "Reader":
        """Return the reader of a field that is there."""
        return Reader(self._document, (*self._at, *path))

    def required(self, *path: str) -> "Reader":
        """Return the reader of an object that must be there."""
        found = self._get(path)
        if not isinstance(found, dict):
            raise self.error("is missing" if found is None else "an object is expected", *path)
        return self.at(*path)

    def maybe(self, *path: str) -> "Reader | None":
        """Return the reader of an object; None where there is none."""
        return None if self._get(path) is None else self.required(*path)

    def objects(self, *path: str) -> "list[Reader]":
        """Return the readers of the objects of a list; none where there is no list."""
        found = self._get(path)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self.error("a list is expected", *path)
        for at, one in enumerate(found):
            if not isinstance(one, dict):
                raise self.error("an object is expected", *path, at)
        return [self.at(*path, at) for at in range(len(found))]

    def items(self, *path: str) -> "list[tuple[str, Reader]]":
        """Return the readers of the objects of an object, by key; none where there is none."""
        found = self.maybe(*path)
        if found is None or not isinstance(found.value, dict):
            return []
        for key, one in found.value.items():
            if not isinstance(one, dict):
                raise found.error("an object is expected", key)
        return [(str(key), found.at(key)) for key in found.value]

    def count(self, *path: str, default: int = 1) -> int:
        """Return a number of pods."""
        found = self._get(path)
        if found is None:
            return default
        # True is an int in Python, but no number of pods.
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise self.error("a whole number, 0 or more, is expected", *path)
        if found > MOST_PODS:
            raise self.error(f"is more than {MOST_PODS:,} pods", *path)
        return found

    def text(self, *path: str) -> str:
        """Return a text; empty where there is none."""
        found = self._get(path)
        if found is None:
            return ""
        if not isinstance(found, str):
            raise self.error("text is expected", *path)
        return text(found)

    def _get(self, path: tuple[str, ...]) -> object:
        found = self.value
        for done, key in enumerate(path):
            if found is None:
                return None
            if not isinstance(found, dict):
                raise self.error("an object is expected", *path[:done])
            found = found.get(key)
        return found

    @property
    def body(self) -> JsonObject:
        """The object itself."""
        return mapping(self.value)


def of_labels(metadata: JsonObject, *others: JsonObject) -> JsonObject:
    """Return metadata whose labels and annotations are those of all, the first before the rest."""
    found: dict[str, dict[str, str]] = {}
    for key in ("labels", "annotations"):
        merged: dict[str, str] = {}
        for one in (metadata, *others):
            # What came before stays: the object itself goes before its templates.
            merged = words(mapping(one).get(key)) | merged
        found[key] = merged
    return found

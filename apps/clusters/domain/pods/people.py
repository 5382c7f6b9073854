"""The person behind a pod, as labels and annotations of common tools name them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from apps.clusters.domain.kube_json import items, mapping, text

LONGEST_PERSON: Final = 253
_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.A)
_ESCAPED = re.compile(r"-([0-9a-f]{2})")
_SYSTEM = "system:"


class PersonSourceRefused(ValueError):
    """A word names no source of persons; the text says what may stand there."""


class PersonSource(NamedTuple):
    """A label, or an annotation, whose value names a person; `escaped` as JupyterHub writes it.

    `of_profile`: it is of the namespace that a Kubeflow profile made, and counts for pods in it
    that name no person themselves.
    """

    key: str
    is_annotation: bool = False
    escaped: bool = False
    of_profile: bool = False


# Annotations come first: they hold names as they are, while labels take few signs and 63 of them.
KNOWN_TOOLS: Final[Mapping[str, tuple[PersonSource, ...]]] = {
    "jupyterhub": (
        PersonSource("hub.jupyter.org/username", is_annotation=True),
        PersonSource("hub.jupyter.org/username", escaped=True),
    ),
    "kubeflow": (
        PersonSource("notebooks.kubeflow.org/creator", is_annotation=True),
        PersonSource("opendatahub.io/username", is_annotation=True),
        PersonSource("opendatahub.io/user", escaped=True),
        PersonSource("owner", is_annotation=True, of_profile=True),
    ),
    "ray": (PersonSource("ray.io/user"),),
    "slurm": (
        PersonSource("slurmjob.slinky.slurm.net/user-id", is_annotation=True),
        PersonSource("slinky.slurm.net/user-id", is_annotation=True),
    ),
    "created-by": (
        PersonSource("created-by", is_annotation=True),
        PersonSource("created-by"),
    ),
}


def person_sources(words: Iterable[str]) -> tuple[PersonSource, ...]:
    """Return the sources that words name, in their order, each once.

    A word is the name of a tool, or `label:KEY` or `annotation:KEY`. Raises PersonSourceRefused.
    """
    found: dict[PersonSource, None] = {}
    for word in words:
        found |= dict.fromkeys(_named(word))
    return tuple(found)


def _named(word: str) -> tuple[PersonSource, ...]:
    known = KNOWN_TOOLS.get(word)
    if known is not None:
        return known
    kind, colon, key = word.partition(":")
    if not colon or kind not in ("label", "annotation"):
        raise PersonSourceRefused(
            f"{word!r} is no known tool: write one of {', '.join(KNOWN_TOOLS)}, or label:KEY or "
            "annotation:KEY"
        )
    if not _KEY.fullmatch(key) or len(key) > LONGEST_PERSON:
        raise PersonSourceRefused(f"{key!r} in {word!r} is no key of a label or an annotation")
    return (PersonSource(key, is_annotation=kind == "annotation"),)


def person_of(metadata: Mapping[str, Any], sources: Iterable[PersonSource]) -> str:
    """Return the person that the first source names that an object has; empty without one."""
    labels, annotations = mapping(metadata, "labels"), mapping(metadata, "annotations")
    for source in sources:
        if source.of_profile:
            continue
        value = text((annotations if source.is_annotation else labels).get(source.key))
        person = person_in(value, source) if value else ""
        if person:
            return person
    return ""


def person_behind(item: Mapping[str, Any], sources: Sequence[PersonSource]) -> str:
    """Return who is behind a controller or a Workload of Kueue: it, or its pods' template, says it.

    Work that has no pod yet, as a suspended Job, is told by nothing else.
    """
    spec = mapping(item, "spec")
    owners = [item, mapping(spec, "template")]
    owners += [mapping(pods, "template") for pods in items(spec.get("podSets"))]
    found = (person_of(mapping(one, "metadata"), sources) for one in owners)
    return next((person for person in found if person), "")


def profile_owner(namespace: Mapping[str, Any], sources: Iterable[PersonSource]) -> str:
    """Return the owner of the Kubeflow profile that made a namespace; empty for other namespaces.

    `owner` is a word that anybody annotates with: only where a Profile owns the namespace is it
    the profile's user.
    """
    metadata = mapping(namespace, "metadata")
    owners = items(metadata.get("ownerReferences"))
    if not any(text(one.get("kind")) == "Profile" for one in owners):
        return ""
    annotations = mapping(metadata, "annotations")
    found = (person_in(text(annotations.get(s.key)), s) for s in sources if s.of_profile)
    return next((person for person in found if person), "")


def person_in(value: str, source: PersonSource) -> str:
    """Return a person's name as it is stored and compared: in lower case, not escaped.

    Empty where the value names none: accounts of the cluster itself are no persons.
    """
    name = (unescaped(value) if source.escaped else value).strip().lower()
    is_name = name.isprintable() and not name.startswith(_SYSTEM)
    return name if is_name and len(name) <= LONGEST_PERSON else ""


def unescaped(value: str) -> str:
    """Return a name that JupyterHub escaped: `-` and two hexadecimal digits stand for a byte.

    A name that escaping cannot have made is returned as it is: newer versions escape otherwise.
    """
    plain = value.encode()
    # Escaping escapes its own sign: one that begins no escape says that the name is as it was.
    if len(_ESCAPED.findall(value)) != value.count("-"):
        return value
    whole = re.sub(rb"-([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), plain)
    try:
        name = whole.decode()
    except UnicodeDecodeError:
        return value
    return name if name.isprintable() else value

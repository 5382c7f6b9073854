"""Decoding the tree of a catalog into its schema.

msgspec decides whether a value fits its type; walking the structs here is what lets one run name
all misfits with their lines.
"""

import difflib
import re
import types
from collections.abc import Collection, Mapping
from enum import Enum, EnumType
from typing import Any, Union, cast, get_args, get_origin

import msgspec

from apps.operations.domain.schema import Catalog
from apps.operations.domain.source_positions import Path, Problems, SourceNode, near, shown

_SECRET = re.compile(r"(?i)passw|secret|token|credential|api_?key|basic_auth|authorization")
_HOLDS = {"bearer_token_env": " (a token)", "basic_auth_env": " (user:password)"}


def shaped(root: SourceNode, problems: Problems) -> Catalog | None:
    """Return the catalog that the tree holds; None when it is none at all.

    Where `problems` grew, what is returned has None or the default in place of what did not fit.
    """
    if root.value in (None, (), {}):
        problems.add((), "the catalog is empty; " + _allowed(msgspec.structs.fields(Catalog)))
        return None
    catalog: Catalog | None = _struct(root, Catalog, (), problems)
    return catalog


def _value(node: SourceNode, annotation: Any, path: Path, problems: Problems) -> Any:
    kind = _bare(annotation)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(node, kind, path, problems)
    if get_origin(kind) is tuple:
        return _items(node, get_args(kind)[0], path, problems)
    if get_origin(kind) is dict:
        key_kind, value_kind = get_args(kind)
        return _entries(node, key_kind, value_kind, path, problems)
    return _leaf(node, kind, path, problems)


def _struct(node: SourceNode, kind: type[msgspec.Struct], path: Path, problems: Problems) -> Any:
    fields = msgspec.structs.fields(kind)
    if not isinstance(node.value, Mapping):
        problems.add(path, f"{shown(node.value)} is not a mapping; {_allowed(fields)}")
        return None
    names = [field.name for field in fields]
    for key in node.value:
        if key not in names:
            problems.add((*path, key), _unknown(key, names))
    values = {}
    for field in fields:
        value = None
        inner = node.value.get(field.name)
        # A key with nothing behind it says as much as no key.
        if inner is not None and inner.value is not None:
            value = _value(inner, field.type, (*path, field.name), problems)
        elif field.required:
            problems.add((*path, field.name), f"is missing; it must be {_phrase(field.type)}")
        # A needed field that did not fit is None, so that all else can still be checked.
        if value is not None or field.required:
            values[field.name] = value
    return kind(**values)


def _items(node: SourceNode, kind: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(node.value, tuple):
        problems.add(path, f"{_hidden(node, kind)} is not a list; write each entry after a dash")
        return None
    return tuple(
        _value(item, kind, (*path, index), problems) for index, item in enumerate(node.value)
    )


def _entries(node: SourceNode, key_kind: Any, kind: Any, path: Path, problems: Problems) -> Any:
    if not isinstance(node.value, Mapping):
        problems.add(path, f"{shown(node.value)} is not a mapping of keys to values")
        return None
    entries = {}
    for key, item in node.value.items():
        try:
            msgspec.convert(key, key_kind)
        except msgspec.ValidationError:
            problems.add((*path, key), f"the key {shown(key)} is not {_phrase(key_kind)}")
            continue
        entries[key] = _value(item, kind, (*path, key), problems)
    return entries


def _leaf(node: SourceNode, kind: Any, path: Path, problems: Problems) -> Any:
    if isinstance(node.value, str | int | float):
        try:
            return msgspec.convert(node.value, kind)
        except msgspec.ValidationError:
            pass
    problems.add(path, f"{_hidden(node, kind)} is not {_phrase(kind)}{_hint(node, kind)}")
    return None


def _bare(annotation: Any) -> Any:
    """Return the type without its `| None`."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    return next(part for part in get_args(annotation) if part is not types.NoneType)


def _meta(kind: Any) -> msgspec.Meta | None:
    return next((m for m in getattr(kind, "__metadata__", ()) if isinstance(m, msgspec.Meta)), None)


def _phrase(annotation: Any) -> str:
    kind = _bare(annotation)
    meta = _meta(kind)
    if meta is not None:
        return str(meta.description)
    if isinstance(kind, EnumType):
        return f"one of {', '.join(_values(kind))}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"a mapping; {_allowed(msgspec.structs.fields(kind))}"
    return "true or false"


def _values(kind: EnumType) -> list[str]:
    return [str(member.value) for member in cast("type[Enum]", kind)]


def _hidden(node: SourceNode, kind: Any) -> str:
    """Return the value for an error, unless it may be a secret in the wrong place."""
    meta = _meta(kind)
    if meta is not None and (meta.extra or {}).get("private"):
        return "the value (not shown here)"
    return shown(node.value)


def _hint(node: SourceNode, kind: Any) -> str:
    value = node.value
    base = getattr(kind, "__origin__", kind)
    if base is str and isinstance(value, bool | int | float):
        return "; put it in quotes to make it text"
    meta = _meta(kind)
    if meta is not None and meta.max_length and len(str(value)) > meta.max_length:
        return f"; at most {meta.max_length} characters are allowed"
    if isinstance(kind, EnumType) and isinstance(value, str):
        return near(value, _values(kind)).removesuffix(";")
    return ""


def _unknown(key: str, names: Collection[str]) -> str:
    # What nearly is a known key is a slip, and no secret in the wrong place.
    slip = difflib.get_close_matches(key[:80], names, n=1, cutoff=0.9)
    if _SECRET.search(key) and not slip:
        return _never_inline(names)
    return f"unknown key{near(key, names)} allowed are {', '.join(names)}"


def _never_inline(names: Collection[str]) -> str:
    """Return why no secret may stand here, and which of these keys name a variable instead."""
    keys = [f"{name}{_HOLDS.get(name, '')}" for name in names if name.endswith("_env")]
    *others, last = keys or [f"{name}{holds}" for name, holds in _HOLDS.items()]
    named = f"{', '.join(others)} or {last}" if others else last
    return (
        f"secrets are never in the catalog: name the environment variable that holds it, in {named}"
    )


def _allowed(fields: Collection[msgspec.structs.FieldInfo]) -> str:
    return f"allowed are the keys {', '.join(field.name for field in fields)}"

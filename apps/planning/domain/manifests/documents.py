"""The documents of a manifest, YAML or JSON, with the line of each field.

Built from the events of the parser, so that nothing is recursive, no tag makes an object, and an
alias costs what it stands for. Limits hold before anything is built.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct, field
from yaml.resolver import Resolver

MOST_CHARACTERS = 512 * 1024
MOST_DOCUMENTS = 100
MOST_VALUES = 20_000
"""Values of all documents together; an alias counts all values of its anchor each time."""
MOST_DEPTH = 64
_LONGEST_NUMBER = 40
_PLAIN_TAGS = "tag:yaml.org,2002:"
# "value" is what a lone equals sign resolves to.
_KINDS = frozenset({"null", "bool", "int", "float", "str", "timestamp", "binary", "merge", "value"})
_TRUE = frozenset({"y", "yes", "true", "on"})
_resolve: Callable[..., str] = Resolver().resolve
Path = tuple[str | int, ...]


class ManifestError(ValueError):
    """A manifest that cannot be read: what is wrong, at which line (from 1) and field."""

    def __init__(self, problem: str, *, line: int, field: str = "") -> None:
        super().__init__(f"Line {line}{f', {field}' if field else ''}: {problem}.")
        self.problem = problem
        self.line = line
        self.field = field


class Document(Struct, frozen=True):
    """A document's object; `line_of` tells at which line each field is, by its path."""

    body: Mapping[str, Any]
    line_of: Mapping[Path, int]

    def error(self, problem: str, *path: str | int) -> ManifestError:
        """Return an error of the field at a path, with the line of the nearest that is there."""
        at = path
        while at and at not in self.line_of:
            at = at[:-1]
        return ManifestError(problem, line=self.line_of.get(at, 1), field=named(path))


def named(path: Path) -> str:
    """Return a path as one writes it: spec.containers[0].resources."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text[:200]


def read_documents(text: str) -> list[Document]:
    """Return the objects of a manifest, at least one. Raises ManifestError."""
    if len(text) > MOST_CHARACTERS:
        raise ManifestError(f"is longer than {MOST_CHARACTERS // 1024} KiB", line=1)
    builder = _Builder()
    try:
        for event in _events(text):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ManifestError(
            _one_line(error.problem or error.context or "is not YAML"),
            line=1 if mark is None else mark.line + 1,
            field=builder.field,
        ) from error
    except (yaml.YAMLError, UnicodeError) as error:
        # A character that YAML does not allow: the parser knows its place in the text alone.
        raise ManifestError(
            "has a character that YAML does not allow", line=builder.line, field=builder.field
        ) from error
    if not builder.documents:
        raise ManifestError("is empty", line=1)
    return builder.documents


def _events(text: str) -> Iterator[yaml.Event]:
    yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _one_line(problem: str) -> str:
    return " ".join(problem.split())[:200].rstrip(".")


class _Open(Struct):
    """A list or mapping that is being read; `key` is that whose value comes next."""

    value: dict[str, Any] | list[Any]
    path: Path
    anchor: str | None
    line: int
    key: str | None = None
    size: int = 1
    merged: list[Mapping[str, Any]] = field(default_factory=list)


class _Builder:
    """Puts documents together, event by event."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.line = 1
        self._open: list[_Open] = []
        self._lines: dict[Path, int] = {}
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        self._root: Any = None

    @property
    def field(self) -> str:
        """The field that is being read."""
        return named(self._path()) if self._open else ""

    def take(self, event: yaml.Event) -> None:
        """Take the next event. Raises ManifestError."""
        self.line = 1 if event.start_mark is None else event.start_mark.line + 1
        match event:
            case yaml.DocumentStartEvent():
                self._lines, self._anchors, self._root = {}, {}, None
            case yaml.DocumentEndEvent():
                self._finish()
            case yaml.MappingStartEvent():
                self._begin({}, event.anchor)
            case yaml.SequenceStartEvent():
                self._begin([], event.anchor)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end()
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                name = event.anchor or ""
                value, size = self._anchors.get(name, (None, 0))
                # An alias inside of what it stands for, or before it: the anchor is known only at
                # its end.
                if not size:
                    raise self._error(f"the alias {name[:60]} stands for nothing")
                self._add(value, size)

    def _error(self, problem: str) -> ManifestError:
        return ManifestError(problem, line=self.line, field=self.field)

    def _path(self) -> Path:
        top = self._open[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        return top.path if top.key is None else (*top.path, top.key)

    def _begin(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        if len(self._open) >= MOST_DEPTH:
            raise self._error(f"is nested deeper than {MOST_DEPTH} levels")
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            raise self._error("a key must be text")
        path = self._path() if self._open else ()
        self._lines.setdefault(path, self.line)
        self._open.append(_Open(value, path, anchor, self.line))

    def _end(self) -> None:
        done = self._open.pop()
        if isinstance(done.value, dict):
            # Own keys go before merged ones, and the first merge before the next.
            for merged in done.merged:
                for key, value in merged.items():
                    done.value.setdefault(key, value)
        if done.anchor:
            self._anchors[done.anchor] = (done.value, done.size)
        # Its own parts are counted already.
        self._add(done.value, done.size, counted=True)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._key(top, str(event.value))
            return
        value = self._resolved(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, 1)

    def _key(self, top: _Open, key: str) -> None:
        twice = key in top.value and key != "<<"
        top.key = key
        # YAML forbids it, but parsers keep the last: an author would not see which one counts.
        if twice:
            raise self._error("is there twice")
        self._lines[(*top.path, key)] = self.line

    def _resolved(self, event: yaml.ScalarEvent) -> Any:
        tag = event.tag
        if tag is None or tag == "!":
            if not event.implicit[0]:
                return str(event.value)
            tag = _resolve(yaml.ScalarNode, event.value, (True, False))
        kind = str(tag).removeprefix(_PLAIN_TAGS)
        if kind not in _KINDS:
            raise self._error(f"the tag {str(tag)[:60]} is not allowed")
        return _plain_value(kind, str(event.value))

    def _add(self, value: Any, size: int, *, counted: bool = False) -> None:
        self._count += 1 if counted else size
        if self._count > MOST_VALUES:
            raise self._error(f"has more than {MOST_VALUES} values")
        if not self._open:
            self._root = value
            self._lines.setdefault((), self.line)
            return
        top = self._open[-1]
        top.size += size
        if isinstance(top.value, list):
            self._lines.setdefault((*top.path, len(top.value)), self.line)
            top.value.append(value)
        elif top.key is None:
            raise self._error("a key must be text")
        elif top.key == "<<":
            top.merged += [one for one in _listed(value) if isinstance(one, dict)]
            top.key = None
        else:
            top.value[top.key] = value
            top.key = None

    def _finish(self) -> None:
        if self._root is None:
            # Nothing between two marks, as a template that was left out writes it.
            return
        if not isinstance(self._root, dict):
            line = self._lines.get((), self.line)
            raise ManifestError("an object with apiVersion and kind is expected", line=line)
        if len(self.documents) >= MOST_DOCUMENTS:
            raise ManifestError(f"has more than {MOST_DOCUMENTS} documents", line=self.line)
        self.documents.append(Document(self._root, self._lines))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _plain_value(kind: str, text: str) -> Any:
    """Return a scalar of a kind of YAML; what is of another kind, or too long, stays text."""
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() in _TRUE
        # Python takes a long time for numbers of many digits.
        case "int" | "float" if len(text) <= _LONGEST_NUMBER:
            try:
                return _whole_number(text) if kind == "int" else float(text)
            except ValueError:
                return text
    return text


def _whole_number(text: str) -> int:
    """Return a number as kubectl reads it: 0x10 is 16, and 010 is 8."""
    digits = text.replace("_", "")
    is_octal = digits.lstrip("+-")[:1] == "0" and digits.lstrip("+-").isdigit()
    return int(digits, 8 if is_octal else 0)

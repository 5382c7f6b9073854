"""Reading the catalog's YAML into a tree with lines.

The tree is built from PyYAML's parsing events, so no tag can make an object. Plain words are read
by the core schema of YAML 1.2: `yes`, `on` and `no` are text, dates are text, `010` is ten. With
1.1, as PyYAML loads by default, a namespace called `no` would be false.
"""

import re
import unicodedata
from datetime import datetime
from typing import cast

from yaml.error import Mark, MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner

from apps.operations.domain.checks import check
from apps.operations.domain.decoder import shaped
from apps.operations.domain.schema import Catalog
from apps.operations.domain.source_positions import (
    CatalogError,
    Path,
    Problem,
    Problems,
    Scalar,
    SourceNode,
    shown_path,
)

# Deeper than any catalog. A text of brackets alone would exhaust the stack of Python.
_DEEPEST = 12
_MOST_VALUES = 500_000

_NULL = re.compile(r"\A(?:~|null|Null|NULL|)\Z")
_TRUE = re.compile(r"\A(?:true|True|TRUE)\Z")
_FALSE = re.compile(r"\A(?:false|False|FALSE)\Z")
# Each number of 18 digits fits into a column of 64 bits.
_INTEGER = re.compile(r"\A[-+]?[0-9]{1,18}\Z")
_FLOAT = re.compile(r"\A[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")


def read_catalog(text: str, filename: str, *, now: datetime) -> tuple[Catalog, Problems]:
    """Return the checked catalog, and what finds the lines of its values.

    Raises CatalogError with everything that is wrong; nothing else, whatever the text.
    """
    root, found = _Builder(text).document(filename)
    problems = Problems(root, found)
    catalog = shaped(root, problems)
    if catalog is not None:
        check(catalog, problems, now=now)
    if catalog is None or problems.found:
        raise CatalogError(filename, problems.found)
    return catalog, problems


class _Events(Reader, Scanner, Parser):
    """PyYAML's chain up to events, without what composes and constructs."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)

    def ahead(self) -> Event:
        """Return the next event and leave it there."""
        return cast("Event", self.peek_event())  # type: ignore[no-untyped-call]

    def take(self) -> Event:
        """Return the next event and go on."""
        return cast("Event", self.get_event())  # type: ignore[no-untyped-call]


class _Unreadable(Exception):
    """The text cannot be read on from this line."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


class _Builder:
    """Builds one document's tree; `found` collects what does not stop it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[Problem] = []
        # None while the value of an anchor is being read.
        self._anchors: dict[str, SourceNode | None] = {}

    def document(self, filename: str) -> tuple[SourceNode, list[Problem]]:
        """Return the only document; an empty text is a tree of nothing."""
        try:
            self._events = _Events(self._text)
            return self._document(), self._found
        except _Unreadable as error:
            problem = Problem(error.line, "", error.text)
        except ReaderError as error:
            line = self._text.count("\n", 0, error.position) + 1
            problem = Problem(line, "", f"the character U+{_code(error):04X} is not allowed")
        except MarkedYAMLError as error:
            problem = _syntax(error)
        except (YAMLError, ValueError, OverflowError) as error:
            # PyYAML lets some escapes through to chr(), as in "\UFFFFFFFF".
            problem = Problem(self._events.line + 1, "", f"is not YAML: {error}")
        raise CatalogError(filename, [*self._found, problem])

    def _document(self) -> SourceNode:
        self._events.take()
        if isinstance(self._events.ahead(), StreamEndEvent):
            return SourceNode(None, 1)
        self._events.take()
        root = self._node((), 0)
        self._events.take()
        after = self._events.take()
        if isinstance(after, DocumentStartEvent):
            raise _Unreadable(_line(after), "a second document begins; a catalog is one document")
        return root

    def _node(self, path: Path, depth: int) -> SourceNode:
        event = self._events.take()
        if isinstance(event, AliasEvent):
            return self._aliased(event)
        if depth > _DEEPEST:
            raise _Unreadable(_line(event), f"values are nested more than {_DEEPEST} deep")
        anchor = event.anchor if isinstance(event, NodeEvent) else None
        if anchor is not None:
            self._anchors[anchor] = None
        node = self._built(event, path, depth)
        # Aliases of aliases multiply: a few lines can stand for billions of values.
        if node.size > _MOST_VALUES:
            raise _Unreadable(_line(event), f"aliases make more than {_MOST_VALUES:,} values")
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _built(self, event: Event, path: Path, depth: int) -> SourceNode:
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", "tag:yaml.org,2002:str"):
            self._note(_line(event), path, "tags (!) are not used in a catalog")
        if isinstance(event, SequenceStartEvent):
            return self._sequence(event, path, depth)
        if isinstance(event, MappingStartEvent):
            return self._mapping(event, path, depth)
        return SourceNode(self._scalar(cast("ScalarEvent", event), path), _line(event))

    def _aliased(self, event: AliasEvent) -> SourceNode:
        if event.anchor not in self._anchors:
            raise _Unreadable(_line(event), f"the alias *{event.anchor} has no anchor before it")
        node = self._anchors[event.anchor]
        if node is None:
            raise _Unreadable(_line(event), f"the alias *{event.anchor} stands in its own anchor")
        # With a line of its own, so that an error names where the alias stands.
        return SourceNode(node.value, _line(event), node.size)

    def _sequence(self, start: Event, path: Path, depth: int) -> SourceNode:
        items: list[SourceNode] = []
        while not isinstance(self._events.ahead(), SequenceEndEvent):
            items.append(self._node((*path, len(items)), depth + 1))
        self._events.take()
        return SourceNode(tuple(items), _line(start), 1 + sum(item.size for item in items))

    def _mapping(self, start: Event, path: Path, depth: int) -> SourceNode:
        entries: dict[str, SourceNode] = {}
        while not isinstance(self._events.ahead(), MappingEndEvent):
            line, key = self._key(path)
            value = self._node((*path, key), depth + 1)
            if key == "<<":
                self._note(line, (*path, key), "merge keys are not read; write the keys out")
            elif key in entries:
                first = entries[key].line
                self._note(line, (*path, key), f"the key is given twice, first on line {first}")
            else:
                entries[key] = SourceNode(value.value, line, value.size)
        self._events.take()
        return SourceNode(entries, _line(start), 1 + sum(entry.size for entry in entries.values()))

    def _key(self, path: Path) -> tuple[int, str]:
        event = self._events.take()
        if not isinstance(event, ScalarEvent):
            raise _Unreadable(_line(event), "a key must be text, not an alias, list or mapping")
        self._check_text(event, path)
        return _line(event), event.value

    def _scalar(self, event: ScalarEvent, path: Path) -> Scalar:
        self._check_text(event, path)
        text: str = event.value
        plain = event.implicit[0] and event.tag is None
        return _resolved(text) if plain else text

    def _check_text(self, event: ScalarEvent, path: Path) -> None:
        """Note characters that no database column takes or no page can show."""
        for character in event.value:
            if unicodedata.category(character) in {"Cc", "Cs"} and character not in "\n\t":
                text = f"holds the character U+{ord(character):04X}, which is not allowed"
                self._note(_line(event), path, text)
                return

    def _note(self, line: int, path: Path, text: str) -> None:
        self._found.append(Problem(line, shown_path(path), text))


def _resolved(text: str) -> Scalar:
    """Return what a plain, unquoted word stands for."""
    for shape, value in ((_NULL, None), (_TRUE, True), (_FALSE, False)):
        if shape.match(text):
            return value
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text


def _line(event: Event) -> int:
    return int(cast("Mark", event.start_mark).line) + 1


def _code(error: ReaderError) -> int:
    return error.character if isinstance(error.character, int) else ord(error.character)


def _syntax(error: MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    said = ", ".join(part for part in (error.context, error.problem) if part)
    return Problem(mark.line + 1 if mark else 1, "", f"is not YAML: {said}")

#!/usr/bin/env python3
"""Finds product code that nothing but tests reaches: functions, classes, names and modules.

vulture reads the product, never the tests: what only these use is dead. The exceptions are in
`scripts/dead_code.toml`, each with its reason. One that excuses nothing any more is told as well.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("gpuportal", "apps", "simulator", "clients", "scripts")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TAG = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)


def main() -> int:
    """Print what is dead, a line each; return 1 when there is any."""
    allowed = tomllib.loads((ROOT / "scripts/dead_code.toml").read_text(encoding="utf-8"))
    files = [
        path.relative_to(ROOT)
        for top in PRODUCT
        for path in sorted((ROOT / top).rglob("*.py"))
        if "migrations" not in path.parts
    ]
    finder = _Finder(ignore_decorators=list(allowed["decorators"]))
    for path in files:
        finder.scan((ROOT / path).read_text(encoding="utf-8"), filename=path)
    for template in (ROOT / "templates").rglob("*.html"):
        for tag in _TAG.findall(template.read_text(encoding="utf-8")):
            finder.used_names.update(_WORD.findall(tag))
    names, modules = _Rules(allowed["names"]), _Rules(allowed["modules"])
    found = [*_dead_names(finder, names), *_dead_modules(finder, files, modules)]
    decorators = allowed["decorators"].keys() - finder.used_decorators
    found += [f"dead_code.toml: {rule} excuses nothing" for rule in sorted(decorators)]
    found += [*names.needless(), *modules.needless()]
    for line in found:
        print(line)  # noqa: T201 - the answer
    return 1 if found else 0


class _Rules:
    """Patterns of what is left alone, and which of them were needed."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._needed = dict.fromkeys(patterns, False)

    def excuse(self, *names: str) -> bool:
        """Say whether a pattern fits one of the names of what is unused."""
        fitting = (one for one in self._needed if any(fnmatch(name, one) for name in names))
        # Only the first is needed: one that others make up for goes.
        first = next(fitting, None)
        if first is not None:
            self._needed[first] = True
        return first is not None

    def needless(self) -> Iterator[str]:
        """Yield a line for each pattern that nothing needed."""
        for pattern, needed in self._needed.items():
            if not needed:
                yield f"dead_code.toml: {pattern} excuses nothing"


class _Finder(Vulture):  # type: ignore[misc]
    """Notes words of strings and imported modules as well; to be exported is not to be used."""

    def __init__(self, *, ignore_decorators: Sequence[str]) -> None:
        super().__init__(ignore_decorators=ignore_decorators)
        self.words: set[str] = set()
        self.modules: set[str] = set()
        self.used_decorators: set[str] = set()
        self.column_types: set[str] = set()

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note types of declared columns; `__all__` is passed over: vulture takes it for uses."""
        if self._declares_column(node.value):
            self.column_types |= {one.id for one in node.targets if isinstance(one, ast.Name)}

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Take what a row declares as a column for used: tables, files and the API read it."""
        if isinstance(node.target, ast.Name) and self._declares_column(node.annotation):
            self.used_names.add(node.target.id)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        super().visit_FunctionDef(node)
        for decorator in node.decorator_list:
            name = "@" + ast.unparse(decorator).partition("(")[0]
            self.used_decorators |= {one for one in self.ignore_decorators if fnmatch(name, one)}
        if self._declares_column(node.returns):
            self.used_names.add(node.name)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and _WORD.fullmatch(node.value):
            self.words |= {node.value, *node.value.split("__")}

    def _declares_column(self, annotation: ast.expr | None) -> bool:
        """Say whether it has a `Column`, or is the name of a type of this module that has one."""
        if isinstance(annotation, ast.Name):
            return annotation.id in self.column_types
        return annotation is not None and any(
            isinstance(part, ast.Call) and ast.unparse(part.func) == "Column"
            for part in ast.walk(annotation)
        )

    def visit_Import(self, node: ast.Import) -> None:
        super().visit_Import(node)
        self.modules |= {alias.name for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        super().visit_ImportFrom(node)
        self.modules |= {f"{node.module}", *(f"{node.module}.{a.name}" for a in node.names)}


def _dead_names(finder: _Finder, allowed: _Rules) -> Iterator[str]:
    """Yield the names that are defined and used nowhere, but those that are allowed."""
    for item in finder.get_unused_code():
        # Columns, fields and keys are read by their names; ruff knows imports better.
        by_name = item.typ not in {"class", "function", "method"} and item.name in finder.words
        if by_name or item.typ == "import":
            continue
        names = (item.name, f"{item.filename}:{item.name}", f"{item.filename}:{item.typ}")
        if not allowed.excuse(*names):
            yield f"{item.filename}:{item.first_lineno}: unused {item.typ} {item.name}"


def _dead_modules(finder: _Finder, files: Sequence[Path], allowed: _Rules) -> Iterator[str]:
    """Yield the modules that no module of the product imports, but those that are allowed."""
    for path in files:
        # The client is a package of its own below its folder.
        name = ".".join(path.with_suffix("").parts).removeprefix("clients.")
        reached = path.name == "__init__.py" or name in finder.modules
        if not reached and not allowed.excuse(str(path)):
            yield f"{path}: no module imports it"


if __name__ == "__main__":
    sys.exit(main())

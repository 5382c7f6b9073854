"""The shape of the code: circles of imports, sizes of folders, parameters and names of classes."""

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOPS = ("apps", "gpuportal", "simulator")
MOST_MODULES = 15
MOST_PARAMETERS = 6
# Those that take more today. The list only gets shorter.
MANY_PARAMETERS = {
    "apps.accounts: next_entry",
    "apps.accounts: record",
    "apps.web: calendar",
    "apps.web: respond",
    "simulator: __init__",
    "simulator: counted",
    "simulator: gpu_node",
    "simulator: job",
    "simulator: noted",
    "simulator: template",
}
# Of 100 lines of code, docstrings apart, so many say at least why: a pitfall of an exporter, a
# unit, an order that matters, a limit of a database. By room; the number only goes up.
LEAST_COMMENTS = 2.7
LAYERS = {"domain", "services", "selectors", "adapters"}
NO_REASON = ("noqa", "type:", "fmt:", "-----")
# Django wants the same name of each.
REPEATED = {"Command"}


@cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    """Return the modules of the product by dotted name, without migrations."""
    found = {}
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            if "migrations" not in path.parts:
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                tree = ast.parse(path.read_text(encoding="utf-8"))
                found[name.removesuffix(".__init__")] = (path, tree)
    return found


def room_of(module: str) -> str:
    """Return the room of a module, or its top where it is in none: apps.usage, simulator."""
    return ".".join(module.split(".")[: 2 if module.startswith("apps.") else 1])


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that one imports anywhere in it, for types alone too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from (names & modules().keys()) or {node.module}


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: set(imported(tree)) & modules().keys() - {name}
             for name, (_, tree) in modules().items()}  # fmt: skip
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


def test_no_folder_holds_more_modules_than_one_reads_over() -> None:
    folders = Counter(
        path.parent.relative_to(ROOT)
        for path, _ in modules().values()
        if path.name != "__init__.py"
    )
    assert {str(f): n for f, n in folders.items() if n > MOST_MODULES} == {}


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(given) - (given[:1] in (["self"], ["cls"]))


def test_few_functions_take_more_than_six_parameters() -> None:
    found = {
        f"{room_of(name)}: {node.name}"
        for name, (_, tree) in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and parameters(node) > MOST_PARAMETERS
    }
    assert found == MANY_PARAMETERS


def test_a_room_has_no_two_classes_of_one_name() -> None:
    rooms: dict[str, list[str]] = defaultdict(list)
    for name, (_, tree) in modules().items():
        # A table may be named as the value that it keeps.
        room = room_of(name) + (".models" if ".models" in name else "")
        classes = (node.name for node in tree.body if isinstance(node, ast.ClassDef))
        # Private ones too: who searches for a name finds one class.
        rooms[room] += [own.lstrip("_") for own in classes]
    twice = {
        f"{room}: {name}"
        for room, names in rooms.items()
        for name, count in Counter(names).items()
        if count > 1 and name not in REPEATED
    }
    assert twice == set()


def lines_of_code_and_comments(path: Path, tree: ast.Module) -> tuple[int, int]:
    """Return how many lines hold code, without docstrings, and how many a comment in words."""
    text = path.read_text(encoding="utf-8")
    code, comments = set[int](), set[int]()
    silent = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if not token.string.lstrip("# ").startswith(NO_REASON):
                comments.add(token.start[0])
        elif token.type not in silent:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code), len(comments)


def test_rooms_say_why_where_their_code_surprises() -> None:
    code, comments = Counter[str](), Counter[str]()
    for name, (path, tree) in modules().items():
        if name.startswith("apps.") and LAYERS & set(name.split(".")):
            lines, reasons = lines_of_code_and_comments(path, tree)
            code[room_of(name)] += lines
            comments[room_of(name)] += reasons
    rare = {room: round(100 * comments[room] / code[room], 2) for room in code}
    assert {room: rate for room, rate in rare.items() if rate < LEAST_COMMENTS} == {}

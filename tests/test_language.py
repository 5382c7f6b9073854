"""The words of the project: `tests/language.toml` says which are retired, and by what."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
LANGUAGE: Mapping[str, Any] = tomllib.loads(
    (ROOT / "tests" / "language.toml").read_text(encoding="utf-8")
)
CODE = ("apps", "gpuportal", "simulator", "clients")
SAYING = {"apps", "gpuportal", "clients"}  # whose texts readers see
LABEL_WORDS = 3
DOCUMENT_COLUMNS = 120
DOCUMENTED = ("clients", "deploy", "docs", "simulator", "tests")
NAMES = r"`[^`\n]*`"  # of fields, values and commands
# Comments on lines of their own, behind code (ruff puts two spaces before them), and blocks.
HASH_COMMENTS = re.compile(r"(?:^[ \t]*#(?!!).*\n)+|(?<=\S)  # .*$", re.MULTILINE)
SLASH_COMMENTS = re.compile(r"/\*[\s\S]*?\*/|(?:^[ \t]*//.*\n)+|(?<=\S)[ \t]+// .*$", re.MULTILINE)
COMMENT_BREAKS = re.compile(r"\n[ \t]*(?:#|//|\*(?!/))?[ \t]*")
# Where comments are looked for, by how they are written.
COMMENTED = (
    (HASH_COMMENTS, (*(f"{folder}/**/*.py" for folder in CODE), "scripts/**/*.py")),
    (HASH_COMMENTS, ("deploy/**/*.y*ml", "deploy/**/*.sh", "docker-compose*.yml", "Makefile")),
    (SLASH_COMMENTS, ("static/**/*.js", "static/**/*.css")),
)
# Arguments that are read as a label, by keyword; of a `Column` also one without.
LABELS = {"label", "title", "heading", "caption", "verbose_name", "verbose_name_plural"}
HEADS = re.compile(
    r"<(h[1-6]|th|dt|label|legend|caption|summary|button)\b[^>]*>(.*?)</\1>", re.DOTALL
)
# Beside a label: a note in small print, what only a screen reader says, and values.
NOTES = r'<span class="(?:subtle|visually-hidden)">.*?</span>|<(b|small)\b.*?</\1>'
# What a tag of a template passes on or compares: a text that has a space or begins like a label.
TAG_TEXTS = re.compile(r"""(["'])((?:[A-Z]|[^"'{}%\n]* )[^"'{}%\n]*)\1""")
TAGS = re.compile(r"\{%(.*?)%\}|\{\{(.*?)\}\}", re.DOTALL)
# Names in markup, not what templates put in them.
MARKUP_NAMES = re.compile(r"""\b(?:class|id|for|name)=(["'])(.*?)\1""", re.DOTALL)
STYLE_NAMES = re.compile(r"[.#](-?[A-Za-z_][\w-]*)(?=[^{}]*\{)")
SHOWN_ATTRIBUTES = re.compile(
    r"""\b(?:aria-label|title|placeholder|alt)=(["'])(.*?)\1""", re.DOTALL
)


class Text(NamedTuple):
    """A text and where it stands, as `path:line`."""

    where: str
    text: str


def _paths(*patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            if not {"migrations", "__pycache__", "node_modules"} & set(path.parts):
                yield path


def _where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


@cache
def trees() -> tuple[tuple[Path, ast.Module], ...]:
    found = _paths(*(f"{folder}/**/*.py" for folder in CODE))
    return tuple((path, ast.parse(path.read_text(encoding="utf-8"))) for path in found)


# ---------------------------------------------------------------- what is read


def _without_code(template: str) -> str:
    """Return a template without tags, comments and scripts, line for line."""
    hidden = r"\{#.*?#\}|<(script|style|code|pre)\b.*?</\1>|\{%.*?%\}|\{\{.*?\}\}"
    return re.sub(hidden, _same_lines, template, flags=re.DOTALL)


@cache
def template_texts() -> tuple[Text, ...]:
    """Return what templates show: text between tags, and attributes that are read out."""
    found = []
    for path in _paths("templates/**/*.html"):
        template = _without_code(path.read_text(encoding="utf-8"))
        for match in SHOWN_ATTRIBUTES.finditer(template):
            line = template.count("\n", 0, match.start()) + 1
            found.append(Text(_where(path, line), match.group(2)))
        for match in re.finditer(r">([^<>]+)(?=<|$)", re.sub(r"<[^>]*>", _tag, template)):
            line = template.count("\n", 0, match.start()) + 1
            found.append(Text(_where(path, line), match.group(1).strip()))
    return tuple(text for text in found if re.search(r"[A-Za-z]", text.text))


def _tag(found: re.Match[str]) -> str:
    return "<" + "\n" * found.group().count("\n") + ">"


@cache
def tag_texts() -> tuple[Text, ...]:
    """Return the texts in tags of templates: what they pass to others, and defaults."""
    found = []
    for path in _paths("templates/**/*.html"):
        template = re.sub(r"\{#.*?#\}", _same_lines, path.read_text("utf-8"), flags=re.DOTALL)
        for tag in TAGS.finditer(template):
            line = template.count("\n", 0, tag.start()) + 1
            inside = tag.group(1) or tag.group(2)
            found += [Text(_where(path, line), each[1]) for each in TAG_TEXTS.findall(inside)]
    return tuple(found)


@cache
def template_labels() -> tuple[Text, ...]:
    """Return the headings, heads of columns and buttons of templates that hold words alone."""
    found = []
    for path in _paths("templates/**/*.html"):
        template = path.read_text(encoding="utf-8")
        for match in HEADS.finditer(template):
            line = template.count("\n", 0, match.start()) + 1
            head = re.sub(NOTES, " ", match.group(2), flags=re.DOTALL)
            for alternative in re.split(r"\{% (?:else|elif)\b.*?%\}", head):
                label = re.sub(r"<[^>]*>", "", _without_code(alternative)).strip()
                if re.search(r"[A-Za-z]", label):
                    found.append(Text(_where(path, line), label))
    return tuple(found)


@cache
def nodes() -> tuple[tuple[Path, ast.AST], ...]:
    """Return the parts of the code that are looked at; docstrings are none of them."""
    kept = (
        *(ast.Call, ast.ClassDef, ast.Constant, ast.JoinedStr),
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Expr),
    )
    found = [(path, node) for path, tree in trees() for node in ast.walk(tree)]
    found = [(path, node) for path, node in found if isinstance(node, kept)]
    docstrings = {id(node.value) for _, node in found if isinstance(node, ast.Expr)}
    return tuple((path, node) for path, node in found if id(node) not in docstrings)


def _is_product(path: Path) -> bool:
    return path.relative_to(ROOT).parts[0] == "apps"


def _is_saying(path: Path) -> bool:
    return path.relative_to(ROOT).parts[0] in SAYING


@cache
def code_sentences() -> tuple[Text, ...]:
    """Return the texts of code that have a space: what pages, API, files and commands say."""
    return tuple(
        Text(_where(path, node.lineno), re.sub(NAMES, "", _content(node)))
        for path, node in nodes()
        if isinstance(node, ast.Constant | ast.JoinedStr) and _is_saying(path)
        if " " in _content(node).strip()
    )


def _content(node: ast.AST) -> str:
    """Return the text of a string, of an f-string with … for its values; "" of other nodes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_content(value) or "…" for value in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@cache
def docstrings() -> tuple[Text, ...]:
    """Return what docstrings say, names of code left out."""
    scripts = [(one, ast.parse(one.read_text("utf-8"))) for one in _paths("scripts/**/*.py")]
    return tuple(
        Text(_where(path, node.value.lineno), re.sub(NAMES, "", node.value.value))
        for path, tree in (*trees(), *scripts)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
    )


@cache
def comments() -> tuple[Text, ...]:
    """Return what comments say of code, styles, scripts and deployments, each as one line."""
    found = []
    for written, patterns in COMMENTED:
        for path in _paths(*patterns):
            code = path.read_text(encoding="utf-8")
            for match in written.finditer(code):
                line = code.count("\n", 0, match.start()) + 1
                words = COMMENT_BREAKS.sub(" ", re.sub(NAMES, "", match.group()))
                found.append(Text(_where(path, line), words))
    return tuple(found)


@pytest.mark.parametrize(
    ("commented", "said"),
    [
        ("x = 1\n    # One that\n    # waits.\n", "One that waits."),
        ("x = 1  # it waits\n", "it waits"),
    ],
)
def test_a_comment_is_read_as_one_line(commented: str, said: str) -> None:
    found = HASH_COMMENTS.search(commented)
    assert found is not None
    assert COMMENT_BREAKS.sub(" ", found.group()).strip(" #") == said


@cache
def code_labels() -> tuple[Text, ...]:
    """Return the labels that the code gives to columns, fields, tables and models."""
    return tuple(
        Text(_where(path, node.lineno), node.value)
        for path, call in nodes()
        if isinstance(call, ast.Call) and _is_product(path)
        for node in _labels_of(call, is_page="web" in path.relative_to(ROOT).parts)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _labels_of(call: ast.Call, *, is_page: bool) -> Iterator[ast.expr]:
    if isinstance(call.func, ast.Name) and call.func.id == "Column":
        # A page's column has its key first, a declared one its label, alone or as *(label, unit).
        for first in call.args[1:2] if is_page else call.args[:1]:
            pair = first.value if isinstance(first, ast.Starred) else None
            yield pair.elts[0] if isinstance(pair, ast.Tuple) else first
    yield from (word.value for word in call.keywords if word.arg in LABELS)


@cache
def document_lines() -> tuple[Text, ...]:
    """Return the lines of the documents, of the changelog those of Unreleased, without code."""
    found = []
    for path in _paths("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md"):
        text = path.read_text(encoding="utf-8")
        if path.name == "CHANGELOG.md":
            text = "\n## ".join(text.split("\n## ")[:2])
        for number, line in enumerate(_without_fences(text), 1):
            words = re.sub(rf"{NAMES}|\]\([^)]*\)", "", line)
            found.append(Text(_where(path, number), words))
    return tuple(found)


def _without_fences(text: str) -> list[str]:
    return re.sub(r"^```.*?^```", _same_lines, text, flags=re.DOTALL | re.MULTILINE).splitlines()


def _same_lines(found: re.Match[str]) -> str:
    return "\n" * found.group().count("\n")


@cache
def module_names() -> tuple[Text, ...]:
    """Return names of modules, templates, styles and scripts, and of the folders they are in."""
    patterns = [f"{folder}/**/*.py" for folder in (*CODE, "tests")]
    found = []
    for path in _paths(*patterns, "templates/**/*.html", "static/**/*.css", "static/**/*.js"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found += [Text(str(path.relative_to(ROOT)), part) for part in parts[1:]]
    return tuple(found)


@cache
def contract() -> frozenset[str]:
    """Return the words of the API: names of fields and parameters, and values of enums."""
    found: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found.update(node.get("properties", ()), map(str, node.get("enum", ())))
            found.update([node["name"]] if isinstance(node.get("name"), str) else [])
        for inner in node.values() if isinstance(node, dict) else node:
            if isinstance(inner, dict | list):
                walk(inner)

    walk(yaml.load((ROOT / "docs" / "openapi.yaml").read_bytes(), yaml.CSafeLoader))
    return frozenset(found)


def _assigned(statement: ast.stmt) -> list[str]:
    """Return the names that a statement gives a value, or a type alone."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    names = [one for target in targets for one in getattr(target, "elts", [target])]
    return [one.id for one in names if isinstance(one, ast.Name)]


@cache
def definitions() -> tuple[tuple[Text, bool], ...]:
    """Return what modules and classes define, and whether it is a class: (name, is class).

    Fields that the API or a table has are left out: their names are a contract.
    """
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    stored = contract() | _columns()
    found = []
    for path, node in nodes():
        if isinstance(node, defined) and not _words_of_contract(node.name) & stored:
            text = Text(_where(path, node.lineno), node.name)
            found.append((text, isinstance(node, ast.ClassDef)))
    for path, tree in trees():
        for owner in ast.walk(tree):
            if isinstance(owner, ast.Module | ast.ClassDef):
                names = [(one.lineno, name) for one in owner.body for name in _assigned(one)]
                for line, name in names:
                    if not _words_of_contract(name) & stored:
                        found.append((Text(_where(path, line), name), False))
    return tuple(found)


def _words_of_contract(name: str) -> set[str]:
    """Return what a name may stand for in the API or a table: a field, or a value of an enum."""
    plain = name.lower().strip("_")
    return {plain, plain.replace("_", " ")}


def _columns() -> set[str]:
    return {
        name
        for path, tree in trees()
        if "models" in {path.stem, path.parent.name}
        for owner in ast.walk(tree)
        if isinstance(owner, ast.ClassDef)
        for statement in owner.body
        for name in _assigned(statement)
    }


@cache
def markup_names() -> tuple[Text, ...]:
    """Return the classes and ids of styles and templates, and the names of pages' addresses."""
    found = []
    for path in _paths("templates/**/*.html"):
        template = _without_code(path.read_text(encoding="utf-8"))
        for match in MARKUP_NAMES.finditer(template):
            line = template.count("\n", 0, match.start()) + 1
            found += [Text(_where(path, line), name) for name in match.group(2).split()]
    for path in _paths("static/**/*.css"):
        style = re.sub(r"/\*.*?\*/", _same_lines, path.read_text("utf-8"), flags=re.DOTALL)
        for match in STYLE_NAMES.finditer(style):
            found.append(
                Text(_where(path, style.count("\n", 0, match.start()) + 1), match.group(1))
            )
    for path, call in nodes():
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"path", "re_path"}:
            for word in call.keywords:
                if word.arg == "name" and "web" in path.relative_to(ROOT).parts:
                    found.append(Text(_where(path, call.lineno), _content(word.value)))
    return tuple(found)


@cache
def names_of_tests() -> tuple[Text, ...]:
    """Return the names of tests."""
    return tuple(
        Text(_where(path, node.lineno), node.name)
        for path in _paths("tests/**/test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def words_of(name: str) -> list[str]:
    """Return the words of a name in snake, kebab or camel case, in small letters."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


# ---------------------------------------------------------------- how it is held against the list


def _is_excepted(scope: str, word: str, text: Text) -> bool:
    path = text.where.split(":")[0]
    return any(
        scope in one.get("scope", scope)
        and word in one.get("words", [word])
        and re.match(one.get("where", ""), path)
        and re.search(one.get("text", ""), text.text)
        for one in LANGUAGE["exception"]
    )


def _found(scope: str, texts: tuple[Text, ...]) -> list[str]:
    words = {word.lower(): word for word in LANGUAGE[scope]}
    longest_first = sorted(map(re.escape, words), key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])({'|'.join(longest_first)})(?![\w-])", re.IGNORECASE)
    found = set()
    for text in texts:
        for match in pattern.finditer(text.text):
            word = words[match.group().lower()]
            if not _is_excepted(scope, word, text):
                shown = text.text.strip()[:100]
                found.add(f"{text.where}: “{shown}”: {word} → {LANGUAGE[scope][word]}")
    return sorted(found)


def _named(scope: str, names: tuple[Text, ...], *, whole: bool = False) -> list[str]:
    found = set()
    spelled = {text: " ".join(words_of(text.text)) for text in names}
    for word, name in LANGUAGE[scope].items():
        part = " ".join(words_of(word))
        for text, named in spelled.items():
            is_found = named == part if whole or word[0] == "=" else f" {part} " in f" {named} "
            if is_found and not _is_excepted(scope, word, text):
                found.add(f"{text.where}: {text.text}: {word} → {name}")
    return sorted(found)


def _headings() -> tuple[Text, ...]:
    return tuple(line for line in document_lines() if line.text.startswith("#"))


LABELLED = (template_labels, code_labels, _headings)
SHOWN = (template_texts, tag_texts, code_sentences, code_labels, document_lines)


def _classes() -> tuple[Text, ...]:
    return tuple(text for text, is_class in definitions() if is_class)


def _identifiers() -> tuple[Text, ...]:
    return tuple(text for text, _ in definitions())


@pytest.mark.parametrize("texts", LABELLED)
def test_no_label_uses_a_retired_word(texts: Any) -> None:
    assert _found("label", texts()) == []


@pytest.mark.parametrize("texts", [*SHOWN, docstrings, comments])
def test_no_text_uses_a_retired_word(texts: Any) -> None:
    assert _found("prose", texts()) == []


@pytest.mark.parametrize("texts", SHOWN)
def test_no_text_that_is_shown_uses_a_retired_phrase(texts: Any) -> None:
    assert _found("page", texts()) == []


def test_no_module_has_a_retired_name() -> None:
    assert _named("module", module_names()) == []


def test_no_class_has_a_generic_or_retired_name() -> None:
    assert _named("class", _classes(), whole=True) == []


def test_no_definition_has_a_retired_word_in_its_name() -> None:
    assert _named("identifier", _identifiers()) == []


def test_no_style_or_address_has_a_retired_name() -> None:
    assert _named("markup", markup_names()) == []


def test_no_test_has_a_retired_noun_in_its_name() -> None:
    assert _named("test", names_of_tests()) == []


@pytest.mark.parametrize("labels", [template_labels, code_labels])
def test_labels_have_at_most_three_words(labels: Any) -> None:
    long = [
        f"{text.where}: {text.text}"
        for text in labels()
        if len(re.findall(r"\w\S*", text.text)) > LABEL_WORDS
        if not _is_excepted("length", "", text)
    ]
    assert long == []


def test_lines_of_documents_are_short() -> None:
    # Rows of tables cannot be broken, nor can commands.
    long = [
        _where(path, number)
        for path in _paths("*.md", *(f"{folder}/**/*.md" for folder in DOCUMENTED))
        for number, line in enumerate(_without_fences(path.read_text(encoding="utf-8")), 1)
        if len(line) > DOCUMENT_COLUMNS
        if not line.lstrip().startswith("|") and not line.startswith("    ")
    ]
    assert long == []


@pytest.mark.parametrize("exception", LANGUAGE["exception"], ids=lambda one: one["reason"][:40])
def test_an_exception_has_a_reason(exception: Mapping[str, Any]) -> None:
    assert len(exception["reason"].split()) > 2

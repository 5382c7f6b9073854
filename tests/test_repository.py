"""The repository as a whole: what is in it, and that its documents say what the code does."""

import ast
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 1_000_000
# Published traces, kept as they came, packed.
MOST_BYTES_OF_DATA = 2_000_000
DATA = ROOT / "simulator" / "data"
# Homes of developers' machines, put together here so that this file does not hold them itself.
MACHINE_PATH = re.compile(r"(?<![\w.])/(" + "|".join(("root", "home", "Users", "work")) + r")/\w")
SERVICES = ["web", "worker", "quota_requests", "beat", "watch", "postgres", "redis", "prometheus"]
# Variables that are no setting of ours: what Python, Django, pip and CI read themselves.
NOT_OURS = {"CELERY_SKIP_CHECKS", "CI", "DJANGO_SETTINGS_MODULE", "PATH"}
NOT_OURS |= {"PYTHONUNBUFFERED", "PROMETHEUS_MULTIPROC_DIR"}
ENV_READERS = {
    "amount",
    "levels",
    "text",
    "flag",
    "whole",
    "days",
    "folder",
    "port",
    "fraction",
    "one_of",
    "words",
    "origins",
    "rate",
}


@cache
def files() -> tuple[Path, ...]:
    """Return every file that git keeps or would keep."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607 - git of the PATH
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return tuple(path for path in paths if path.is_file() or path.is_symlink())


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def documents() -> list[Path]:
    return [path for path in files() if path.suffix == ".md"]


# ---------------------------------------------------------------- files


def test_no_file_is_large() -> None:
    large = [
        (str(path.relative_to(ROOT)), path.stat().st_size)
        for path in files()
        if path.stat().st_size > (MOST_BYTES_OF_DATA if DATA in path.parents else MOST_BYTES)
    ]
    assert large == []


def test_no_path_of_a_machine_is_in_any_file() -> None:
    found = []
    for path in files():
        try:
            content = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {m.group()}" for m in MACHINE_PATH.finditer(content)]
    assert found == []


def test_nothing_that_is_made_at_run_time_is_kept() -> None:
    tops = {path.relative_to(ROOT).parts[0] for path in files()}
    assert not tops & {"var", ".venv", "node_modules"}


def test_front_end_packages_name_no_registry() -> None:
    assert '"resolved"' not in text("package-lock.json")


LISTS = ("requirements.txt", "requirements-parquet.txt", "requirements-dev.txt", "scripts/node.txt")


@pytest.mark.parametrize("name", [*LISTS, "tests/costs/focus_validator.txt"])
def test_every_python_package_is_pinned_with_its_hashes(name: str) -> None:
    written = re.sub(r" *#.*", "", text(name)).replace("\\\n", " ")
    lines = [line for line in written.splitlines() if line.strip()]
    pinned = re.compile(r"[\w.\[\]-]+==[\w.!+]+( ; [^;]+?)?( +--hash=sha256:[0-9a-f]{64})+ *")
    assert [line for line in lines if not pinned.fullmatch(line)] == []


def test_what_runs_is_pinned_alike_for_running_and_testing() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[\w.\[\]-]+==.+?(?= \\$)", text(name), flags=re.MULTILINE))

    runtime = pins("requirements.txt") | pins("requirements-parquet.txt")
    assert runtime <= pins("requirements-dev.txt")


def test_the_licence_is_apache_2() -> None:
    assert "Apache License\n                           Version 2.0, January 2004" in text("LICENSE")


@pytest.mark.parametrize("name", [".ci/run", "scripts/setup.py", "manage.py"])
def test_scripts_can_be_run(name: str) -> None:
    assert (ROOT / name).stat().st_mode & stat.S_IXUSR


# ---------------------------------------------------------------- documents


def test_the_changelog_has_unreleased_on_top() -> None:
    assert re.findall(r"^## (.+)$", text("CHANGELOG.md"), flags=re.MULTILINE)[0] == "Unreleased"


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name) if name else document
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert broken == []


def test_code_refers_to_documents_that_are_there() -> None:
    broken = []
    for path in files():
        if path.suffix != ".py":
            continue
        for name, anchor in re.findall(
            r"\b(docs/[\w/-]+\.(?:md|yaml))(?:#([\w-]+))?", path.read_text(encoding="utf-8")
        ):
            document = ROOT / name
            if not document.exists() or (anchor and anchor not in anchors(document)):
                broken.append(f"{path.relative_to(ROOT)}: {name}#{anchor}")
    assert broken == []


def test_documented_commands_exist() -> None:
    rows = re.findall(r"^\| `(\w+)[ `].*\|", text("docs/operations.md"), flags=re.MULTILINE)
    own = {name for name, app in get_commands().items() if str(app).startswith("apps.")}
    assert {*own, "axes_reset_username"} - {"demo_story"} <= set(rows)
    assert set(rows) <= set(get_commands())


# ---------------------------------------------------------------- configuration


READS = re.compile(r"\b(?:env\.|os\.(?:environ|getenv)\b)")


@cache
def variables_read() -> frozenset[str]:
    """Return the environment variables that the code names, by reading its syntax."""
    # Of its place in the repository: a checkout may be in a folder called tests.
    paths = (
        path
        for path in files()
        if path.suffix == ".py" and "tests" not in path.relative_to(ROOT).parts
    )
    texts = (path.read_text(encoding="utf-8") for path in paths)
    # Few files read any, and to read the syntax of all takes seconds.
    return frozenset(
        name for text in texts if READS.search(text) for name in _names(ast.parse(text))
    )


def _names(tree: ast.AST) -> Iterator[str]:
    constants = {
        node.targets[0].id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _reads(ast.unparse(node.func)):
            yield from _word(node.args[0], constants)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            yield from _word(node.slice, constants)


def _reads(function: str) -> bool:
    module, _, name = function.rpartition(".")
    return (module == "env" and name in ENV_READERS) or function in {
        "os.environ.get",
        "os.environ.setdefault",
        "os.getenv",
    }


def _word(node: ast.expr, constants: dict[str, Any]) -> Iterator[str]:
    value = constants.get(node.id) if isinstance(node, ast.Name) else None
    if isinstance(node, ast.Constant):
        value = node.value
    if isinstance(value, str):
        yield value.removesuffix("_FILE")


def variables_documented() -> set[str]:
    return set(
        re.findall(r"^\| `([A-Z0-9_]+)` \|", text("docs/configuration.md"), flags=re.MULTILINE)
    )


def test_every_variable_that_is_read_is_documented() -> None:
    read = variables_read() - NOT_OURS
    assert {"DATABASE_URL", "GPUPORTAL_VAR_DIR", "PORT", "GPUPORTAL_LAB_ORIGIN"} <= read
    assert read - variables_documented() == set()


def test_every_documented_variable_is_read() -> None:
    in_compose = set(re.findall(r"\$\{([A-Z_]+)", text("docker-compose.yml")))
    assert variables_documented() - variables_read() - in_compose == set()


# ---------------------------------------------------------------- docker compose


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text("docker-compose.yml"))
    return loaded


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"][name]
    return found


def test_compose_has_the_services() -> None:
    assert list(compose()["services"]) == ["migrate", *SERVICES]
    # It ends once the tables are up to date, so it is neither checked nor started again.
    migrate = service("migrate")
    assert migrate["command"] == "python manage.py migrate --noinput"
    assert migrate["restart"] == "on-failure"


@pytest.mark.parametrize("name", ["migrate", *SERVICES])
def test_a_service_has_bounds_and_time_to_stop(name: str) -> None:
    assert {"mem_limit", "stop_grace_period"} <= service(name).keys()


def test_web_and_worker_share_the_folder_of_exports() -> None:
    for name in ("web", "worker"):
        folder = service(name)["environment"]["GPUPORTAL_EXPORTS_DIR"]
        assert f"exports:{folder}" in service(name)["volumes"]
        assert f"portal {folder}" in text("Dockerfile") or f" {folder}\n" in text("Dockerfile")


def test_redis_has_a_password() -> None:
    assert "requirepass" in service("redis")["command"][-1]
    assert "redis_password" in service("redis")["secrets"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_checked_and_comes_back(name: str) -> None:
    check = service(name)["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries"} <= check.keys()
    assert service(name)["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_healthy_ones(name: str) -> None:
    needed = service(name).get("depends_on", {})
    for other, entry in needed.items():
        ended = other == "migrate"
        wanted = "service_completed_successfully" if ended else "service_healthy"
        assert entry == {"condition": wanted}
    assert set(needed) <= {"migrate", *SERVICES}


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_on_this_machine_alone(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service(name).get("ports", ()))


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    assert re.search(r":(local|v?\d[\w.-]*)$", service(name)["image"])


def test_data_lives_in_named_volumes() -> None:
    named = set(compose()["volumes"])
    mounts = {
        mount.partition(":")[0]: mount
        for entry in compose()["services"].values()
        for mount in entry.get("volumes", ())
    }
    assert named <= set(mounts)
    assert {"postgres-data", "redis-data", "prometheus-data"} <= named
    host = {source: mount for source, mount in mounts.items() if source not in named}
    assert all(source.startswith("./") and mount.endswith(":ro") for source, mount in host.items())


@pytest.mark.parametrize("name", SERVICES)
def test_secrets_come_as_files(name: str) -> None:
    entry = service(name)
    for variable, value in entry.get("environment", {}).items():
        assert not re.search(
            r"PASSWORD|SECRET|TOKEN|DATABASE_URL", variable.removesuffix("_FILE")
        ) or (variable.endswith("_FILE"))
        if variable.endswith("_FILE"):
            secret = value.removeprefix("/run/secrets/")
            assert secret in entry["secrets"]
            assert secret in compose()["secrets"]


@pytest.mark.parametrize("name", ["web", "worker", "quota_requests", "beat", "watch"])
def test_secrets_that_the_catalog_names_can_be_passed(name: str) -> None:
    (given,) = service(name)["env_file"]
    assert given == {"path": "./var/portal.env", "required": False}
    assert "var/portal.env" in text("docs/operations.md")


@pytest.mark.parametrize("name", ["web", "worker", "quota_requests", "beat", "watch"])
def test_settings_know_the_variables_of_compose(name: str) -> None:
    given = {variable.removesuffix("_FILE") for variable in service(name)["environment"]}
    assert given <= variables_read()
    assert service(name)["environment"]["GPUPORTAL_ENV"] == "production"
    port = service(name)["environment"]["GPUPORTAL_METRICS_PORT"]
    assert f'"{name}:{port}"' in text("deploy/prometheus.yml")


def test_the_procfile_names_the_processes_of_compose() -> None:
    lines = dict(re.findall(r"^(\w+): (.+)$", text("Procfile"), flags=re.MULTILINE))
    assert list(lines) == ["web", "worker", "quota_requests", "beat", "watch"]
    for name in ("worker", "quota_requests", "beat", "watch"):
        assert lines[name] == service(name)["command"]


def test_the_image_holds_what_the_services_run() -> None:
    copied = set(re.findall(r"^COPY (?:--\S+ )?(\S+)", text("Dockerfile"), flags=re.MULTILINE))
    sent = set(re.findall(r"^!(\S+)", text(".dockerignore"), flags=re.MULTILINE))
    assert {"apps", "gpuportal", "templates", "static", "manage.py"} <= copied & sent
    # Of the scripts, only the one that containers run.
    assert "scripts/healthcheck.py" in copied
    assert "USER 10001" in text("Dockerfile")


# ---------------------------------------------------------------- other manifests


@pytest.mark.prometheus
def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    # promtool warns of target files that are not there; an empty folder of them is the usual case.
    targets = tmp_path / "targets"
    targets.mkdir()
    (targets / "west.yml").write_text("[]", encoding="ascii")
    written = text("deploy/prometheus.yml").replace("/etc/prometheus/targets", str(targets))
    (tmp_path / "prometheus.yml").write_text(written, encoding="utf-8")
    subprocess.run(  # noqa: S603 - our own words
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")],  # noqa: S607 - of the PATH
        check=True,
        capture_output=True,
    )


# ---------------------------------------------------------------- make


def test_make_has_the_targets() -> None:
    targets = [
        "setup",
        "run",
        "test",
        "check",
        "check-full",
        "fix",
        "demo",
        "truths",
        "bench",
        "lock",
    ]
    told = subprocess.run(  # noqa: S603 - our own words
        ["make", "--dry-run", *targets, "lock"],  # noqa: S607 - of the PATH
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr


def test_make_lets_python_keep_what_it_compiled() -> None:
    told = subprocess.run(
        ["make", "--silent", "--eval", 'told: ; @echo "<$$PYTHONDONTWRITEBYTECODE>"', "told"],  # noqa: S607 - of the PATH
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "<>\n"


def test_make_truths_takes_traces_through_the_lab_and_through_the_portal() -> None:
    told = subprocess.run(
        ["make", "--dry-run", "truths"],  # noqa: S607 - of the PATH
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "-m tests.simulator.truths" in told.stdout
    for trace in ("truths", "openb_truths"):
        assert re.search(rf"-m tests\.servers -- \S+ -m tests\.{trace}\b", told.stdout)


def test_the_image_serves_files_as_production_does() -> None:
    assert re.search(
        r"GPUPORTAL_ENV=production[^&]*collectstatic", text("Dockerfile"), flags=re.DOTALL
    )


def test_ci_runs_what_a_developer_runs() -> None:
    assert "make check" in text(".ci/run")
    check, static = (
        re.search(line, text("Makefile"), flags=re.MULTILINE)
        for line in (r"^check:(.*)##", r"^STATIC :=(.*)$")
    )
    assert check is not None
    assert static is not None
    assert {"static", "test-all", "test-sqlite"} <= set(check.group(1).split())
    assert {"lint", "types", "contracts", "dead", "migrations", "templates"} <= set(
        static.group(1).split()
    )


def test_explained_figures_name_sections_of_the_definitions() -> None:
    sections = anchors(ROOT / "docs" / "definitions.md")
    named = {
        anchor
        for path in (ROOT / "apps").rglob("*.py")
        for anchor in re.findall(r'\banchor="([a-z-]+)"', path.read_text(encoding="utf-8"))
    }
    assert named <= sections

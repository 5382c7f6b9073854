"""The bench as a whole on its smallest data: every measure gives a figure, nothing is timed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.portal import portal
from tests.servers import ROOT

# Minutes by itself, and last of all: for check-full.
pytestmark = pytest.mark.exhaustive

EXACT = ("mean activity per device", "allocated from")
MEASURED = (
    "one hour collected ÷ curl",
    "peak memory of the worker",
    "CPU of the worker",
    "slot means, raw ranges with pandas ÷ ours",
    "slot means, our memory ÷ theirs",
    "mean activity per device and slot, hourly queries",
    "mean activity per device and slot, backfill queries",
    "allocated from metrics only, total",
    "allocated from metrics only, worst namespace",
    "an hour by namespace, recording rules: allocated, total off by",
    "allocated from the API",
    "two thirds shared: one hour collected ÷ the same of exclusive GPUs",
    "two thirds shared: one hour collected ÷ curl",
    "two thirds shared: allocated from the API",
    "written again ÷ bare executemany (SQLite)",
    "13 months by day and tier, endpoint ÷ bare SQL",
    "listed pods",
    "into records ÷ orjson",
    "the client's model classes",
    "SQLite: page overview, server's time",
    "PostgreSQL: page explain a team, server's time",
    "SQLite: chart of a tier",
    "PostgreSQL: chart of a team on a tier",
    "600 pods wait on 50 nodes: waiting page",
    "600 pods wait on 50 nodes: waiting refresh",
    "600 pods wait on 50 nodes: waiting look",
    "preflight of a pod",
    "preflight of 200 pods",
    "map of all nodes",
    "SQLite: 30 teams × 3 tiers: an hour of fairness computed",
    "30 teams × 3 tiers: an hour's measures alone",
    "PostgreSQL: 30 teams × 3 tiers, 10 days: read of all tiers",
    "30 teams × 3 tiers, 10 days: read of one tier",
    "SQLite: 30 teams × 3 tiers, 10 days: page of a statement",
    "PostgreSQL: 30 teams × 3 tiers, 10 days: page of teams",
    "SQLite: 300 keys of quotas, an hour summed",
    "PostgreSQL: 300 keys of quotas, read of 50 by name",
    "4,000 rows as csv ÷ the bare library",
    "1,000 rows as xlsx: peak memory",
    "4,000 rows of a year, from SQLite as parquet: peak memory",
)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """Run the quick bench on a database of the kind that the tests run on."""
    folder = tmp_path_factory.mktemp("bench")
    results = folder / "bench.json"
    with portal(folder) as made:
        done = subprocess.run(  # noqa: S603 - our own words
            [
                *(sys.executable, "-m", "tests.bench"),
                *("--data", str(folder / "data"), "--results", str(results)),
            ],
            cwd=ROOT,
            env=made.environment | {"BENCH": "quick"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found: list[dict[str, object]] = json.loads(Path(results).read_text(encoding="utf-8"))
    return found


@pytest.mark.prometheus
def test_every_measure_gives_a_number(figures: list[dict[str, object]]) -> None:
    names = [str(figure["name"]) for figure in figures]
    missing = [name for name in MEASURED if not any(name in known for known in names)]
    assert not missing
    for figure in figures:
        assert set(figure) == {"name", "value", "unit", "target", "holds"}
        assert isinstance(figure["value"], int | float)
        assert figure["holds"] in ({None} if figure["target"] is None else {True, False})


@pytest.mark.prometheus
def test_what_the_portal_finds_out_is_exact(figures: list[dict[str, object]]) -> None:
    exact = [f for f in figures if any(words in str(f["name"]) for words in EXACT)]
    assert len(exact) == 10
    assert [f for f in exact if not f["holds"]] == []

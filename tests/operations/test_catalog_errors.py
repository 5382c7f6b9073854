"""A broken catalog is refused with every error's line, path and text, and nothing else happens."""

from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import yaml
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.domain.tiers import CapacityType, GpuSharing
from apps.operations.domain import schema
from apps.operations.domain.source_positions import CatalogError
from apps.operations.services.catalog.yaml_reader import read_catalog

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
CATALOGS = Path(__file__).parent / "catalogs"


def _broken() -> list[object]:
    """Return (text, errors) of each case in broken.txt."""
    cases: list[object] = []
    for part in (CATALOGS / "broken.txt").read_text(encoding="utf-8").split("\n=== ")[1:]:
        title, body = part.split("\n", 1)
        lines = body.splitlines()
        errors = [line.removeprefix("=> ") for line in lines if line.startswith("=> ")]
        text = "\n".join(line for line in lines if line and not line.startswith("=> ")) + "\n"
        cases.append(pytest.param(text, errors, id=title))
    return cases


@pytest.mark.parametrize(("text", "errors"), _broken())
def test_each_broken_catalog_names_all_its_errors(text: str, errors: list[str]) -> None:
    with pytest.raises(CatalogError) as raised:
        read_catalog(text, "c.yaml", now=NOW)
    assert str(raised.value).split("\n") == [f"c.yaml:{error}" for error in errors]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("", "c:1: the catalog is empty; allowed are the keys", id="empty"),
        pytest.param("hello", 'c:1: "hello" is not a mapping; allowed are', id="one word"),
        pytest.param("[]", "c:1: the catalog is empty; allowed are the keys", id="empty list"),
        pytest.param("a: 1\nb: \0", "c:2: the character U+0000 is not allowed", id="NUL"),
        pytest.param('a: "\\UFFFFFFFF"', "c:1: is not YAML: ", id="escape beyond Unicode"),
        pytest.param("a: " + "[" * 3000, "c:1: values are nested more than 12 deep", id="deep"),
        pytest.param(
            "a: &a ["
            + "x," * 10
            + "]\n"
            + "".join(
                f"{name}: &{name} [{f'*{before},' * 10}]\n"
                for before, name in zip("abcdef", "bcdefg", strict=True)
            ),
            "c:6: aliases make more than 500,000 values",
            id="alias bomb",
        ),
        pytest.param(
            "teams: [{" + "k" * 500 + ": 1}]", "c:1: teams[0].name: is mis", id="long key"
        ),
    ],
)
def test_a_text_that_no_one_would_write_is_refused(text: str, error: str) -> None:
    with pytest.raises(CatalogError) as raised:
        read_catalog(text, "c", now=NOW)
    assert str(raised.value).startswith(error)


def test_no_error_shows_a_secret() -> None:
    text = (CATALOGS / "broken.txt").read_text(encoding="utf-8")
    assert "hunter2" in text
    assert not [line for line in text.splitlines() if line.startswith("=>") and "hunter2" in line]


def test_plain_words_are_read_by_the_core_schema_of_yaml_1_2() -> None:
    catalog, _ = read_catalog(
        "teams:\n"
        "  - {name: no, leads: [on, yes], namespaces: [off], cost_center: 0x10}\n"
        "  - {name: !!str 12, namespaces: ['7']}\n"
        "tiers: [{name: t, sharing: mig, resources: [nvidia.com/gpu]}]\n",
        "c",
        now=NOW,
    )
    no, twelve = catalog.teams
    assert (no.name, no.leads, no.namespaces, no.cost_center) == (
        "no",
        ("on", "yes"),
        ("off",),
        "0x10",
    )
    assert (twelve.name, twelve.namespaces) == ("12", ("7",))


def test_an_alias_repeats_the_value_of_its_anchor() -> None:
    catalog, _ = read_catalog(
        "teams:\n"
        "  - {name: a, budgets: &usual [{period: month, gpu_hours: 100}]}\n"
        "  - {name: b, budgets: *usual}\n",
        "c",
        now=NOW,
    )
    assert catalog.teams[0].budgets == catalog.teams[1].budgets != ()


def test_every_kind_of_value_that_is_allowed_is_read() -> None:
    text = (CATALOGS / "every-key.yaml").read_text(encoding="utf-8")
    catalog, _ = read_catalog(text, "c", now=NOW)
    assert [cluster.name for cluster in catalog.clusters] == [
        *("west", "inside", "lab", "metrics", "mimir", "azure", "aws", "google", "hpc"),
    ]
    assert [tier.sharing.value for tier in catalog.tiers] == [
        "dra",
        "mig",
        "time-sliced",
        "mps",
        "exclusive",
        "exclusive",
    ]


_WORDS = st.sampled_from(
    [
        *("clusters", "tiers", "teams", "prices", "report", "name", "sharing", "resources"),
        *("namespaces", "entitlements", "budgets", "period", "money", "valid_from", "time_zone"),
        *("prometheus", "url", "http://p", "mig", "month", "2026-01-01", "1e9", "-1", "~", "on"),
        *('"', "'", "\\", "\\U0011FFFF", "&a ", "*a", "<<", "!!int ", "%YAML 1.1", "---", "..."),
        *("- ", ": ", ", ", "[", "]", "{", "}", "\n", "\n  ", "\t", "? ", "|", ">", "#", "\ufeff"),
    ]
)


@given(st.one_of(st.text(), st.lists(_WORDS, max_size=40).map("".join)))
def test_any_text_is_read_or_refused_with_a_catalog_error(text: str) -> None:
    error = _refusal(text)
    if error is not None:
        assert error.problems
        assert all(line.startswith("c:") for line in str(error).split("\n"))
        assert str(error).encode()


def _refusal(text: str) -> CatalogError | None:
    """Return why a text is refused; None when it is read. Lets all other errors through."""
    try:
        read_catalog(text, "c", now=NOW)
    except CatalogError as error:
        return error
    return None


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), _WORDS
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(_WORDS, st.text()), inner, max_size=4),
    ),
    max_leaves=20,
)


@given(
    st.dictionaries(
        st.sampled_from(["clusters", "tiers", "teams", "prices", "report"]), _VALUES, min_size=1
    )
)
def test_any_value_in_any_place_is_read_or_refused_with_a_catalog_error(value: object) -> None:
    error = _refusal(yaml.safe_dump(value, allow_unicode=True))
    assert error is None or error.problems


def test_the_documentation_has_the_example_and_every_key() -> None:
    text = (settings.BASE_DIR / "docs" / "catalog.md").read_text(encoding="utf-8")
    example = (CATALOGS / "design.yaml").read_text(encoding="utf-8")
    assert f"```yaml\n{example}```\n" in text
    kinds: dict[type[msgspec.Struct], str] = {
        schema.Cluster: "",
        schema.Prometheus: "prometheus.",
        schema.OAuth2: "",
        schema.Kubernetes: "kubernetes.",
        schema.Tier: "",
        schema.Team: "",
        schema.Budget: "",
        schema.Price: "",
        schema.ServingObjective: "",
        schema.Report: "",
    }
    keys = [before + f.name for kind, before in kinds.items() for f in msgspec.structs.fields(kind)]
    assert [key for key in keys if f"`{key}`" not in text] == []
    values = [*schema.Period, *GpuSharing, *CapacityType]
    assert [value for value in values if f"`{value}`" not in text] == []


@pytest.mark.parametrize(
    ("template", "taken"),
    [
        ("https://grafana.example.org/d/n?var-instance={node}", True),
        ("http://grafana/{cluster}/{node}", True),
        ("https://grafana.example.org/d/n", False),
        ("javascript:alert('{node}')", False),
        ("https://{node}.example.org/", False),
        ("https://grafana.example.org/{pod}/{node}", False),
    ],
)
def test_a_dashboard_template_names_the_node_after_a_host(template: str, taken: bool) -> None:
    text = f"""
clusters:
  - name: west
    prometheus: {{url: "http://west:9090", node_dashboard: "{template}"}}
tiers: [{{name: gold, sharing: exclusive, resources: [nvidia.com/gpu]}}]
"""
    with nullcontext() if taken else pytest.raises(CatalogError, match="node_dashboard"):
        read_catalog(text, "c", now=NOW)

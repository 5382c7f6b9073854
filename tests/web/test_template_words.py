"""Words of the templates."""

import pytest

from apps.web.components.formats import mebibytes
from apps.web.templatetags.portal import with_code


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("Nothing.", "Nothing.", id="plain"),
        pytest.param("Run `a b`.", "Run <code>a b</code>.", id="command"),
        pytest.param("`a` or `b`", "<code>a</code> or <code>b</code>", id="two"),
        pytest.param("<i> `<b>`", "&lt;i&gt; <code>&lt;b&gt;</code>", id="markup stays text"),
    ],
)
def test_commands_in_a_sentence_are_shown_as_code(text: str, shown: str) -> None:
    assert with_code(text) == shown


@pytest.mark.parametrize(
    ("amount", "written"),
    [(None, "–"), (0.0, "0 MiB"), (812.4, "812 MiB"), (1024.0, "1.0 GiB"), (40_960.0, "40.0 GiB")],
)
def test_memory_is_written_in_the_unit_that_suits_it(amount: float | None, written: str) -> None:
    assert mebibytes(amount) == written

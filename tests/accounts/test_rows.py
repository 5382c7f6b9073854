"""Rows made of what has the same names."""

import pytest
from msgspec import Struct

from apps.accounts.domain.rows import row_from


class PodOfTwo(Struct, frozen=True):
    kind: str
    name: str
    units: int = 1


def test_columns_are_copied_by_name_unless_they_are_given() -> None:
    source = PodOfTwo("Pod", "a", 2)
    assert row_from(PodOfTwo, source, kind="Job") == PodOfTwo("Job", "a", 2)


def test_a_default_does_not_hide_that_a_column_is_missing() -> None:
    with pytest.raises(AttributeError):
        row_from(PodOfTwo, object(), kind="Job", name="a")

"""Scopes of API tokens."""

from itertools import combinations

import pytest

from apps.accounts.domain.identity import SCOPE_SETS, TokenScope, packed_scopes, unpacked_scopes


@pytest.mark.parametrize("count", range(4))
def test_every_set_of_scopes_is_stored_with_reading(count: int) -> None:
    for chosen in combinations(TokenScope, count):
        assert packed_scopes(chosen) in SCOPE_SETS
        assert unpacked_scopes(packed_scopes(chosen)) == {TokenScope.READ, *chosen}


def test_what_was_never_stored_is_no_scope() -> None:
    with pytest.raises(ValueError, match="everything"):
        unpacked_scopes("read,everything")

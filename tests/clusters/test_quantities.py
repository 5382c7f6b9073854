"""Amounts as sentences say them."""

import pytest

from apps.clusters.domain.resources import gpus


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (1, "1 GPU"),
        (1.004, "1 GPU"),
        (0, "0 GPUs"),
        (2, "2 GPUs"),
        (4.03333, "4.03 GPUs"),
        (0.001, "<0.01 GPUs"),
        (-0.001, "0 GPUs"),
        (1200.5, "1,200.5 GPUs"),
    ],
)
def test_gpus_have_two_decimals_at_most_and_their_plural(amount: float, text: str) -> None:
    assert gpus(amount) == text

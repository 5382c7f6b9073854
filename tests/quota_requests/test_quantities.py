"""Quantities: exact, compared as amounts, refused where Kubernetes would change them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.quota_requests.domain.approval_policy import ApprovalRules, PolicyFacts, decide
from apps.quota_requests.domain.quantities import NotAQuantity, Quantity, counted, quantity


@pytest.mark.parametrize(
    ("written", "units", "text"),
    [
        pytest.param("8", "8", "8", id="whole"),
        pytest.param(8, "8", "8", id="number of a custom resource"),
        pytest.param("0", "0", "0", id="nothing"),
        pytest.param("+4", "4", "4", id="signed"),
        pytest.param("1500m", "1.5", "1500m", id="fraction"),
        pytest.param("1.5", "1.5", "1500m", id="decimal point"),
        pytest.param(".5", "0.5", "500m", id="no leading digit"),
        pytest.param("2.", "2", "2", id="no digit after the point"),
        pytest.param("2k", "2000", "2000", id="thousands in plain digits"),
        pytest.param("1Ki", "1024", "1024", id="binary"),
        pytest.param("12e2", "1200", "1200", id="exponent"),
        pytest.param("1E3", "1000", "1000", id="capital exponent"),
        pytest.param("1E", "1000000000000000000", "1000000000000000000", id="exa, not exponent"),
        pytest.param("5u", "0.000005", "5u", id="millionths"),
        pytest.param("7n", "0.000000007", "7n", id="billionths"),
        pytest.param("-1", "-1", "-1", id="negative is a quantity; a quota refuses it later"),
        pytest.param(str(2**63 - 1), str(2**63 - 1), str(2**63 - 1), id="the most"),
    ],
)
def test_a_quantity_is_read_and_printed_exactly(written: object, units: str, text: str) -> None:
    found = quantity(written)
    assert found.units == Decimal(units)
    assert found.text == str(found) == text


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("", id="empty"),
        pytest.param("eight", id="word"),
        pytest.param("8 ", id="blank"),
        pytest.param("8\n", id="line end"),
        pytest.param("1,5", id="comma"),
        pytest.param("1Kim", id="two suffixes"),
        pytest.param("0x8", id="hexadecimal"),
        pytest.param("٨", id="digit of another script"),
        pytest.param("NaN", id="not a number"),
        pytest.param("1e999", id="huge exponent"),
        pytest.param("9" * 41, id="very long"),
        pytest.param(str(2**63), id="over the most"),
        pytest.param("0.5n", id="finer than a billionth"),
        pytest.param(1.5, id="float"),
        pytest.param(True, id="truth value"),
        pytest.param(None, id="null"),
    ],
)
def test_what_kubernetes_would_not_keep_is_refused(written: object) -> None:
    with pytest.raises(NotAQuantity):
        quantity(written)


@pytest.mark.parametrize(("one", "other"), [("2", "2000m"), ("2k", "2000"), ("1.0", "1")])
def test_texts_of_one_amount_are_equal(one: str, other: str) -> None:
    assert quantity(one) == quantity(other)
    assert hash(quantity(one)) == hash(quantity(other))


def test_amounts_compare_and_subtract_as_numbers() -> None:
    assert quantity("9") < quantity("10")
    assert quantity("2") - quantity("500m") == quantity("1500m")
    assert quantity("2") + quantity("500m") == quantity("2500m")
    assert not quantity("1500m").whole
    assert quantity("3000m").whole


@given(st.integers(min_value=-(2**63 - 1) * 10**9, max_value=(2**63 - 1) * 10**9))
def test_what_is_printed_reads_as_the_same_amount(nanos: int) -> None:
    found = Quantity(nanos)
    assert quantity(found.text) == found


@pytest.mark.parametrize(
    ("amount", "words"), [(1, "1 day"), (2, "2 days"), ("0.5", "0.5 days"), (0, "0 days")]
)
def test_one_is_not_several(amount: object, words: str) -> None:
    assert counted(amount, "day") == words


def test_a_raise_of_one_gpu_is_not_one_of_gpus() -> None:
    facts = PolicyFacts(
        gpus=1.0,
        entitled_gpus_after=1.0,
        fair_share_gpus=1.0,
        no_budget=True,
        cost_per_month=None,
        currency="USD",
        shared=False,
        used_above_new_limit=False,
        foreign_owner=False,
    )
    said = [
        one.sentence
        for one in decide(facts, ApprovalRules(two_from_gpus=1.0), decrease=False).checks
    ]
    assert not [sentence for sentence in said if "1 GPUs" in sentence]
    assert "A raise of 1 GPU: from 1 on two people decide." in said

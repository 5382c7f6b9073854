from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from apps.accounts.domain.structs import replace
from apps.costs.domain.prices import (
    PriceBook,
    PriceEntry,
    PriceKind,
    amortised,
    doubt,
    energy_cost,
)

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
A100 = "NVIDIA-A100-SXM4-80GB"
GENERAL = PriceEntry(A100, "on-demand", Decimal("3.06"), "USD", NEW_YEAR)


def found(book: PriceBook, **asked: object) -> str | None:
    place = {
        "cluster": "west",
        "tier": "exclusive",
        "gpu_model": A100,
        "capacity_type": "on-demand",
        "at": NEW_YEAR + timedelta(days=30),
    }
    entry = book.price(**(place | asked))  # type: ignore[arg-type]
    return None if entry is None else str(entry.per_gpu_hour)


@pytest.mark.parametrize(
    ("changes", "asked", "price"),
    [
        pytest.param({}, {}, "3.06", id="a general price holds everywhere"),
        pytest.param({"cluster": "west"}, {}, "9", id="a cluster's own goes before"),
        pytest.param({"tier": "exclusive"}, {}, "9", id="so does a tier's own"),
        pytest.param({"cluster": "east"}, {}, "3.06", id="another cluster's does not count"),
        pytest.param(
            {"valid_from": NEW_YEAR + timedelta(days=30)}, {}, "9", id="a later price replaces"
        ),
        pytest.param(
            {"valid_from": NEW_YEAR + timedelta(days=31)}, {}, "3.06", id="not before it starts"
        ),
        pytest.param(
            {
                "valid_from": NEW_YEAR + timedelta(days=1),
                "valid_to": NEW_YEAR + timedelta(days=30),
            },
            {},
            "3.06",
            id="nor from when it ends",
        ),
        pytest.param({"capacity_type": "spot"}, {}, "3.06", id="spot is another price"),
        pytest.param(
            {"capacity_type": "spot"}, {"capacity_type": "spot"}, "9", id="for spot capacity"
        ),
        pytest.param(
            {"capacity_type": "owned"},
            {"capacity_type": "unknown"},
            "9",
            id="capacity that says nothing is owned where that has a price",
        ),
        pytest.param(
            {"cluster": "east"}, {"capacity_type": "unknown"}, "3.06", id="else on demand"
        ),
        pytest.param(
            {"cluster": "east", "capacity_type": "owned"},
            {"capacity_type": "unknown"},
            "3.06",
            id="owned elsewhere is not owned here",
        ),
        pytest.param(
            {"cluster": "west", "tier": "shared"}, {}, "3.06", id="both places must be its own"
        ),
        pytest.param({}, {"gpu_model": "nvidia a100 sxm4 80gb"}, "3.06", id="models by key"),
        pytest.param({}, {"gpu_model": "H100"}, None, id="no price is none, not zero"),
        pytest.param({}, {"capacity_type": "reserved"}, None, id="reserved is not on demand"),
        pytest.param({}, {"at": NEW_YEAR - timedelta(hours=1)}, None, id="before all prices"),
    ],
)
def test_the_price_of_a_gpu_hour(
    changes: dict[str, object], asked: dict[str, object], price: str | None
) -> None:
    other = [replace(GENERAL, per_gpu_hour=Decimal(9), **changes)] if changes else []  # type: ignore[arg-type]
    for entries in ([GENERAL, *other], [*other, GENERAL]):
        assert found(PriceBook(entries), **asked) == price


def test_cluster_and_tier_go_before_cluster_and_that_before_tier() -> None:
    entries = [
        GENERAL,
        replace(GENERAL, tier="exclusive", per_gpu_hour=Decimal(1)),
        replace(GENERAL, cluster="west", per_gpu_hour=Decimal(2)),
        replace(GENERAL, cluster="west", tier="exclusive", per_gpu_hour=Decimal(3)),
    ]
    assert [found(PriceBook(entries[:count])) for count in (1, 2, 3, 4)] == ["3.06", "1", "2", "3"]


def test_two_prices_of_one_place_cannot_start_together() -> None:
    twice = [GENERAL, replace(GENERAL, gpu_model=A100.replace("-", " "), kind=PriceKind.NEGOTIATED)]
    with pytest.raises(ValueError, match="start together"):
        PriceBook(twice)


def test_a_discount_is_taken_off_once_and_rounded_to_the_unit() -> None:
    entry = replace(GENERAL, per_gpu_hour=Decimal("1.00000001"), discount=Decimal("0.333"))
    assert entry.contracted == Decimal("0.66700001")
    assert entry.contracted_units == 66_700_001


@pytest.mark.parametrize(
    "changes",
    [
        {"per_gpu_hour": Decimal(-1)},
        {"per_gpu_hour": Decimal("NaN")},
        {"discount": Decimal("1.1")},
        {"valid_to": NEW_YEAR},
        {"valid_from": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is what is refused
    ],
    ids=str,
)
def test_a_price_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"price|discount"):
        replace(GENERAL, **changes)  # type: ignore[arg-type]


def test_the_version_is_of_what_the_entries_say_and_not_of_their_order() -> None:
    spot = replace(GENERAL, capacity_type="spot", per_gpu_hour=Decimal("1.10"))
    version = PriceBook([GENERAL, spot]).version
    assert PriceBook([replace(spot, per_gpu_hour=Decimal("1.1")), GENERAL]).version == version
    assert PriceBook([GENERAL, replace(spot, per_gpu_hour=Decimal("1.2"))]).version != version
    assert len(version) == 12


def test_a_tariff_is_part_of_the_version_and_a_book_without_any_keeps_its_own() -> None:
    assert PriceBook([GENERAL]).version == PriceBook([replace(GENERAL, pue=Decimal(2))]).version
    tariffs = [replace(GENERAL, per_kwh=Decimal(tariff)) for tariff in ("0.3", "0.30", "0.4")]
    first, same, other = (PriceBook([one]).version for one in tariffs)
    assert first == same != other != PriceBook([GENERAL]).version


def test_owned_hardware_is_written_off_evenly() -> None:
    # 400,000 for 8 GPUs over 5 years, 40,000 left: 360,000 / (8 × 43,800 h).
    per_hour = amortised(Decimal(400_000), gpus=8, years=Decimal(5), residual=Decimal(40_000))
    assert per_hour == Decimal("1.02739726")


@pytest.mark.parametrize(
    ("gpus", "years", "residual"), [(0, 5, 0), (8, 0, 0), (8, 5, 400_001), (8, 5, -1)]
)
def test_hardware_that_cannot_be_written_off_is_refused(
    gpus: int, years: int, residual: int
) -> None:
    with pytest.raises(ValueError, match=r"written off|residual"):
        amortised(Decimal(400_000), gpus=gpus, years=Decimal(years), residual=Decimal(residual))


def test_energy_is_priced_per_kilowatt_hour_of_the_site() -> None:
    # 700 W for an hour at 0.30 and a PUE of 1.4: 0.7 × 0.3 × 1.4.
    assert energy_cost(700_000, per_kwh=Decimal("0.30"), pue=Decimal("1.4")) == 29_400_000
    with pytest.raises(ValueError, match="PUE"):
        energy_cost(1, per_kwh=Decimal(1), pue=Decimal("0.9"))


@pytest.mark.parametrize(
    ("model", "price", "currency", "said"),
    [
        (A100, "3.06", "USD", None),
        (A100, "2233.80", "USD", 'price per month: per_gpu_hour would be "3.06"'),
        (A100, "306", "USD", "hundredths"),
        (A100, "73.44", "USD", 'price per day: per_gpu_hour would be "3.06"'),
        (A100, "26805.6", "EUR", 'price per year: per_gpu_hour would be "3.06"'),
        (A100, "460", "JPY", None),
        (A100, "0.001", "USD", "Check the number"),
        (A100, "0", "USD", "leave the entry out"),
        (A100, "2233.80", "XAU", None),
        (A100, "1000001", "XAU", "currency of larger units"),
        ("Some-GPU-9", "900", "USD", "price per month"),
        ("Tesla-T4", "255.5", "USD", 'price per month: per_gpu_hour would be "0.35"'),
    ],
)
def test_a_price_that_looks_mistyped_is_doubted(
    model: str, price: str, currency: str, said: str | None
) -> None:
    complaint = doubt(
        replace(GENERAL, gpu_model=model, per_gpu_hour=Decimal(price), currency=currency)
    )
    assert (complaint is None) if said is None else said in (complaint or "")

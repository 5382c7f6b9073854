import csv
from pathlib import Path

import pytest

from apps.clusters.domain.devices.mig import Geometry, fewest_gpus, geometry, mig_part, part_of

_FACTS = Path(__file__).parent / "facts" / "mig-profiles.csv"
_MODELS = {
    "A100-40GB": "NVIDIA A100-SXM4-40GB",
    "A100-80GB": "NVIDIA-A100-SXM4-80GB",
    "H100-80GB": "NVIDIA H100 80GB HBM3",
    "H100-NVL-94GB": "NVIDIA H100 NVL",
    "H100-96GB / GH200-96GB / H20-96GB": "NVIDIA GH200 480GB",
    "H200-141GB": "NVIDIA H200",
    "GH200-144GB": "NVIDIA GH200 144G HBM3e",
    "B200-180GB": "NVIDIA B200",
    "GB200-186GB": "NVIDIA GB200",
    "B300-269GB": "NVIDIA B300 SXM6 AC",
    "A30-24GB": "NVIDIA A30",
    "RTX-PRO-6000-Blackwell-96GB": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}


def _rows() -> list[dict[str, str]]:
    with _FACTS.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("row", _rows(), ids=lambda row: f"{row['gpu']} {row['profile']}")
def test_the_geometry_of_every_known_part_and_profile(row: dict[str, str]) -> None:
    expected = Geometry(
        int(row["compute_slices"]),
        int(row["compute_slices_total"]),
        int(row["memory_slices"]),
        int(row["memory_slices_total"]),
        int(row["max_instances"]),
    )
    assert geometry(row["profile"], _MODELS[row["gpu"]]) == expected
    assert mig_part(row["profile"], _MODELS[row["gpu"]]) == pytest.approx(
        float(row["compute_fraction"]), abs=5e-5
    )


@pytest.mark.parametrize(
    ("profile", "model", "expected"),
    [
        pytest.param("1g.10gb", "NVIDIA A100-SXM4-40GB", (1, 7, 2, 8), id="double memory"),
        pytest.param("1g.10gb", "NVIDIA A100-SXM4-80GB", (1, 7, 1, 8), id="the same name, half"),
        pytest.param("1g.24gb", "NVIDIA H100 NVL", (1, 7, 2, 8), id="of seven"),
        pytest.param("1g.24gb", "NVIDIA RTX PRO 6000", (1, 4, 1, 4), id="of four"),
        pytest.param("1g.10gb+me", "NVIDIA A100-SXM4-80GB", (1, 7, 1, 8), id="media engines"),
        pytest.param("1g.10gb.me", "NVIDIA-A100-SXM4-80GB", (1, 7, 1, 8), id="as a label"),
        pytest.param("2g.20gb", "Some New GPU", (2, 7, 2, 8), id="unknown model, known profile"),
        pytest.param("3g.400gb", "Some New GPU", (3, 7, 3, 8), id="unknown altogether"),
        pytest.param("2g.96gb", "NVIDIA GB300", (2, 7, 3, 8), id="unknown profile of a known part"),
    ],
)
def test_what_a_profile_is_depends_on_the_model(
    profile: str, model: str, expected: tuple[int, int, int, int]
) -> None:
    found = geometry(profile, model)
    assert found is not None
    assert found[:4] == expected


def test_what_is_no_profile_is_a_whole_gpu() -> None:
    assert geometry("", "NVIDIA A100-SXM4-80GB") is None
    assert mig_part("", "NVIDIA A100-SXM4-80GB") == 1.0
    assert part_of("Tesla T4") is None


@pytest.mark.parametrize(
    ("counts", "gpus"),
    [
        pytest.param({"1g.10gb": 56}, 8, id="seven of one slice on each"),
        pytest.param({"3g.40gb": 2}, 1, id="two of three leave a slice over"),
        pytest.param({"3g.40gb": 2, "1g.10gb": 14}, 3, id="two layouts"),
        pytest.param({"1g.20gb": 5}, 2, id="memory is what fills"),
        pytest.param({"4g.40gb": 2}, 2, id="one of four at most"),
        pytest.param({"3g.40gb": 1, "4g.40gb": 1}, 1, id="three and four are seven"),
        pytest.param({}, 0, id="none"),
    ],
)
def test_on_how_few_gpus_mig_devices_fit(counts: dict[str, int], gpus: int) -> None:
    assert fewest_gpus(counts, "NVIDIA A100-SXM4-80GB") == gpus

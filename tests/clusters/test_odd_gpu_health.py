"""Counters of a GPU's health that show what cannot be: no error, no throttling, and no zero."""

from collections.abc import Callable, Iterator
from math import inf, nan
from pathlib import Path

import pytest

from apps.clusters.domain.devices.errors import GpuHealthHour, HealthMeasure
from tests.clusters.device_series import END
from tests.clusters.exporter_clusters import FIRST_HOUR, Clusters
from tests.clusters.openmetrics import ORIGIN, Series, scrapes, series, write
from tests.real_prometheus import RealPrometheus

pytestmark = pytest.mark.prometheus

# What DCGM writes where it has no value: of 32 and of 64 bits, and of fractions.
BLANKS = {"int32": 2147483632.0, "int64": 9223372036854775792.0, "fp64": 140737488355328.0}
ODD = {**BLANKS, "infinite": inf, "huge": 1e300}
_RISES = 600


def _from(before: float, after: float) -> Callable[[float], float]:
    return lambda at: after if at >= ORIGIN + _RISES else before


def _gpu(uuid: str, after: float, before: float | None = None) -> Iterator[Series]:
    own = {"cluster": "health", "job": "dcgm", "instance": "n1:9400", "UUID": uuid, "gpu": "0"}
    at = list(scrapes(ORIGIN - 900, END, phase=7.123))
    errors, heat = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_THERMAL_VIOLATION"
    yield series(errors, own, _from(0.0 if before is None else before, after), at)
    hot = (1e9, 61e9 if 0 < after < 1e3 else after or 1e9)
    yield series(heat, own, _from(hot[0] if before is None else before, hot[1]), at)


def _xids(uuid: str, *codes: float) -> Iterator[Series]:
    own = {"cluster": "health", "job": "dcgm", "instance": "n1:9400", "UUID": uuid, "gpu": "0"}
    at = list(scrapes(ORIGIN - 900, END, phase=7.123))

    def code(now: float) -> float:
        return codes[min(len(codes) - 1, max(0, int(now - ORIGIN) // _RISES))]

    yield series("DCGM_FI_DEV_XID_ERRORS", own, code, at)


def _all_series() -> Iterator[Series]:
    yield from _gpu("sound", 3.0)
    for name, value in ODD.items():
        yield from _gpu(name, value)
    yield from _gpu("nan", nan, nan)
    yield from _gpu("quiet", 0.0)
    yield from _xids("xid-nan", 0.0, nan, 31.0)
    yield from _xids("xid-blank", 0.0, BLANKS["int32"], 31.0)
    yield from _xids("xid-infinite", 0.0, inf, -1.0, 31.0)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GpuHealthHour]:
    file = Path(tmp_path_factory.mktemp("openmetrics")) / "odd.prom"
    with RealPrometheus.loaded(write(file, _all_series())) as server:
        source = Clusters(server.url).source("health")
        answer = source.device_health(FIRST_HOUR)
        source.close()
    return {row.uuid: row for row in answer.rows if row.hour == ORIGIN}


def test_a_sound_gpu_has_its_errors(rows: dict[str, GpuHealthHour]) -> None:
    found = rows["sound"].growth
    assert found[HealthMeasure.ECC_UNCORRECTED] == 3
    assert found[HealthMeasure.THERMAL] == pytest.approx(60, rel=0.05)


@pytest.mark.parametrize("name", ODD)
def test_blanks_are_no_errors_and_no_throttling(rows: dict[str, GpuHealthHour], name: str) -> None:
    measures = (HealthMeasure.ECC_UNCORRECTED, HealthMeasure.THERMAL)
    found = {measure: rows[name].growth[measure] for measure in measures}
    # Two seconds and a bit of nanoseconds are what 32 bits of them can be.
    if name == "int32":
        found[HealthMeasure.THERMAL] = None
    assert found == dict.fromkeys(measures)


def test_a_gpu_whose_series_are_no_numbers_all_hour_is_no_data(
    rows: dict[str, GpuHealthHour],
) -> None:
    measures = (HealthMeasure.ECC_UNCORRECTED, HealthMeasure.THERMAL)
    assert rows["nan"].growth == dict.fromkeys(measures)
    assert "quiet" not in rows, "of those that are well not one is sent"


@pytest.mark.parametrize("uuid", ["xid-nan", "xid-blank", "xid-infinite"])
def test_what_is_no_code_is_no_error(rows: dict[str, GpuHealthHour], uuid: str) -> None:
    assert [event.code for event in rows[uuid].xids] == [31]

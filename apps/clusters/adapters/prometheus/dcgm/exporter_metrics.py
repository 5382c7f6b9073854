"""The metrics of each family of device exporters: their names, and the units of their values."""

from typing import NamedTuple

from apps.clusters.domain.devices.exporter_profile import Family

ACTIVITY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"  # fraction 0..1


UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"  # whole per cent; not on MIG


MEMORY = "DCGM_FI_DEV_FB_USED"  # MiB


ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # counter, mJ since boot


SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"  # fraction; off by default


TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"  # fraction


MEMORY_COPY = "DCGM_FI_DEV_MEM_COPY_UTIL"  # whole per cent; not on MIG


_MIB = 1024.0**2


_WH_PER_JOULE = 1.0 / 3600.0


class ExporterMetrics(NamedTuple):
    """One family's metrics: `signs` show that it is there.

    `activity` is read of every device, `utilization`, whole per cent, of those without it (empty:
    there is none). A metric name may be several, parted by "|", of which an exporter has one.
    `mib` and `wh` are what memory and the growth of the energy counter are multiplied by.
    `levels` are the means of SM, tensor and memory copy activity, in this order (empty: not read).
    `native` says that labels name a device and its holder one by one, as DCGM's do.
    """

    family: Family
    signs: tuple[str, ...]
    activity: str
    utilization: str
    memory: str
    energy: str
    mib: float = 1.0
    wh: float = 1e-3 * _WH_PER_JOULE
    percent: bool = False
    native: bool = True
    levels: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics of activity, the better one first."""
        return tuple(name for name in (self.activity, self.utilization) if name)

    def is_percent(self, metric: str) -> bool:
        """Say whether the family writes a metric of activity as whole per cent."""
        return self.percent or metric == self.utilization


DCGM = ExporterMetrics(
    Family.DCGM,
    (MEMORY, ACTIVITY, UTILIZATION),
    ACTIVITY,
    UTILIZATION,
    MEMORY,
    ENERGY,
    levels=(SM_ACTIVE, TENSOR_ACTIVE, MEMORY_COPY),
)


DCGM_1 = ExporterMetrics(
    Family.DCGM_1,
    ("dcgm_fb_used", "dcgm_gpu_utilization"),
    "dcgm_fi_prof_gr_engine_active",
    "dcgm_gpu_utilization",
    "dcgm_fb_used",
    "dcgm_total_energy_consumption",
)


AMD = ExporterMetrics(
    Family.AMD,
    ("gpu_gfx_activity",),
    "gpu_gfx_activity",
    "",
    "gpu_used_vram",  # MB
    "gpu_energy_consumed",  # µJ
    mib=1e6 / _MIB,
    wh=1e-6 * _WH_PER_JOULE,
    percent=True,
    native=False,
)


# The prefix of AMD's own example; it is set in the exporter's configuration.
AMD_PREFIXED = AMD._replace(
    signs=("amd_gpu_gfx_activity",),
    activity="amd_gpu_gfx_activity",
    memory="amd_gpu_used_vram",
    energy="amd_gpu_energy_consumed",
)


AMD_OLD = AMD._replace(signs=("gpu_usage",), activity="gpu_usage")


INTEL = ExporterMetrics(
    Family.INTEL,
    ("xpum_engine_ratio",),
    "xpum_engine_ratio",
    "",
    "xpum_memory_used_bytes",
    "xpum_energy_joules|xpum_energy_joules_total",
    mib=1.0 / _MIB,
    wh=_WH_PER_JOULE,
    native=False,
)


INTEL_GROUPS = INTEL._replace(
    signs=("xpum_engine_group_ratio",), activity="xpum_engine_group_ratio"
)


KNOWN_EXPORTERS = (DCGM, DCGM_1, AMD, AMD_PREFIXED, AMD_OLD, INTEL, INTEL_GROUPS)
"""In order: of two that one job shows of one family, the first is read."""


# Every DCGM device has memory; asking for its activity, too, would cost as much again.
SIGNS = (MEMORY, *(sign for exporter in KNOWN_EXPORTERS[1:] for sign in exporter.signs))


def exporters_with(signs: set[str]) -> list[ExporterMetrics]:
    """Return the known exporters of one job's metric names, at most one of each family."""
    found: dict[Family, ExporterMetrics] = {}
    for exporter in KNOWN_EXPORTERS:
        if signs.intersection(exporter.signs):
            found.setdefault(exporter.family, exporter)
    return list(found.values())

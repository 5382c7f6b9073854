"""Energy factors of a catalog, and the files of carbon by hour that it names."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from apps.costs.domain.carbon import CarbonFile, CarbonFileRefused, read_carbon_file
from apps.costs.services import EnergyFactorRecord
from apps.operations.domain.schema import Catalog
from apps.operations.domain.source_positions import Path as SourcePath
from apps.operations.domain.source_positions import Problems
from apps.operations.domain.timeline import DesiredRow, RecordKind

MOST_BYTES = 20_000_000
"""Of a file: hours of some 50 years."""
CarbonFiles = Mapping[str, CarbonFile]
"""By cluster."""


def read_carbon_files(catalog: Catalog, filename: str, problems: Problems) -> CarbonFiles:
    """Return the files that a catalog names, as paths from the folder of `filename`.

    What cannot be read, and each line that is wrong, is added to `problems`.
    """
    found = {}
    for index, cluster in enumerate(catalog.clusters):
        if cluster.energy is None or cluster.energy.carbon_file is None:
            continue
        path = ("clusters", index, "energy", "carbon_file")
        place = Path(filename).parent / cluster.energy.carbon_file
        try:
            # Asked before it is read: a wrong path may lead to anything.
            if place.stat().st_size > MOST_BYTES:
                problems.add(path, f"is more than {MOST_BYTES // 10**6} MB")
                continue
            found[cluster.name] = read_carbon_file(place.read_text(encoding="utf-8"))
        except OSError as error:
            problems.add(path, f"cannot be read: {error.strerror or error}: {place}")
        except UnicodeDecodeError:
            problems.add(path, f"is not a text in UTF-8: {place}")
        except CarbonFileRefused as refused:
            for sentence in refused.problems:
                problems.add(path, f"{cluster.energy.carbon_file}, {sentence}")
    return found


def held_carbon_files(held: Iterable[EnergyFactorRecord]) -> CarbonFiles:
    """Return the files as they were read last: a page that changes a catalog has none at hand."""
    return {row.cluster: CarbonFile(row.carbon_hours) for row in held if row.valid_to is None}


def desired_energy_factors(
    catalog: Catalog, files: CarbonFiles, since: Callable[[str | None], datetime | None]
) -> Iterator[DesiredRow[EnergyFactorRecord]]:
    """Yield the energy factors of the clusters that have some; `since` reads a `valid_from`."""
    for index, cluster in enumerate(catalog.clusters):
        energy = cluster.energy
        if energy is None:
            continue
        file = files.get(cluster.name, CarbonFile()) if energy.carbon_file else CarbonFile()
        grams = energy.carbon_g_per_kwh
        record = EnergyFactorRecord(
            cluster=cluster.name,
            pue=Decimal(energy.pue),
            carbon_g_per_kwh=None if grams is None else Decimal(grams),
            carbon_file=energy.carbon_file or "",
            carbon_covers=file.summary,
            carbon_hours=dict(file.hours),
            valid_from=since(energy.valid_from),
        )
        path: SourcePath = ("clusters", index, "energy")
        yield DesiredRow(record, path if energy.valid_from is None else (*path, "valid_from"))


# As of a price: what is said of a day may be put right, and a file goes on to gain hours.
ENERGY_FACTOR: RecordKind[EnergyFactorRecord] = RecordKind(
    "energy factor",
    key=lambda r: r.cluster,
    name=lambda r: r.cluster,
    columns=("pue", "carbon_g_per_kwh", "carbon_file", "carbon_covers"),
    quiet=frozenset({"pue"}),
    corrects=True,
)

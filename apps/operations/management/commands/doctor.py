"""`doctor [--cluster C] [--json]`: what is wrong with the data and the GPUs, and what to do."""

import json
from argparse import ArgumentParser
from datetime import UTC, datetime
from io import StringIO
from itertools import groupby
from shutil import get_terminal_size
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from apps.accounts.domain.formats import utc_words
from apps.clusters.domain.resources import counted
from apps.operations import services
from apps.operations.domain.findings import SEVERITIES, Finding, Severity
from apps.operations.services import Diagnosis, ExaminedCluster

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_HEADS = {
    Severity.ERROR: "Errors: numbers are missing or wrong until somebody acts",
    Severity.WARNING: "Warnings: some numbers are inexact, or GPUs are lost",
    Severity.NOTE: "Notes: worth knowing, the numbers are right",
}
_INDENT = 4


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as JSON shows it; its keys are a contract with scripts."""
    return {
        "at": diagnosis.at.isoformat(),
        "clusters": [
            {
                "cluster": one.cluster,
                "prometheus_version": one.prometheus or None,
                "kubernetes_version": one.kubernetes or None,
                "devices": one.devices,
                "not_examined": list(one.unasked),
            }
            for one in diagnosis.clusters
        ],
        "counts": {
            severity.value: sum(f.severity is severity for f in diagnosis.findings)
            for severity in SEVERITIES
        },
        "findings": [finding.document() for finding in diagnosis.findings],
    }


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Print what was looked at, then every finding with its fix, the worst first."""
    for one in diagnosis.clusters:
        console.print(_examined(one), soft_wrap=True)
    if not diagnosis.findings:
        console.print(Text("Nothing found: everything that was looked at is right.", "bold green"))
        return
    for severity, findings in groupby(diagnosis.findings, key=lambda finding: finding.severity):
        console.print()
        console.print(Text(_HEADS[severity], style=_STYLES[severity]))
        for finding in findings:
            console.print(_shown(finding, diagnosis.at))
            for line in finding.fix.splitlines():
                # Never broken nor cut: fixes are there to be copied.
                console.print(Text(" " * 2 * _INDENT + line, style="green"), soft_wrap=True)
    console.print()
    console.print(Text(summary(diagnosis), style="bold"))


def summary(diagnosis: Diagnosis) -> str:
    """Return how many findings of each severity there are."""
    counts = [(s, sum(f.severity is s for f in diagnosis.findings)) for s in SEVERITIES]
    return ", ".join(counted(count, severity.value) for severity, count in counts if count)


def _examined(one: ExaminedCluster) -> Text:
    sources = [f"Prometheus {one.prometheus or 'of unknown version'}"]
    if one.kubernetes is not None:
        sources.append(f"Kubernetes {one.kubernetes or 'of unknown version'}")
    text = Text.assemble(
        (one.cluster, "bold"), f": {', '.join(sources)}, {counted(one.devices, 'device')}"
    )
    if one.unasked:
        text.append(f"; not examined: {', '.join(one.unasked)}")
    return text


def _shown(finding: Finding, now: datetime) -> RenderableType:
    head = Text.assemble((finding.title, _STYLES[finding.severity]))
    about = [word for word in (finding.cluster, finding.subject) if word]
    head.append(f"  {' · '.join(about)}  [{finding.code}]")
    parts: list[RenderableType] = [head, Padding(Text(finding.what), (0, 0, 0, _INDENT))]
    beside = _cost_of(finding, now)
    if beside:
        parts.append(Padding(Text(beside), (0, 0, 0, _INDENT)))
    return Padding(Group(*parts), (1, 0, 0, 0))


def _cost_of(finding: Finding, now: datetime) -> str:
    costs = []
    if finding.pods:
        costs.append(counted(finding.pods, "pod"))
    if finding.gpu_hours:
        costs.append(f"{finding.gpu_hours:,.1f} GPU-hours")
    told = [f"Concerns {' and '.join(costs)}." if costs else ""]
    told.append(f"Where: {', '.join(finding.places)}." if finding.places else "")
    told.append(f"Since {utc_words(finding.since, now=now)}." if finding.since else "")
    return " ".join(part for part in told if part)


_WIDEST = 120


class Command(BaseCommand):
    help = (
        "Examine clusters: connections, metrics, labels, rights, quotas and how GPUs are shared. "
        "Each finding comes with its fix; ends with 1 when there is an error."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--cluster", help="only this one; default: all of the catalog")
        parser.add_argument("--json", action="store_true", help="print JSON, for scripts")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            found = services.run_doctor(datetime.now(UTC), cluster=options["cluster"])
        except services.UnknownCluster as error:
            raise CommandError(f"{error}; `load_catalog` brings one in") from error
        if options["json"]:
            self.stdout.write(json.dumps(document(found), indent=2, ensure_ascii=False))
        else:
            self.stdout.write(self._text(found))
        if found.errors:
            raise CommandError(f"{summary(found)}; see the fixes above", returncode=1)

    def _text(self, found: services.Diagnosis) -> str:
        """Return the diagnosis as wide as the terminal, in its colours; plain into a file."""
        page = StringIO()
        show(
            found,
            Console(
                file=page,
                width=min(get_terminal_size().columns, _WIDEST),
                force_terminal=self.stdout.isatty(),
                highlight=False,
                # Texts of findings have brackets, which would be read as markup.
                markup=False,
                emoji=False,
            ),
        )
        return page.getvalue()

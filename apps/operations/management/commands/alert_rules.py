"""`alert_rules [--plain]`: the alerts that belong in Prometheus, as YAML."""

from argparse import ArgumentParser
from typing import Any

import yaml
from django.core.management.base import BaseCommand

from apps.operations.domain import alert_rules


class Command(BaseCommand):
    help = (
        "Print alert rules for GPUs: allocated and idle, memory of shared GPUs, MIG profiles "
        "exhausted, temperature, XIDs, exporters gone; and rules for the portal itself. As a "
        "PrometheusRule, or plain."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--plain", action="store_true", help="a rules file of Prometheus, without operator"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        made = alert_rules.rule_file() if options["plain"] else alert_rules.prometheus_rule()
        self.stdout.write(yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=100))

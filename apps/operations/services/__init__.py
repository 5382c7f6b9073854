"""Writes of running the portal: loading the catalog, and what the doctor finds."""

from apps.operations.services.alerting import NotGathered, gather_alerts, gather_requests
from apps.operations.services.catalog.exporting import export_catalog
from apps.operations.services.catalog.loading import CatalogNotStored, ensure_builtin, load_catalog
from apps.operations.services.catalog.proposals import (
    ProposalDryRun,
    ProposalPreview,
    approve_proposal,
    cancel_proposal,
    dry_runs,
    preview_proposal,
    proposal_value,
    reject_proposal,
    submit_proposal,
)
from apps.operations.services.deriving import (
    StepRun,
    derive_after_history,
    derive_after_hours,
    derive_now,
    derive_replays,
)
from apps.operations.services.doctor.diagnosis import (
    Diagnosis,
    ExaminedCluster,
    UnknownCluster,
    run_doctor,
)
from apps.operations.services.doctor.writers import examine_writers
from apps.operations.services.heartbeats import WorkerPresence, note_heartbeat
from apps.operations.services.month_reports.figures import (
    UnknownTeamReport,
    month_report,
)
from apps.operations.services.month_reports.report_file import (
    month_report_file,
    send_monthly_reports,
)
from apps.operations.services.scrape import portal_series

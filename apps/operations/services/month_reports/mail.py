"""The mails of the monthly report, with its file attached."""

from datetime import date, datetime

from apps.accounts.permissions import Visibility
from apps.costs.services import ReportFile
from apps.costs.services import send_monthly_reports as send_mails
from apps.operations.services.month_reports.figures import month_report
from apps.operations.services.month_reports.html_file import month_report_file


def send_monthly_reports(*, now: datetime) -> int:
    """Send the report of the month before to who has not got it; return how many were sent."""

    def file_of(month: date, visibility: Visibility) -> ReportFile:
        found = month_report(month, visibility=visibility, now=now)
        return ReportFile(f"gpu-report-{month:%Y-%m}.html", month_report_file(found))

    return send_mails(now=now, file_of=file_of)

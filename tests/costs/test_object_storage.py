"""Exports in an S3-compatible bucket, in place of a folder: written, handed out, swept."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import BinaryIO

import boto3
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import Storage
from django.test import Client
from django.urls import reverse
from moto.server import ThreadedMotoServer
from pytest_django import Settings

from apps.accounts.permissions import EVERYTHING
from apps.costs.adapters.storage import StorageAway, drafted, is_there, opened, store
from apps.costs.domain.costing import Basis, Policy
from apps.costs.domain.exports import ExportScope, ExportState
from apps.costs.domain.files import FileFormat
from apps.costs.models import ClosedPeriod
from apps.costs.selectors.exported_files import (
    ExportGone,
    closed_files,
    closed_name,
    export_download,
    export_rows,
    exports_storage,
)
from apps.costs.services import close_period
from apps.costs.services.exports import (
    ask_export,
    closed_copy,
    keep_closed_files,
    sweep_exports,
    write_export,
)
from tests.costs.portal import Priced, make_priced
from tests.shared_rows import copy_of, shared

OCTOBER = date(2026, 10, 1)
NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)
MONTH = ExportScope(basis=Basis.ALLOCATED, policy=Policy.PLATFORM, month=OCTOBER)
KEYS = {"access_key": "portal", "secret_key": "only-in-this-test", "region_name": "eu-central-1"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Yield the address of a server that speaks S3."""
    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield f"http://{host}:{port}"
    started.stop()


@pytest.fixture(autouse=True)
def bucket(server: str, settings: Settings, request: pytest.FixtureRequest) -> str:
    """Make a bucket of the test's own and let the portal keep exports in it."""
    name = f"b-{hashlib.sha256(request.node.name.encode()).hexdigest()[:16]}"
    client = boto3.client(
        "s3",
        endpoint_url=server,
        aws_access_key_id=KEYS["access_key"],
        aws_secret_access_key=KEYS["secret_key"],
        region_name=KEYS["region_name"],
    )
    client.create_bucket(
        Bucket=name, CreateBucketConfiguration={"LocationConstraint": KEYS["region_name"]}
    )
    settings.EXPORTS_S3 = {"bucket": name, "endpoint_url": server, "location": "portal", **KEYS}
    return name


_priced = shared(make_priced)
priced = copy_of("_priced")


def put(storage: Storage, name: str, content: bytes) -> None:
    def write(out: BinaryIO) -> None:
        out.write(content)

    with drafted(storage, write) as draft:
        store(storage, draft, name)


def test_an_export_is_written_to_the_bucket_and_handed_out(priced: Priced) -> None:
    pk = ask_export(priced.portal.finn, MONTH, FileFormat.CSV, now=NOW)
    assert write_export(pk, clock=lambda: NOW) == 1
    (row,) = export_rows(priced.portal.finn)
    assert row.state is ExportState.DONE
    with export_download(pk, priced.portal.finn).binary as binary:
        content = binary.read()
    assert hashlib.sha256(content).hexdigest() == row.sha256
    assert len(content) == row.size


def test_an_expired_one_is_deleted_there(priced: Priced) -> None:
    pk = ask_export(priced.portal.finn, MONTH, FileFormat.CSV, now=NOW)
    write_export(pk, clock=lambda: NOW)
    assert len(exports_storage().listdir("")[1]) == 1
    exports_storage().save("of-another-program.csv", ContentFile(b"a"))
    # Long after, by the clock of the bucket too.
    assert sweep_exports(now=datetime.now(UTC) + timedelta(days=400)) == 1
    assert exports_storage().listdir("")[1] == ["of-another-program.csv"]
    with pytest.raises(ExportGone):
        export_download(pk, priced.portal.finn)


def test_files_of_a_closed_month_are_there_and_made_anew_when_changed(priced: Priced) -> None:
    period = close_period(OCTOBER, by="finn", now=NOW, forced="what was before the portal")
    assert isinstance(period, ClosedPeriod)
    assert keep_closed_files(now=NOW) == len(FileFormat)
    name = closed_name(period.files["csv"], FileFormat.CSV)
    put(exports_storage(), name, b"changed")
    copy = closed_copy(period, FileFormat.CSV, now=NOW)
    with copy.binary as binary:
        assert hashlib.sha256(binary.read()).hexdigest() == period.files["csv"]
    assert copy.as_closed
    found = closed_files(visibility=EVERYTHING)[OCTOBER, "csv"]
    assert (found.stored, found.agrees) == (True, True)


def test_what_is_missing_is_told(db: None) -> None:
    assert not is_there(exports_storage(), "none.csv")
    assert opened(exports_storage(), "none.csv") is None


def test_a_bucket_that_is_not_there_is_an_error_of_writing(
    priced: Priced, settings: Settings
) -> None:
    pk = ask_export(priced.portal.finn, MONTH, FileFormat.CSV, now=NOW)
    settings.EXPORTS_S3 = {**settings.EXPORTS_S3, "bucket": "nowhere"}
    assert write_export(pk, clock=lambda: NOW) == 0
    (row,) = export_rows(priced.portal.finn)
    assert row.error == (
        "The file cannot be written on the server: object storage does not take or give it "
        "(NoSuchBucket)."
    )


def test_while_the_storage_is_away_pages_say_so_and_closed_months_are_made_anew(
    priced: Priced, settings: Settings
) -> None:
    period = close_period(OCTOBER, by="finn", now=NOW, forced="what was before the portal")
    assert isinstance(period, ClosedPeriod)
    keep_closed_files(now=NOW)
    pk = ask_export(priced.portal.finn, MONTH, FileFormat.CSV, now=NOW)
    write_export(pk, clock=lambda: NOW)
    settings.EXPORTS_S3 = {**settings.EXPORTS_S3, "endpoint_url": "http://127.0.0.1:9"}

    found = closed_files(visibility=EVERYTHING)
    assert {row.stored for row in found.values()} == {None}
    copy = closed_copy(period, FileFormat.CSV, now=NOW)
    with copy.binary as binary:
        assert hashlib.sha256(binary.read()).hexdigest() == period.files["csv"]
    with pytest.raises(StorageAway, match="EndpointConnectionError") as away:
        export_download(pk, priced.portal.finn)
    assert "127.0.0.1" not in str(away.value)

    client = Client()
    client.force_login(priced.portal.finn)
    page = client.get(f"{reverse('web:exports')}?tab=months")
    assert "file storage does not answer" in page.text
    answer = client.get(reverse("web:export-file", args=[pk]))
    assert answer.status_code == 503

"""What every test of this room starts from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import current_app


@pytest.fixture(autouse=True)
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the folder of an embedded broker that has no messages of other tests."""
    folder = tmp_path_factory.mktemp("messages")
    before = current_app.conf.broker_transport_options
    own = {"data_folder_in": str(folder), "data_folder_out": str(folder)}
    current_app.conf.broker_transport_options = {**before, **own}
    yield folder
    current_app.conf.broker_transport_options = before

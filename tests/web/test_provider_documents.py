"""Documents of the sign-in provider are fetched within bounds."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import requests
from pytest_django import Settings

from apps.web.accounts.single_sign_on import (
    CACHED_SECONDS,
    FAILED_SECONDS,
    MOST_BYTES,
    Documents,
    fetched,
)
from tests.sign_in_provider import Provider, running_provider

DOCUMENT = "/.well-known/openid-configuration"


class Clock:
    """A clock that goes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


def test_a_document_is_fetched_again_when_its_time_is_over(provider: Provider) -> None:
    clock = Clock()
    documents = Documents(clock=clock)
    for clock.now in (0.0, CACHED_SECONDS - 1, CACHED_SECONDS, CACHED_SECONDS + 1):
        assert documents.get(provider.url + DOCUMENT)["issuer"] == provider.url
    assert len(provider.fetched) == 2


def test_a_failure_is_told_again_for_a_moment_and_then_tried_again(provider: Provider) -> None:
    clock = Clock()
    documents = Documents(clock=clock)
    provider.answers[DOCUMENT] = (503, {})
    for _ in range(3):
        with pytest.raises(requests.RequestException, match="503"):
            documents.get(provider.url + DOCUMENT)
    assert len(provider.fetched) == 1
    del provider.answers[DOCUMENT]
    clock.now = FAILED_SECONDS
    assert documents.get(provider.url + DOCUMENT)["issuer"] == provider.url


def test_only_the_latest_documents_are_kept(provider: Provider) -> None:
    documents = Documents(most=2)
    for n in (1, 2, 3, 3, 1):
        documents.get(f"{provider.url}{DOCUMENT}?{n}")
    assert len(provider.fetched) == 4


def test_several_who_ask_at_once_wait_for_one_answer(provider: Provider) -> None:
    documents = Documents()
    threads = [
        threading.Thread(target=documents.get, args=(provider.url + DOCUMENT,)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(provider.fetched) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param((200, "<html>"), "no JSON", id="a page"),
        pytest.param((200, {"x": "x" * MOST_BYTES}), "too much", id="too large"),
        pytest.param((404, {}), "404", id="not there"),
    ],
)
def test_what_is_no_document_is_an_error_of_the_transport(
    answer: tuple[int, object], says: str, provider: Provider
) -> None:
    provider.answers[DOCUMENT] = answer
    with pytest.raises(requests.RequestException, match=says):
        fetched(provider.url + DOCUMENT)


def test_who_sends_byte_after_byte_is_not_waited_for(settings: Settings) -> None:
    settings.SOCIALACCOUNT_REQUESTS_TIMEOUT = 0.5
    over = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not over.wait(0.1):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        before = time.monotonic()
        with pytest.raises(requests.Timeout, match="too slowly"):
            fetched(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        over.set()
        thread.join(10)
    assert time.monotonic() - before < 5

"""From where a request comes, with and without a proxy before the portal."""

import pytest
from django.test import RequestFactory, override_settings

from apps.accounts.adapters.addresses import client_address


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        pytest.param("198.51.100.7", "198.51.100.7", id="one"),
        pytest.param("10.9.9.9, 198.51.100.7", "198.51.100.7", id="the proxy's own comes last"),
        pytest.param("198.51.100.7:5150", "198.51.100.7", id="with port"),
        pytest.param("[2001:db8::1]:5150", "2001:db8::1", id="version 6 with port"),
        pytest.param("2001:db8::1", "2001:db8::1", id="version 6"),
        pytest.param("unknown", "10.0.0.1", id="no address"),
        pytest.param("", "10.0.0.1", id="nothing"),
    ],
)
def test_behind_a_proxy_the_address_is_the_one_that_the_proxy_saw(
    forwarded: str, address: str
) -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", HTTP_X_FORWARDED_FOR=forwarded)
    with override_settings(TRUSTED_PROXIES=1):
        assert client_address(request) == address
    with override_settings(TRUSTED_PROXIES=0):
        assert client_address(request) == "10.0.0.1"


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        pytest.param("203.0.113.5, 198.51.100.7, 10.1.1.1", "198.51.100.7", id="behind two"),
        pytest.param("198.51.100.7, 10.1.1.1", "198.51.100.7", id="as they wrote it"),
        pytest.param("10.1.1.1", "10.1.1.1", id="past the outer one"),
        pytest.param("203.0.113.5, unknown, 10.1.1.1", "10.0.0.1", id="no address in its place"),
    ],
)
def test_behind_two_proxies_the_address_is_the_one_that_the_outer_one_saw(
    forwarded: str, address: str
) -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", HTTP_X_FORWARDED_FOR=forwarded)
    with override_settings(TRUSTED_PROXIES=2):
        assert client_address(request) == address


def test_over_a_socket_there_is_no_address() -> None:
    assert client_address(RequestFactory().get("/", REMOTE_ADDR="")) is None

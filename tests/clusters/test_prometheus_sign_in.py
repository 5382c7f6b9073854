"""How requests to Prometheus are signed: tenants, tokens that are renewed, AWS, Google and mTLS."""

import gzip
import json
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.auth
import pytest
import requests
from backports import zstd
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from apps.clusters.adapters.prometheus.client import PrometheusApi, instant_request
from apps.clusters.adapters.prometheus.http_api import PrometheusConfig
from apps.clusters.adapters.prometheus.sign_in import ClientCredentials, SigV4
from apps.clusters.ports import SourceRejected, SourceUnavailable
from tests.clusters.openmetrics import ORIGIN
from tests.clusters.scripted_prometheus import EMPTY, Answer, Asked, Script, in_turn, scripted

QUERY = instant_request("up", ORIGIN)
SECRETS = {"CLIENT": "s3cret: ü", "KEY": "k3y", "EMPTY": ""}


def api_of(url: str, **entry: Any) -> PrometheusApi:
    return PrometheusApi(
        PrometheusConfig.from_catalog({"url": url, **entry}),
        secret=lambda name: SECRETS.get(name, ""),
        wait=lambda _seconds: None,
    )


def posted(script: Script, *, times: int = 1, **entry: Any) -> list[Asked]:
    """Return what a server was asked, whose answers are those of `script`."""
    with scripted(script) as server:
        api = api_of(server.url, **entry)
        try:
            for _ in range(times):
                assert api.post(QUERY) == EMPTY
        finally:
            api.close()
        return server.asked


def test_a_tenant_is_named_in_a_header_and_parameters_stand_in_the_url() -> None:
    asked = posted(
        in_turn(Answer()),
        headers={"X-Scope-OrgID": "speech|vision"},
        headers_env={"X-Api-Key": "KEY"},
        parameters={"dedup": "true", "extra": "a b&c"},
    )
    assert asked[0].headers["X-Scope-OrgID"] == "speech|vision"
    assert asked[0].headers["X-Api-Key"] == "k3y"
    assert asked[0].path == "/api/v1/query?dedup=true&extra=a+b%26c"
    assert asked[0].form["query"] == "up"


def test_a_header_whose_variable_is_empty_is_a_persons_job() -> None:
    with pytest.raises(SourceRejected, match=r"EMPTY \(headers_env .* header X-Api-Key"):
        posted(in_turn(Answer()), headers_env={"X-Api-Key": "EMPTY"})


@pytest.mark.parametrize(
    ("name", "body"),
    [
        pytest.param("gzip", gzip.compress(EMPTY), id="gzip"),
        pytest.param("zstd", zstd.compress(EMPTY), id="zstd"),
    ],
)
def test_compressed_answers_are_read(name: str, body: bytes) -> None:
    posted(in_turn(Answer(body, headers={"Content-Encoding": name})))


def test_a_server_elsewhere_is_asked_for_compressed_answers() -> None:
    api = api_of("https://prometheus.example.org")
    offered = api._connection.headers["Accept-Encoding"]
    api.close()
    assert {"gzip", "zstd"} <= set(offered.split(","))


# ---------------------------------------------------------------- token files and OAuth2


def test_a_token_file_is_read_again_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n", encoding="ascii")

    def script(_asked: Asked) -> Answer:
        token.write_text("second\n", encoding="ascii")
        return Answer()

    asked = posted(script, times=2, bearer_token_file=str(token))
    assert [one.headers["Authorization"] for one in asked] == ["Bearer first", "Bearer second"]


def test_a_token_that_was_rotated_under_a_request_is_tried_once_more(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old", encoding="ascii")

    def script(asked: Asked) -> Answer:
        token.write_text("new", encoding="ascii")
        return Answer() if asked.headers["Authorization"] == "Bearer new" else Answer(status=401)

    assert len(posted(script, bearer_token_file=str(token))) == 2


def test_a_token_that_stays_refused_is_tried_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old", encoding="ascii")
    with scripted(in_turn(Answer(b"{}", 401))) as server:
        api = api_of(server.url, bearer_token_file=str(token))
        with pytest.raises(SourceRejected, match=f"HTTP 401; check the token in {token}"):
            api.post(QUERY)
        api.close()
    assert len(server.asked) == 1


def tokens(*, expires_in: object = 3600) -> Script:
    """Answer with another token each time."""
    given = iter(range(1, 100))

    def script(_asked: Asked) -> Answer:
        token = {"access_token": f"token-{next(given)}", "expires_in": expires_in}
        return Answer(json.dumps(token).encode())

    return script


def oauth2(url: str, **more: Any) -> dict[str, Any]:
    return {"token_url": url, "client_id": "portal", "client_secret_env": "CLIENT", **more}


def test_one_token_signs_many_requests_until_the_server_refuses_it() -> None:
    answers = in_turn(Answer(), Answer(), Answer(b"{}", 401), Answer())
    with scripted(tokens()) as endpoint:
        entry = oauth2(endpoint.url, scopes=["a", "b"], parameters={"audience": "mimir"})
        asked = posted(answers, times=3, oauth2=entry)
    assert [one.headers["Authorization"] for one in asked] == [
        *["Bearer token-1"] * 3,
        "Bearer token-2",
    ]
    assert [one.form for one in endpoint.asked] == [
        {"grant_type": "client_credentials", "audience": "mimir", "scope": "a b"}
    ] * 2
    # RFC 6749, 2.3.1: encoded as a form, then as Basic.
    assert endpoint.asked[0].headers["Authorization"] == requests.auth._basic_auth_str(
        "portal", "s3cret%3A%20%C3%BC"
    )


def test_a_client_may_show_its_secret_or_an_identity_in_the_body(tmp_path: Path) -> None:
    identity = tmp_path / "identity"
    identity.write_text("jwt-of-the-pod\n", encoding="ascii")
    with scripted(tokens()) as endpoint:
        posted(in_turn(Answer()), oauth2=oauth2(endpoint.url, client_auth="body"))
        entry = oauth2(endpoint.url, client_assertion_file=str(identity))
        posted(in_turn(Answer()), oauth2=entry)
    with_secret, with_identity = endpoint.asked
    assert with_secret.form["client_secret"] == "s3cret: ü"
    assert with_identity.form["client_assertion"] == "jwt-of-the-pod"
    assert with_identity.form["client_assertion_type"].endswith("jwt-bearer")
    assert "client_secret" not in with_identity.form
    assert "Authorization" not in {*with_secret.headers, *with_identity.headers}


def test_a_token_is_renewed_before_it_expires_and_kept_while_its_endpoint_is_away() -> None:
    now = [0.0]
    answers = [tokens(expires_in="100"), in_turn(Answer(status=503))]
    with scripted(lambda asked: answers[0](asked)) as endpoint:
        sign_in = ClientCredentials(oauth2(endpoint.url), lambda _: "x", clock=lambda: now[0])
        values = []
        for now[0] in (0.0, 79.0, 80.0):
            values.append(sign_in.auth().value)
        answers.pop(0)
        now[0] = 179.0
        values.append(sign_in.auth().value)
        now[0] = 181.0
        with pytest.raises(SourceUnavailable, match="answers with HTTP 503"):
            sign_in.auth()
    assert values == ["Bearer token-1", "Bearer token-1", "Bearer token-2", "Bearer token-2"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(
            Answer(b'{"error":"invalid_client","error_description":"s3cret"}', 401),
            r"HTTP 401 \(invalid_client\) and no token; check client_id, CLIENT",
            id="refused",
        ),
        pytest.param(Answer(b"<html>s3cret", 200), "HTTP 200 and no token", id="page"),
        pytest.param(Answer(b"", 302, {"Location": "/s3cret"}), "HTTP 302", id="redirect"),
        pytest.param(Answer(b"[" * 50_000), "HTTP 200 and no token", id="nested"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_a_persons_job(answer: Answer, text: str) -> None:
    with scripted(in_turn(answer)) as endpoint:
        sign_in = ClientCredentials(oauth2(endpoint.url), lambda _: "s3cret")
        with pytest.raises(SourceRejected, match=text) as raised:
            sign_in.auth()
    assert "s3cret" not in str(raised.value)


def test_an_endpoint_that_does_not_end_its_answer_holds_nobody_up() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 20.0
        return now[0]

    with scripted(in_turn(Answer(b" " * 3_000_000), Answer(b" "))) as endpoint:
        for reading in (lambda: 0.0, clock):
            sign_in = ClientCredentials(oauth2(endpoint.url), lambda _: "x", clock=reading)
            with pytest.raises(SourceUnavailable, match="does not end its answer"):
                sign_in.auth()


# ---------------------------------------------------------------- AWS and Google

# The suite that AWS publishes for signature version 4: its credentials, time and results.
_AWS_KEY = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
_AWS_TIME = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)


@pytest.mark.parametrize(
    ("request_", "signature"),
    [
        pytest.param(
            requests.Request("GET", "https://example.amazonaws.com/"),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            id="get-vanilla",
        ),
        pytest.param(
            requests.Request("GET", "https://example.amazonaws.com/?Param2=value2&Param1=value1"),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            id="get-vanilla-query-order-key-case",
        ),
        pytest.param(
            requests.Request("POST", "https://example.amazonaws.com/", data={"Param1": "value1"}),
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            id="post-x-www-form-urlencoded",
        ),
    ],
)
def test_signatures_are_those_that_aws_publishes(
    request_: requests.Request, signature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", _AWS_KEY[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", _AWS_KEY[1])
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: _AWS_TIME)
    request_.auth = SigV4({"region": "us-east-1", "service": "service"}).auth()
    signed = request_.prepare().headers
    assert signed["X-Amz-Date"] == "20150830T123600Z"
    assert signed["Authorization"].endswith(f"Signature={signature}")


def test_without_aws_credentials_the_message_says_where_they_come_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(SourceRejected, match="finds no AWS credentials"):
        SigV4({"region": "us-east-1"}).auth()
    with pytest.raises(SourceRejected, match="names the profile 'metrics'"):
        SigV4({"region": "us-east-1", "profile": "metrics"}).auth()


def test_a_token_file_of_aws_that_is_away_is_a_persons_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/portal")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(SourceRejected, match=r"FileNotFoundError.*check the token file"):
        SigV4({"region": "us-east-1"}).auth()


def test_googles_library_fetches_and_keeps_a_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = rsa.generate_private_key(65537, 2048)
    account = {
        "type": "service_account",
        "client_email": "portal@example.iam.gserviceaccount.com",
        "private_key": _pem(key).decode(),
        "project_id": "example",
    }
    path = tmp_path / "account.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    with scripted(tokens()) as endpoint:
        path.write_text(json.dumps({**account, "token_uri": endpoint.url}), encoding="ascii")
        asked = posted(in_turn(Answer()), times=2, google_credentials=True)
    assert [one.headers["Authorization"] for one in asked] == ["Bearer token-1"] * 2
    for content in ("[]", "{}"):
        path.write_text(content, encoding="ascii")
        with pytest.raises(SourceRejected, match=r"google_credentials .* finds no credentials"):
            posted(in_turn(Answer()), google_credentials=True)


# ---------------------------------------------------------------- client certificates


def _pem(key: Any) -> bytes:
    encoded: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded


class Authority:
    """Signs certificates for 127.0.0.1, each named after who shows it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(self._signed("ca", self._key.public_key(), ca=True))

    def issue(self, name: str, *, to: str) -> Path:
        """Write a certificate with its key to a file, in one step as mounted secrets change."""
        key = ec.generate_private_key(ec.SECP256R1())
        path, new = self._folder / to, self._folder / f"{to}.new"
        new.write_bytes(self._signed(name, key.public_key()) + _pem(key))
        new.rename(path)
        return path

    def _signed(self, name: str, key: Any, *, ca: bool = False) -> bytes:
        now = datetime.now(UTC)
        address = x509.DNSName("localhost")
        built = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return built.public_bytes(serialization.Encoding.PEM)


def test_a_client_certificate_is_shown_and_read_again_when_its_file_changes(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.issue("server", to="server.pem"))
    tls.load_verify_locations(authority.ca_file)
    tls.verify_mode = ssl.CERT_REQUIRED
    with scripted(in_turn(Answer()), tls) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        certificate = authority.issue("first", to="client.pem")
        api = api_of(url, ca_file=str(authority.ca_file), cert_file=str(certificate))
        api.post(QUERY)
        api.post(QUERY)
        authority.issue("second", to="client.pem")
        api.post(QUERY)
        (found,) = api.credentials()
        assert timedelta() < found.expires_at - datetime.now(UTC) <= timedelta(days=1)
        api.close()
        api = api_of(url, ca_file=str(authority.ca_file))
        with pytest.raises((SourceRejected, SourceUnavailable), match=r"securely|reached"):
            api.post(QUERY)
        api.close()
    assert [one.certificate for one in server.asked] == ["first", "first", "second"]
    # A connection is kept while its certificate is that of the file.
    assert server.connections == 2


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    api = api_of("https://127.0.0.1:9", cert_file=str(tmp_path / "client.pem"))
    with pytest.raises(SourceRejected, match=r"needs cert_file '.*client\.pem', which cannot"):
        api.post(QUERY)
    api.close()

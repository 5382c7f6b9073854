"""What the settings make of a sign-in provider, and what they refuse."""

from pathlib import Path

import pytest

from tests.test_settings import PRODUCTION, read, start

PROVIDER = {
    "GPUPORTAL_OIDC_ISSUER": "https://login.example.org/realm/",
    "GPUPORTAL_OIDC_CLIENT_ID": "gpuportal",
    "GPUPORTAL_OIDC_CLIENT_SECRET": "geheim-7c1",
}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param({"GPUPORTAL_OIDC_ISSUER": "login.example.org"}, "is no address", id="address"),
        pytest.param(
            {"GPUPORTAL_OIDC_ISSUER": "http://login.example.org"}, "https://", id="not encrypted"
        ),
        pytest.param({"GPUPORTAL_OIDC_CLIENT_ID": ""}, "GPUPORTAL_OIDC_CLIENT_ID", id="no client"),
        pytest.param(
            {"GPUPORTAL_OIDC_CLIENT_SECRET": ""}, "GPUPORTAL_OIDC_CLIENT_SECRET_FILE", id="secret"
        ),
        pytest.param({"GPUPORTAL_OIDC_GROUPS": "admins=root"}, "'admins=root'", id="rule"),
        pytest.param({"GPUPORTAL_OIDC_ONLY_GROUPS": "yes"}, "refuses every user", id="no group"),
        pytest.param(
            {"GPUPORTAL_OIDC_ISSUER": "", "GPUPORTAL_LOCAL_SIGN_IN": "no"},
            "leaves no way to sign in",
            id="no way in",
        ),
        pytest.param({"GPUPORTAL_OIDC_TOKEN_DAYS": "0"}, "must be 1 or more", id="no days"),
        pytest.param({"GPUPORTAL_SESSION_HOURS": "0"}, "GPUPORTAL_SESSION_HOURS=0", id="no time"),
    ],
)
def test_a_sign_in_that_cannot_work_is_refused(
    given: dict[str, str], says: str, tmp_path: Path
) -> None:
    told = start(tmp_path, {**PRODUCTION, **PROVIDER, **given})
    assert told.returncode == 1
    assert says in told.stderr.splitlines()[-1]
    assert "geheim" not in told.stderr


def test_a_provider_is_read_with_its_secret_and_rules_from_files(tmp_path: Path) -> None:
    secret, rules = tmp_path / "secret", tmp_path / "rules"
    secret.write_text("geheim-7c1\n", encoding="utf-8")
    rules.write_text("cn=gpu,ou=groups=admin\nvision=lead:vision\n", encoding="utf-8")
    given = {
        **{key: value for key, value in PROVIDER.items() if not key.endswith("SECRET")},
        "GPUPORTAL_OIDC_CLIENT_SECRET_FILE": str(secret),
        "GPUPORTAL_OIDC_GROUPS_FILE": str(rules),
    }
    (known,) = read(tmp_path, given, "SINGLE_SIGN_ON")
    shown = repr(known)
    assert "issuer='https://login.example.org/realm'" in shown
    assert "group='cn=gpu,ou=groups'" in shown
    assert "geheim" not in shown  # what prints settings must not print it


def test_without_a_provider_there_is_none_and_passwords_are_taken(tmp_path: Path) -> None:
    assert read(tmp_path, {}, "SINGLE_SIGN_ON", "LOCAL_SIGN_IN") == [None, True]


def test_sessions_and_the_promise_of_https_have_a_length(tmp_path: Path) -> None:
    names = ("SESSION_COOKIE_AGE", "SECURE_HSTS_SECONDS")
    assert read(tmp_path, PRODUCTION, *names) == [43_200, 31_536_000]
    given = {"GPUPORTAL_SESSION_HOURS": "1", "GPUPORTAL_HSTS_SECONDS": "300"}
    assert read(tmp_path, {**PRODUCTION, **given}, *names) == [3600, 300]


def test_cookies_are_out_of_reach_of_scripts_and_other_sites(tmp_path: Path) -> None:
    names = [
        f"{cookie}_COOKIE_{what}"
        for cookie in ("SESSION", "CSRF")
        for what in ("HTTPONLY", "SAMESITE", "SECURE")
    ]
    assert read(tmp_path, PRODUCTION, *names) == [True, "Lax", True] * 2

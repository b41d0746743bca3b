"""Tokens of a file, as Kubernetes mounts them: read when they are due, and again when the file is replaced."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from spark_producer.common.secret import Secret
from spark_producer.config.token_rules import token_file
from spark_producer.errors import AuthenticationFailed, ConfigError, PyProducerError
from spark_producer.network.auth.token_file import read_token_file
from spark_producer.security.settings import OidcSettings, SaslSettings
from spark_producer.security.token import ENDLESS, MAX_FILE_AGE_S, next_refresh

CANARY = "canary-of-this-test"
NOW = 1_700_000_000.0


def jwt(ends: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"aud": ["kafka"], "exp": ends}).encode()).decode().rstrip("=")
    return f"e30.{claims}.{CANARY}"


def refusal(url: str, allowed: Path) -> PyProducerError:
    with pytest.raises(PyProducerError) as refused:
        read_token_file(url, (f"file:{allowed}/",), now=NOW)
    assert CANARY not in repr(refused.value)
    return refused.value


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize("end", ["", "\n", " \r\n"])
def test_a_token_lives_as_long_as_it_says(end: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(jwt(NOW + 600) + end, encoding="utf-8")
    token = read_token_file(path.as_uri(), (f"file:{tmp_path}/",), now=NOW)
    assert (token.text.reveal(), token.expires_at) == (jwt(NOW + 600), NOW + 600)
    path.write_text("opaque", encoding="utf-8")
    assert read_token_file(path.as_uri(), (f"file:{tmp_path}/",), now=NOW).expires_at == ENDLESS


@pytest.mark.covers("SEC18")
def test_the_kubelets_links_are_followed_and_its_next_token_is_read(tmp_path: Path) -> None:
    """It writes a folder for each set of files, and replaces the link `..data` (atomic_writer.go)."""
    for name, text in (("..1", jwt(NOW + 1)), ("..2", jwt(NOW + 2))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(text, encoding="utf-8")
    (tmp_path / "token").symlink_to("..data/token")
    for name, end in (("..1", 1), ("..2", 2)):
        (tmp_path / "..data_tmp").symlink_to(name)
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")  # noqa: PTH105
        token = read_token_file(f"file://{tmp_path}/token", (f"file:{tmp_path}/",), now=NOW)
        assert token.expires_at == NOW + end


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (f"{CANARY} {CANARY}".encode(), "characters"),
        (CANARY.encode() * 4000, "larger than 64 KiB"),
        (b"\xff" + CANARY.encode(), "not UTF-8"),
    ],
)
def test_a_file_without_a_token_is_one_clear_error(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    error = refusal(path.as_uri(), tmp_path)
    assert error.__dict__["fatal"]
    assert said in str(error)
    assert "kafka.sasl.oauthbearer.token.endpoint.url" in str(error)


@pytest.mark.covers("SEC18")
def test_an_expired_token_may_be_replaced_yet(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(jwt(NOW - 7), encoding="utf-8")
    error = refusal((tmp_path / "token").as_uri(), tmp_path)
    assert isinstance(error, AuthenticationFailed)
    assert not error.fatal
    assert "it expired 7 s ago by this machine's clock" in str(error)


@pytest.mark.covers("SEC18")
def test_a_folder_a_pipe_and_a_file_that_is_not_allowed_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        assert "not a regular file" in str(refusal(path.as_uri(), tmp_path.parent))
    (tmp_path / "token").write_text(jwt(NOW + 1), encoding="utf-8")
    error = refusal((tmp_path / "token").as_uri(), tmp_path / "other")
    assert isinstance(error, ConfigError)
    assert "secretsAllow" in str(error)


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(("life", "seconds"), [(3600.0, MAX_FILE_AGE_S), (200.0, 160.0), (ENDLESS, MAX_FILE_AGE_S)])
def test_a_file_is_read_again_before_its_token_ends_and_every_five_minutes(life: float, seconds: float) -> None:
    settings = SaslSettings("OAUTHBEARER", oidc=OidcSettings("file:///token", "", Secret("")))
    assert next_refresh(settings, NOW + life, NOW, 0.0) == pytest.approx(NOW + seconds)


@pytest.mark.parametrize(
    ("url", "path"),
    [("file:///a/b", "/a/b"), ("file:/a/b", "/a/b"), ("https://a/b", ""), ("file://host/b", "//host/b"), ("", "")],
)
def test_the_path_of_a_url(url: str, path: str) -> None:
    assert token_file(url) == path

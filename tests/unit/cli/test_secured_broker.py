"""`pyproducer broker` with TLS and users, as a process of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trustme

from spark_producer.cli.entry import main
from spark_producer.protocol import METADATA, messages
from tests.fakes.raw_client import RawClient
from tests.unit.broker.security.secured_broker import HOST, log_in, over_tls
from tests.unit.cli.test_command_line import running

PASSWORD = "canary = in clear"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """`ca.pem`, `broker.pem` and `users`."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    ca.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(tmp_path / "broker.pem")
    (tmp_path / "users").touch(0o600)
    (tmp_path / "users").write_text(f"ada={PASSWORD}\n")
    return tmp_path


def test_a_broker_with_tls_and_users(home: Path) -> None:
    security = (
        "--security-protocol",
        "sasl_ssl",
        "--tls-cert",
        str(home / "broker.pem"),
        "--users",
        str(home / "users"),
    )
    with running(
        "broker", "--port", "0", *security, "--mechanisms", "scram-sha-512", "--max-session-ms", "5000"
    ) as command:
        message = command.line()
        port = int(re.findall(r"broker on 127\.0\.0\.1:(\d+) \(SASL_SSL\), data in", message)[0])
        with over_tls(RawClient(port), home / "ca.pem") as client:
            assert log_in(client, "SCRAM-SHA-512", "ada", PASSWORD) == 5000
            assert client.ask(METADATA, messages.MetadataRequest()).brokers
        assert command.interrupt() == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--security-protocol", "SASL_SSL"], "SASL_SSL needs a certificate"),
        (["--users", "{home}/users"], "of no use with PLAINTEXT"),
        (["--security-protocol", "SASL_PLAINTEXT", "--users", "{home}/none"], "No such file"),
        (["--security-protocol", "SASL_PLAINTEXT", "--users", "{home}/ca.pem"], "line 1 of the file of users"),
        (["--security-protocol", "SSL", "--tls-cert", "{home}/users"], "users"),
        (["--security-protocol", "SASL_PLAINTEXT", "--mechanisms", "GSSAPI", "--users", "{home}/users"], "'GSSAPI'"),
    ],
)
def test_wrong_settings_are_one_line_without_a_secret(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["broker", "--port", "0", *(argument.format(home=home) for argument in arguments)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert "canary" not in line


def test_a_protocol_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["broker", "--security-protocol", "TLS"])
    assert caught.value.code == 2
    assert "SASL_PLAINTEXT" in capsys.readouterr().err

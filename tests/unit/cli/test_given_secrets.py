"""No message of a command repeats a secret from its arguments, wherever and however it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_producer.cli.entry import main
from spark_producer.cli.given_secrets import is_secret_name

SECRET = "hunter2"
GIVEN = [
    f"sasl.password={SECRET}",
    f"kafka.sasl.password={SECRET}",
    f"SASL.PASSWORD={SECRET}",
    f"sasl.pasword={SECRET}",
    f"sasl.passwrod={SECRET}",
    f"sasl.password = {SECRET}",
    f"sasl.password:{SECRET}=x",
    f"sasl.password {SECRET}",
    f"password={SECRET}",
    f"ssl.key.password={SECRET}",
    f"ssl.keystore.key={SECRET}",
    f"sasl.oauthbearer.client.secret={SECRET}",
    f"schema.registry.basic.auth.user.info=user:{SECRET}",
    f'sasl.jaas.config=org.apache.PlainLoginModule required username="u" password="{SECRET}";',
]
UNREACHABLE = ["--bootstrap-servers", "127.0.0.1:1", "--timeout", "1"]


@pytest.mark.parametrize("given", GIVEN)
def test_a_secret_among_the_arguments_is_not_repeated(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_bytes(b'{"a": 1}\n')
    file = str(tmp_path / "a.json")
    for arguments in (
        ["write", file, "t", "--option", given],
        ["write", file, "t", f"--option={given}"],
        ["write", "--option", given, file, "t"],
        ["write", file, "t", f"--{given}"],
        ["write", file, "t", "--producer-config", given, *UNREACHABLE],
        ["write", file, "t", "--sett", given],
        ["write", file, "t", "--command-config", given],
        ["write", given, "t", *UNREACHABLE],
        ["write", file, "t", "--key", given, *UNREACHABLE],
        ["write", file, "t", "--format", given],
        ["write", file, "t", "--bootstrap-servers", given],
        ["tail", "t", "--option", given],
        ["bench", "t", "--producer-config", given, *UNREACHABLE],
        [given],
    ):
        try:
            code: object = main(arguments)
        except SystemExit as ended:
            code = ended.code
        shown = capsys.readouterr()
        assert code in (1, 2)
        assert shown.err, arguments
        assert SECRET not in shown.err + shown.out, arguments


@pytest.mark.parametrize("flag", ["--password", "--sasl.password", "--sasl-password", "--token", "--pasword"])
def test_a_secret_after_a_flag_that_is_none_is_not_repeated(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["write", "a.json", "t", flag, SECRET])
    message = capsys.readouterr().err
    assert f"unrecognized arguments: {flag} …" in message
    with pytest.raises(SystemExit):
        main(["write", "a.json", "t", flag, "ab"])
    assert f"unrecognized arguments: {flag} …" in capsys.readouterr().err


@pytest.mark.parametrize(
    "lines",
    [
        f"sasl.pasword={SECRET}",
        f"sasl.password {SECRET}\nsasl.mechanism=PLAIN",
        f"sasl.passwrod: {SECRET}",
        f"ssl.keystore.pasword={SECRET}\n",
        f"sasl.jaas.config=x password={SECRET}",
    ],
)
def test_a_file_of_config_with_a_misspelt_secret_is_not_repeated(
    lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_bytes(b'{"a": 1}\n')
    (tmp_path / "c.properties").write_text(lines, encoding="utf-8")
    arguments = [
        "write",
        str(tmp_path / "a.json"),
        "t",
        "--command-config",
        str(tmp_path / "c.properties"),
        *UNREACHABLE,
    ]
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert SECRET not in shown.err + shown.out


def test_names_that_are_no_secrets_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("acks", "key", "partitions", "sasl.mechanism", "client.id", "compression.type", "sasl.username"):
        assert not is_secret_name(name)
    with pytest.raises(SystemExit):
        main(["write", "a.json", "t", "--option", "acks=all"])
    assert "unrecognized arguments: --option acks=…" in capsys.readouterr().err

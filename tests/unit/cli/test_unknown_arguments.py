"""Arguments that no command knows: the usage, the one that was meant, and no value."""

from __future__ import annotations

import pytest

from spark_producer.cli.entry import main


@pytest.mark.parametrize(
    ("command", "unknown", "meant"),
    [
        (["tail", "people"], "--from-begining", ". Did you mean --from-beginning?"),
        (["topics", "create", "people"], "--parttions=4", ". Did you mean --partitions?"),
        (["tail", "people"], "more", ""),
    ],
)
def test_an_unknown_argument_shows_the_usage_of_its_command(
    command: list[str], unknown: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, unknown])
    assert ended.value.code == 2
    name = " ".join(["pyproducer", *command[:-1]])
    message = capsys.readouterr().err.splitlines()
    assert message[0].startswith(f"usage: {name} ")
    assert message[-1] == f"{name}: error: unrecognized arguments: {unknown.replace('=4', '=…')}{meant}"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--option", "sasl.password=CANARY"], "--option sasl.password=…. Did you mean --producer-config?"),
        (["--option=sasl.password=CANARY"], "--option=…. Did you mean --producer-config?"),
        (
            ["--producer-property", "sasl.jaas.config=a b CANARY"],
            "--producer-property sasl.jaas.config=…. Did you mean --producer-config?",
        ),
        (["--secret", "CANARY"], "--secret …. Did you mean --escape?"),
    ],
)
def test_an_unknown_argument_is_named_without_its_value(
    given: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["write", "a.csv", "topic", *given])
    message = capsys.readouterr().err
    assert "CANARY" not in message
    assert message.splitlines()[-1] == f"pyproducer write: error: unrecognized arguments: {shown}"

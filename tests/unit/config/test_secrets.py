"""No secret of the options shows in an error, nor in the local variables of its frames. Ids (tests/ids.md): SEC."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from spark_producer import config as config_package
from spark_producer.config import is_set, parse_options, producer_config
from spark_producer.config.profiles import profile
from spark_producer.errors import ConfigError
from spark_producer.producer import Producer
from tests.unit.config.secured import CANARY, JAAS, LOGIN

SERVERS = {"bootstrap.servers": "one.example.org:9093"}
WRONG = {
    "another option is unknown": {"sasl.pasword": CANARY},
    "another option is refused": {"key.serializer": CANARY},
    "another option is wrong": {"batch.size": "x"},
    "no profile": {"profile": "none"},
    "no servers": {"bootstrap.servers": ""},
    "a contradiction": {"sasl.jaas.config": JAAS},
    "bad JAAS": {"sasl.jaas.config": f"{CANARY} required"},
    "an unused option": {"ssl.keystore.key": CANARY},
    "a bad reference": {"sasl.password": f"{CANARY}${{env:X}}"},
    "no mechanism": {"sasl.mechanism": ""},
}


def frames_of(error: BaseException) -> list[str]:
    """The local variables of this package's frames, as tools show them that print them."""
    folder = str(Path(config_package.__file__).parents[1])
    return [
        f"{frame.f_code.co_qualname} {frame.f_locals!r}"
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename.startswith(folder)
    ]


@pytest.mark.covers("SEC42")
@pytest.mark.parametrize("wrong", WRONG)
def test_neither_errors_nor_their_local_variables_show_a_secret(wrong: str) -> None:
    given = SERVERS | LOGIN | {"sasl.password": CANARY, "ssl.key.password": CANARY} | WRONG[wrong]
    prefixed = {name if name == "profile" else f"kafka.{name}": value for name, value in given.items()}
    for refused in (refusal_of_producer(given), refusal_of_sink(prefixed)):
        assert frames_of(refused)
        assert CANARY not in str(refused) + repr(refused) + "".join(frames_of(refused))
        assert refused.__context__ is None or CANARY not in "".join(frames_of(refused.__context__))


def refusal_of_producer(options: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        Producer(options)
    return refused.value


def refusal_of_sink(options: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        parse_options(options)
    return refused.value


@pytest.mark.covers("SEC42")
def test_a_file_that_is_wrong_does_not_show_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "my.properties"
    for text in (f"sasl.password={CANARY}\n{CANARY}\n", f"sasl.password={CANARY}\nx=\\u00{CANARY}\n", f"{CANARY}+/=\n"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as refused:
            profile(str(path))
        assert CANARY not in str(refused.value) + "".join(frames_of(refused.value))
    path.write_bytes(f"sasl.password={CANARY}\xff".encode("latin-1"))
    with pytest.raises(ConfigError, match="UnicodeDecodeError, at byte 29: it is not UTF-8") as refused:
        profile(str(path))
    assert refused.value.__context__ is None
    assert refused.value.__cause__ is None


@pytest.mark.covers("SEC42")
def test_the_text_of_an_unknown_option_is_not_shown() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown option 'sasl\.pasword'\. Did you mean 'sasl\.password'\?"
    ) as refused:
        producer_config(SERVERS | {"sasl.pasword": CANARY})
    assert CANARY not in str(refused.value)


def test_secrets_are_taken_without_white_space_around_them_as_java_takes_them() -> None:
    found = producer_config(SERVERS | LOGIN | {"sasl.password": " a b\n"})
    assert found == producer_config(SERVERS | LOGIN | {"sasl.password": "a b"})
    assert is_set({"kafka.sasl.mechanisms": "PLAIN"}, "sasl.mechanism")

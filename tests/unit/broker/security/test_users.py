"""The users of the broker: the file that names them, and what is kept."""

from __future__ import annotations

import logging
import pickle
import traceback
from pathlib import Path
from threading import Barrier

import pytest

from spark_producer.broker import Users
from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError
from spark_producer.security import scram

SECONDS = 10
"""The deadline of every wait."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "users"
    made.touch(0o600)
    return made


def test_a_file_of_users(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_bytes("# who\n\nada=p=w d \r\n  \nÜnï=Ⅷ\n".encode())
    users = Users.read(file)
    assert users.names == ("ada", "Ünï")
    assert users.check("ada", b"p=w d ")
    assert users.check("Ünï", "Ⅷ".encode())
    assert not users.check("ada", b"p=w d")
    assert not users.check("eve", b"p=w d ")
    assert caplog.records == []


def test_the_keys_of_two_users_are_derived_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    both, derive = Barrier(2), scram.keys_of

    def keys_of(hash_name: str, password: bytes, salt: bytes, iterations: int) -> scram.Keys:
        both.wait(SECONDS)
        return derive(hash_name, password, salt, iterations)

    monkeypatch.setattr(scram, "keys_of", keys_of)
    users = Users({"ada": "one", "bob": "two"})
    monkeypatch.undo()
    assert users.check("ada", b"one")
    assert users.check("bob", b"two")
    assert not users.check("ada", b"two")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_may_read_is_warned_about(file: Path, mode: int, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text("ada=pw\n")
    file.chmod(mode)
    with caplog.at_level(logging.WARNING):
        Users.read(file)
    (record,) = caplog.records
    assert "chmod 600" in record.getMessage()


@pytest.mark.parametrize(
    ("text", "line"), [("ada", 1), ("ada=x\nhidden", 2), ("=hidden", 1), ("ada=", 1), ("a=x\n#\na=hidden", 3)]
)
def test_a_bad_line_is_named_by_its_number(file: Path, text: str, line: int) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"line {line} ") as raised:
        Users.read(file)
    assert "hidden" not in str(raised.value)


def test_files_that_cannot_be_read(file: Path, tmp_path: Path) -> None:
    file.write_bytes(b"ada=\xff")
    with pytest.raises(ConfigError, match="not UTF-8") as raised:
        Users.read(file)
    assert (raised.value.__cause__, raised.value.__context__) == (None, None), "it would hold the whole file"
    with pytest.raises(ConfigError, match="No such file"):
        Users.read(tmp_path / "none")


@pytest.mark.covers("SEC42")
@pytest.mark.parametrize("second", [b"bob", b"ada=y", b"=y", b"bob=\xff", b"bob=\0"])
def test_no_local_variable_of_a_traceback_shows_a_password(file: Path, second: bytes) -> None:
    file.write_bytes(b"ada=canary-7130\n" + second)
    with pytest.raises(ConfigError) as raised:
        Users.read(file)
    trace = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    assert "canary-7130" not in "".join(trace.format())


@pytest.mark.parametrize(("name", "password"), [("", "x"), ("x", ""), ("a\0", "x"), ("a", "x\0")])
def test_names_and_passwords_that_no_client_can_send(name: str, password: str) -> None:
    with pytest.raises(ConfigError, match="neither empty"):
        Users({name: password})


def test_no_password_is_kept() -> None:
    users = Users({"ada": "canary-in-clear", "bob": Secret("canary-secret")})
    assert repr(users) == "Users(ada, bob)"
    assert len(users) == 2
    assert b"canary" not in pickle.dumps(users)
    assert users.check("bob", b"canary-secret")

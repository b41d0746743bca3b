"""A login resolves its secrets again each time it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, ConfigError
from spark_producer.security.sasl_login import sasl_login
from spark_producer.security.settings import SaslSettings
from spark_producer.security.token import ENDLESS, Token


@pytest.mark.covers("SEC41")
def test_a_password_in_a_file_is_read_at_each_start(tmp_path: Path) -> None:
    file = tmp_path / "password"
    plain = sasl_login(SaslSettings("PLAIN", "app", Secret(f"${{file:{file}}}")), [f"file:{tmp_path}/"])
    for password in ("first", "second"):
        file.write_text(password + "\n", encoding="utf-8")
        assert next(plain.start()) == b"\0app\0" + password.encode()
    file.unlink()
    with pytest.raises(ConfigError, match=r"^kafka.sasl.password: .*cannot be read"):
        plain.start()


def test_a_name_of_a_jaas_entry_may_be_a_reference_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYPRODUCER_TEST_USER", "app")
    plain = sasl_login(SaslSettings("PLAIN", "${env:PYPRODUCER_TEST_USER}", Secret("pw")), ["env:PYPRODUCER_TEST_USER"])
    assert next(plain.start()) == b"\0app\0pw"
    assert plain.user == "${env:PYPRODUCER_TEST_USER}"


def test_the_user_of_event_hubs_is_no_reference() -> None:
    assert (
        next(sasl_login(SaslSettings("PLAIN", "$ConnectionString", Secret("x")), []).start())
        == b"\0$ConnectionString\0x"
    )


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("token_auth", [False, True])
def test_scram_gets_what_the_settings_say(mechanism: str, token_auth: bool) -> None:
    made = sasl_login(SaslSettings(mechanism, "app", Secret("pw"), token_auth), [], nonce=lambda: "nonce")
    assert made.mechanism == mechanism
    assert next(made.start()) == b"n,,n=app,r=nonce" + (b",tokenauth=true" if token_auth else b"")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_an_empty_password_is_reported_before_a_broker_counts_it(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYPRODUCER_TEST_EMPTY", "")
    made = sasl_login(SaslSettings(mechanism, "app", Secret("${env:PYPRODUCER_TEST_EMPTY}")), ["env:*"])
    with pytest.raises(AuthenticationFailed, match="empty"):
        next(made.start())


class OneToken:
    """A source with one token."""

    def __init__(self, expires_at: float, again: bool = False) -> None:
        self.one = Token(Secret("abc"), expires_at, (("fromProvider", "y"),))
        self.again = again
        self.reported: list[str] = []

    def token(self) -> Token:
        return self.one

    def refused(self, token: Token) -> bool:
        self.reported.append("refused")
        return self.again

    def accepted(self, token: Token) -> None:
        self.reported.append("accepted")


@pytest.mark.covers("SEC19")
@pytest.mark.parametrize(
    ("expires_at", "suffix"),
    [
        (1000.0, " By this machine's clock the token expired 12 s ago."),
        (1300.0, " By this machine's clock the token expires in 288 s."),
        (ENDLESS, ""),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_refusal_says_when_the_token_ends_by_our_clock(expires_at: float, suffix: str, again: bool) -> None:
    source = OneToken(expires_at, again)
    run = sasl_login(SaslSettings("OAUTHBEARER"), [], tokens=source, clock=lambda: 1012.0).start()
    assert next(run) == b"n,,\x01auth=Bearer abc\x01fromProvider=y\x01\x01"
    assert run.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailed) as refused:
        run.throw(AuthenticationFailed("said so", fatal=True, code=58))
    assert str(refused.value) == "said so" + suffix
    assert refused.value.__dict__ == {"fatal": not again, "code": 58}
    assert source.reported == ["refused"]


@pytest.mark.covers("SEC19")
def test_a_refusal_that_is_not_the_tokens_fault_asks_for_no_other() -> None:
    source = OneToken(ENDLESS, again=True)
    run = sasl_login(SaslSettings("OAUTHBEARER"), [], tokens=source).start()
    next(run)
    with pytest.raises(AuthenticationFailed, match="for a while") as refused:
        run.throw(AuthenticationFailed("for a while", fatal=False))
    assert not refused.value.fatal
    assert source.reported == []


@pytest.mark.covers("SEC19")
def test_an_accepted_token_is_reported_to_its_source() -> None:
    source = OneToken(ENDLESS)
    run = sasl_login(SaslSettings("OAUTHBEARER"), [], tokens=source).start()
    next(run)
    with pytest.raises(StopIteration):
        run.send(b"")
    assert source.reported == ["accepted"]


def test_another_mechanism_is_refused() -> None:
    with pytest.raises(ConfigError, match="GSSAPI"):
        sasl_login(SaslSettings("GSSAPI"), []).start()

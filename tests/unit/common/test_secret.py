"""`Secret`: nothing that shows a value shows its text."""

from __future__ import annotations

import copy
import json
import pickle
import pprint
import traceback

import pytest

from spark_producer.common.secret import HIDDEN, Secret
from spark_producer.errors import ConfigError
from spark_producer.security.settings import OidcSettings, SaslSettings, SecuritySettings, Store, TlsSettings

CANARY = "canary-of-this-test"
SECRET = Secret(CANARY)


@pytest.mark.covers("SEC42")
@pytest.mark.parametrize("form", ["%s", "%r", "%a", "%40s", "%.99s"])
def test_percent_shows_no_secret(form: str) -> None:
    assert CANARY not in form % SECRET


@pytest.mark.covers("SEC42")
@pytest.mark.parametrize("form", ["{}", "{!r}", "{!s}", "{!a}", "{:>40}", "{:s}", "{0}{0!r:^50}"])
def test_format_shows_no_secret(form: str) -> None:
    assert CANARY not in form.format(SECRET)


@pytest.mark.covers("SEC42")
@pytest.mark.parametrize(
    "holder", [[SECRET], (SECRET,), {"password": SECRET}, ConfigError("x", detail=SECRET).__dict__]
)
def test_what_holds_a_secret_does_not_show_it(holder: object) -> None:
    assert CANARY not in repr(holder) + str(holder) + ascii(holder) + pprint.pformat(holder)


@pytest.mark.covers("SEC42")
def test_settings_show_no_secret() -> None:
    store = Store(password=SECRET, key_pem=SECRET, key_password=SECRET)
    oidc = OidcSettings("https://x/", "id", SECRET, trust=store)
    whole = SecuritySettings(TlsSettings(store, store), SaslSettings("PLAIN", "app", SECRET, oidc=oidc))
    assert CANARY not in repr(whole)
    assert repr(whole).count(HIDDEN) == 3 + 3 + 1 + 1 + 3


@pytest.mark.covers("SEC42")
def test_a_secret_is_equal_by_value_and_has_no_hash() -> None:
    assert Secret(CANARY) == SECRET
    assert Secret("other") != SECRET
    assert SECRET != CANARY
    assert Secret("\ud800") == Secret("\ud800")
    assert Secret("ä") != Secret("a\u0308")
    assert SECRET
    assert not Secret("")
    with pytest.raises(TypeError, match="unhashable"):
        hash(SECRET)


@pytest.mark.covers("SEC42")
def test_json_refuses_a_secret() -> None:
    with pytest.raises(TypeError, match="Secret") as refused:
        json.dumps({"password": SECRET})
    assert CANARY not in str(refused.value)


@pytest.mark.covers("SEC42")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_secret_travels_by_pickle_and_is_copied_whole(protocol: int) -> None:
    assert pickle.loads(pickle.dumps(SECRET, protocol)).reveal() == CANARY
    assert copy.deepcopy(SECRET) == copy.copy(SECRET) == SECRET


@pytest.mark.covers("SEC42")
def test_a_secret_has_no_attributes_to_look_at() -> None:
    with pytest.raises(TypeError):
        vars(SECRET)
    with pytest.raises(AttributeError):
        SECRET.other = 1  # type: ignore[attr-defined]


@pytest.mark.covers("SEC42")
def test_a_traceback_with_local_variables_shows_no_secret() -> None:
    def fails(password: Secret) -> None:
        raise ValueError(f"with {password}")

    with pytest.raises(ValueError, match=r"with \*\*\*") as raised:
        fails(SECRET)
    reported = "".join(traceback.TracebackException.from_exception(raised.value, capture_locals=True).format())
    assert "password = ***" in reported
    assert CANARY not in reported.replace(f"'{CANARY}'", "")  # the constant of this test's own frame

"""Tokens from functions: the user's own, and Amazon's signer."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from spark_producer.errors import AuthenticationFailed, ConfigError, PyProducerError
from spark_producer.network.auth import token_providers
from spark_producer.network.auth.token_providers import aws_region, from_aws, from_function

CANARY = "canary.of-this-test"
EXPIRY = 1_700_000_000_000


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Makes a module of the user's with a function `get` whose body is given; returns its name as options have it."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(body: str) -> str:
        name = "tokens_of_a_test"
        source = f"class Inner:\n    @staticmethod\n    def get():\n        {body}\nget = Inner.get\n"
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return f"{name}:get"

    return make


def refusal(call: Callable[[], object]) -> PyProducerError:
    with pytest.raises(PyProducerError) as refused:
        call()
    frames = [
        frame for frame, _ in traceback.walk_tb(refused.tb) if frame.f_code.co_filename == token_providers.__file__
    ]
    assert frames
    assert CANARY not in str(refused.value) + "".join(repr(frame.f_locals) for frame in frames)
    assert refused.value.__context__ is None
    return refused.value


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("body", "extensions"),
    [
        (f"return 'abc', {EXPIRY}", ()),
        (f"return 'abc', {EXPIRY}.0, None", ()),
        (f"return 'abc', {EXPIRY}, {{}}", ()),
        (f"return 'abc', {EXPIRY}, {{'logicalCluster': 'lkc-1'}}", (("logicalCluster", "lkc-1"),)),
    ],
)
def test_a_function_of_the_users_gives_tokens(
    body: str, extensions: tuple[tuple[str, str], ...], provider: Callable[[str], str]
) -> None:
    name = provider(body)
    for spelling in (name, name.replace(":get", ":Inner.get")):
        token = from_function(spelling)
        assert (token.text.reveal(), token.expires_at, token.extensions) == ("abc", EXPIRY / 1000, extensions)


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return None", "returned NoneType"),
        (f"return '{CANARY}'", "returned str"),
        (f"return ['{CANARY}', {EXPIRY}]", "returned list"),
        (f"return '{CANARY}', {EXPIRY}, {{}}, 1", "returned tuple"),
        (f"return b'{CANARY}', {EXPIRY}", "of type bytes"),
        (f"return '{CANARY} {CANARY}', {EXPIRY}", "characters"),
        (f"return '', {EXPIRY}", "empty"),
        (f"return '{CANARY}', {EXPIRY // 1000}", "milliseconds"),
        (f"return '{CANARY}', '{EXPIRY}'", "milliseconds"),
        (f"return '{CANARY}', True", "milliseconds"),
        (f"return '{CANARY}', float('nan')", "milliseconds"),
        (f"return '{CANARY}', float('inf')", "milliseconds"),
        (f"return '{CANARY}', 10**400", "milliseconds"),
        (f"return '{CANARY}', -{EXPIRY}", "milliseconds"),
        (f"return '{CANARY}', {EXPIRY}, [1]", "dictionary"),
        (f"return '{CANARY}', {EXPIRY}, {{'a': 1}}", "dictionary"),
        (f"return '{CANARY}', {EXPIRY}, {{'auth': '{CANARY}'}}", "auth"),
    ],
)
def test_an_invalid_token_is_reported_without_showing_it(
    body: str, reason: str, provider: Callable[[str], str]
) -> None:
    name = provider(body)
    error = refusal(lambda: from_function(name))
    assert isinstance(error, AuthenticationFailed)
    assert error.fatal
    assert reason in str(error)


@pytest.mark.covers("SEC18")
def test_an_error_of_the_function_is_reported_by_its_type_and_location(provider: Callable[[str], str]) -> None:
    name = provider(f"raise KeyError('{CANARY}')")
    error = refusal(lambda: from_function(name))
    assert isinstance(error, AuthenticationFailed)
    assert not error.fatal, "the next attempt may succeed"
    assert f"raised KeyError at {name.split(':')[0]}.py:4" in str(error)


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize("name", ["no_such_module_here:get", "json:no_such_function", "json:__name__", "json:loads.x"])
def test_a_function_that_is_not_there_is_fatal(name: str) -> None:
    error = refusal(lambda: from_function(name))
    assert isinstance(error, ConfigError)
    assert error.__dict__ == {"fatal": True}
    assert name in str(error)


@pytest.mark.covers("SEC18")
def test_a_module_that_cannot_be_imported_is_reported_by_its_type(provider: Callable[[str], str]) -> None:
    name = provider(f"return 1\nraise RuntimeError('{CANARY}')")
    assert "raised RuntimeError" in str(refusal(lambda: from_function(name)))


class Signer(ModuleType):
    """Stands for Amazon's module of functions, and keeps how it was called."""

    def __init__(self) -> None:
        super().__init__("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
        self.calls: list[tuple[object, ...]] = []

    def generate_auth_token(self, *arguments: object) -> tuple[str, int]:
        return self._called("default", *arguments)

    def generate_auth_token_from_profile(self, *arguments: object) -> tuple[str, int]:
        return self._called("profile", *arguments)

    def generate_auth_token_from_role_arn(self, *arguments: object) -> tuple[str, int]:
        return self._called("role", *arguments)

    def _called(self, *arguments: object) -> tuple[str, int]:
        self.calls.append(arguments)
        return "signed", EXPIRY


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> Signer:
    made = Signer()
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", ModuleType("aws_msk_iam_sasl_signer"))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("options", "call"),
    [
        ((), ("default", "eu-west-1")),
        ((("awsProfileName", "dev"),), ("profile", "eu-west-1", "dev")),
        ((("awsRoleArn", "arn:x"),), ("role", "eu-west-1", "arn:x")),
        ((("awsRoleArn", "arn:x"), ("awsRoleSessionName", "me")), ("role", "eu-west-1", "arn:x", "me")),
    ],
)
def test_amazons_signer_is_called_as_the_jaas_entry_says(
    options: tuple[tuple[str, str], ...], call: tuple[str, ...], signer: Signer
) -> None:
    token = from_aws(options, "eu-west-1")
    assert (token.text.reveal(), token.expires_at) == ("signed", EXPIRY / 1000)
    assert signer.calls == [call]


@pytest.mark.covers("SEC18")
def test_without_amazons_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", None)
    error = refusal(lambda: from_aws((), "eu-west-1"))
    assert isinstance(error, ConfigError)
    assert "pip install 'pyproducer[msk]'" in str(error)
    assert error.__dict__ == {"fatal": True}


@pytest.mark.covers("SEC18")
def test_without_a_region_the_error_says_where_to_set_it(signer: Signer) -> None:
    assert "AWS_REGION" in str(refusal(lambda: from_aws((), "")))
    assert not signer.calls


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("error", "fatal"),
    [
        (type("ProfileNotFound", (Exception,), {})("The config profile (x) could not be found"), True),
        (type("ClientError", (Exception,), {})("AccessDenied when calling the AssumeRole operation"), True),
        (type("EndpointConnectionError", (Exception,), {})("Could not connect"), False),
    ],
)
def test_what_amazons_signer_says_is_shown(
    error: Exception, fatal: bool, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str) -> None:
        raise error

    monkeypatch.setattr(signer, "generate_auth_token", fails)
    reported = refusal(lambda: from_aws((), "eu-west-1"))
    assert str(error).strip() in str(reported)
    assert "Check the AWS credentials" in str(reported)
    assert reported.__dict__ == {"fatal": fatal}


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    "error",
    [
        AttributeError("'NoneType' object has no attribute 'access_key'"),
        AttributeError("'NoneType' object has no attribute 'get_frozen_credentials'"),
        ValueError("AWS Credentials can not be empty\n"),
    ],
)
def test_without_aws_credentials_the_error_says_so(
    error: Exception, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amazon's signer passes on what Python says of the None that botocore returns."""

    def fails(_: str) -> None:
        raise error

    monkeypatch.setattr(signer, "generate_auth_token", fails)
    reported = refusal(lambda: from_aws((), "eu-west-1"))
    assert "the AWS signer for eu-west-1 found no AWS credentials. Check the AWS credentials" in str(reported)
    assert "NoneType" not in str(reported)
    assert reported.__dict__ == {"fatal": True}


@pytest.mark.covers("SEC18")
def test_another_error_about_none_in_the_aws_signer_keeps_its_text(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was reported as missing credentials, and its text was lost."""

    def fails(_: str) -> None:
        raise AttributeError("'NoneType' object has no attribute 'resolve_endpoint'")

    monkeypatch.setattr(signer, "generate_auth_token", fails)
    reported = str(refusal(lambda: from_aws((), "eu-west-1")))
    assert "raised AttributeError: 'NoneType' object has no attribute 'resolve_endpoint'. Check the AWS" in reported
    assert "found no AWS credentials" not in reported


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize(
    ("hosts", "environ", "region"),
    [
        (["b-1.demo.a1b2c3.c4.kafka.us-east-1.amazonaws.com"], {}, "us-east-1"),
        (["boot-x.c1.kafka-serverless.eu-central-1.amazonaws.com."], {"AWS_REGION": "other"}, "eu-central-1"),
        (["localhost", "b-1-public.x.y.c2.kafka.cn-north-1.amazonaws.com.cn"], {}, "cn-north-1"),
        (["broker.corp"], {"AWS_REGION": "eu-west-1"}, "eu-west-1"),
        (["broker.corp"], {"AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-2"),
        (["b.kafka.us-east-1.amazonaws.com.evil.example"], {}, ""),
        ([], {}, ""),
    ],
)
def test_the_region_comes_from_a_brokers_name_or_the_environment(
    hosts: list[str], environ: dict[str, str], region: str
) -> None:
    assert aws_region(hosts, environ) == region

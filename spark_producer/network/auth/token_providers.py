"""Tokens from Python functions: a function of the user, `module:function`, or the AWS signer for MSK."""

from __future__ import annotations

import importlib
import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from spark_producer.common.escape import for_log
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, ConfigError
from spark_producer.security.token import Token, extension_problem, token_problem

_OPTION: Final = "oauthTokenProvider"
_AWS_MODULE: Final = "aws_msk_iam_sasl_signer"
_AWS_FINAL: Final = (
    "AttributeError", "ValueError", "ProfileNotFound", "NoCredentialsError", "PartialCredentialsError", "ClientError",
)  # fmt: skip
"""Errors of the signer after which a retry is unlikely to succeed."""

_NO_AWS_CREDENTIALS: Final = (
    "raised AttributeError: 'NoneType' object has no attribute 'access_key'",
    "raised AttributeError: 'NoneType' object has no attribute 'get_frozen_credentials'",
    "raised ValueError: AWS Credentials can not be empty",
)
"""The signer has no check of its own for missing credentials, and looks for the key in what botocore found: None. Other errors
about None have other causes."""

_AWS_HOST: Final = re.compile(r"(?:.+\.)?(?:kafka|kafka-serverless)\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?")
_MIN_MILLISECONDS: Final = 10**11
"""Minimum expiry of a token in milliseconds: smaller values are seconds, since as milliseconds they would be before 1974."""

_MAX_MILLISECONDS: Final = 1 << 63
"""Maximum expiry of a token in milliseconds: Kafka's clients hold it in 64 bits (OAuthBearerToken.lifetimeMs)."""


def from_function(provider: str) -> Token:
    """Return a token of the user's function `module:function`. A failed import is tried again on each call.

    Raises:
        ConfigError: there is no such function (fatal).
        AuthenticationFailed: it raised an error, or did not return `(token, expiry in ms since 1970[, extensions])`.
    """
    function = _import_function(provider)
    problem, returned = _call(function)
    if problem:
        raise AuthenticationFailed(f"the token provider {provider} {problem}")
    token = _token(returned)
    if isinstance(token, str):
        del returned
        raise AuthenticationFailed(f"the token provider {provider} {token}", fatal=True)
    return token


def from_aws(options: Sequence[tuple[str, str]], region: str) -> Token:
    """Return a token of the AWS signer for a region, with the profile or role of `options`, else the default credentials.

    Raises:
        ConfigError: the signer is not installed, or the region is unknown (fatal).
        AuthenticationFailed: the signer raised an error.
    """
    try:
        signer = importlib.import_module(f"{_AWS_MODULE}.MSKAuthTokenProvider")
    except ImportError:
        signer = None
    if signer is None:
        raise ConfigError(
            "a login with AWS_MSK_IAM needs the AWS signer on the driver and the executors: "
            "pip install 'pyproducer[msk]', which installs aws-msk-iam-sasl-signer-python",
            fatal=True,
        )
    if not region:
        raise ConfigError(
            "a login with AWS_MSK_IAM needs a region, and no host in bootstrap.servers contains one. Set AWS_REGION in the "
            "environment of the driver and the executors",
            fatal=True,
        )
    problem, returned = _call(_aws_call(signer, dict(options), region), with_text=True)
    if problem:
        said = "found no AWS credentials" if problem.startswith(_NO_AWS_CREDENTIALS) else problem
        raise AuthenticationFailed(
            f"the AWS signer for {region} {said}. Check the AWS credentials on the driver and the executors: environment "
            "variables, a profile, or the role of the instance or pod",
            fatal=any(problem.startswith(f"raised {name}:") for name in _AWS_FINAL),
        )
    token = _token(returned)
    if isinstance(token, str):
        del returned
        raise AuthenticationFailed(f"the AWS signer for {region} {token}", fatal=True)
    return token


def aws_region(hosts: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """Return the region in the name of a broker, else AWS_REGION or AWS_DEFAULT_REGION; empty if there is none."""
    for host in hosts:
        found = _AWS_HOST.fullmatch(host)
        if found:
            return found[1]
    return environ.get("AWS_REGION", "") or environ.get("AWS_DEFAULT_REGION", "")


def _aws_call(signer: Any, options: Mapping[str, str], region: str) -> Callable[[], object]:
    """Return the call of the signer for the options of the JAAS entry of IAMLoginModule."""
    role, profile = options.get("awsRoleArn"), options.get("awsProfileName")
    if role:
        session = [name] if (name := options.get("awsRoleSessionName")) else []
        return lambda: signer.generate_auth_token_from_role_arn(region, role, *session)
    if profile:
        return lambda: signer.generate_auth_token_from_profile(region, profile)
    return lambda: signer.generate_auth_token(region)


def _import_function(provider: str) -> Callable[[], object]:
    module, _, name = provider.partition(":")
    problem = ""
    function: Any = None
    try:
        function = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
    except Exception as error:  # a user's module may raise anything
        problem = _describe_error(error, with_text=False)
    if problem or not callable(function):
        raise ConfigError(
            f"{_OPTION}: {provider!r} {f'cannot be imported here: it {problem}' if problem else 'is not a function'}. Driver and "
            "executors must have it, for example by --py-files",
            fatal=True,
        )
    return function  # type: ignore[no-any-return]


def _call(function: Callable[[], object], *, with_text: bool = False) -> tuple[str, object]:
    """Call a function. Return the problem, if it raised an error, and its result."""
    try:
        return "", function()
    except Exception as error:  # a user's function may raise anything
        return _describe_error(error, with_text=with_text), None


def _describe_error(error: Exception, *, with_text: bool) -> str:
    """Return the type of an error and its location, or its text if `with_text`: the text of a user's error may hold a secret."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119
    return f"raised {type(error).__name__}" + (f": {for_log(str(error))}" if with_text else location)


def _token(returned: object) -> Token | str:
    """Return the token that a provider returned, or its problem, without showing the token."""
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        return f"returned {type(returned).__name__}; expected (token, expiry in ms since 1970[, extensions])"
    text, expiry, *rest = returned
    if not isinstance(text, str):
        return f"returned a token of type {type(text).__name__}; expected str"
    problem = token_problem(Secret(text))
    if problem:
        return f"returned a token that cannot be sent: {problem}"
    if (
        isinstance(expiry, bool)
        or not isinstance(expiry, int | float)
        or not _MIN_MILLISECONDS <= expiry <= _MAX_MILLISECONDS
    ):
        return "returned an expiry that is not a number of milliseconds since 1970"
    extensions = _extensions(rest[0] if rest else {})
    if isinstance(extensions, str):
        return f"returned extensions that cannot be sent: {extensions}"
    return Token(Secret(text), float(expiry) / 1000, extensions)


def _extensions(given: object) -> tuple[tuple[str, str], ...] | str:
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not all(isinstance(part, str) for pair in given.items() for part in pair):
        return "they are not a dictionary of strings"
    pairs = tuple(given.items())
    return extension_problem(pairs) or pairs

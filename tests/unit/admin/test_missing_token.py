"""A blocking client whose login has no token."""

from __future__ import annotations

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.checks import FindingState, check_cluster
from spark_producer.admin.exchange import NodeRequest
from spark_producer.config import producer_config
from spark_producer.errors import BrokersUnreachable
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import METADATA, messages

ADVICE = "What to do: get a token or ticket first (see the error before); brokers answer no one without a login."


def settings() -> ConnectionSettings:
    options = {
        "bootstrap.servers": "one.invalid:1,two.invalid:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "oauthTokenProvider": f"{__name__}:no_token",
    }
    return ConnectionSettings.from_config(producer_config(options))


@pytest.mark.covers("SEC18")
@pytest.mark.parametrize("waits", [False, True])
def test_without_a_token_the_error_is_about_the_login(waits: bool) -> None:
    """It said that no broker could be reached, once for each bootstrap server, and to check their addresses and firewalls."""
    with BlockingClient(settings(), timeout=20.0) as client:
        [found] = client.request_all([NodeRequest(-1, METADATA, messages.MetadataRequest())])
        if waits:  # the error is known by now
            client.timeout = 0.0
            [found] = client._exchange([NodeRequest(-1, METADATA, messages.MetadataRequest())])
    assert isinstance(found, BrokersUnreachable)
    text = str(found)
    limit = " within 0 s" if waits else ""
    assert text.startswith(
        f"no login was possible{limit}: the token provider {__name__}:no_token raised ValueError at "
    )
    assert getattr(found, "lacks_login", False)
    assert text.endswith(ADVICE)


@pytest.mark.covers("SEC18")
def test_the_check_of_a_connection_files_it_under_the_login_with_an_advice() -> None:
    """It was filed under the connection, and the advice was a part of the text."""
    [finding] = check_cluster(settings(), timeout=0.3)
    assert (finding.name, finding.state) == ("login", FindingState.FAILED)
    assert finding.text.startswith("no login was possible within 0.3 s: the token provider")
    assert finding.advice == ADVICE.removeprefix("What to do: ").rstrip(".")


def no_token() -> object:
    """A provider of tokens that fails."""
    raise ValueError("no secret here")

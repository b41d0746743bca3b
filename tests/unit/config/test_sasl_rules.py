"""Rules between the options of logins: what contradicts, what is missing, what would be ignored. Ids (tests/ids.md): SEC."""

from __future__ import annotations

import pytest

from spark_producer.common.secret import Secret
from spark_producer.config.token_rules import is_loopback
from spark_producer.network.security_options import security_settings
from tests.unit.config.secured import CANARY, JAAS, LOGIN, MSK, OAUTH, PEM, PROVIDER, TOKENS, config, refusal


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl.username": ""}, "a login with SCRAM-SHA-512 needs kafka.sasl.username and kafka.sasl.password, or both in "
         "kafka.sasl.jaas.config: kafka.sasl.username is missing"),
        ({"sasl.password": ""}, "kafka.sasl.password is missing"),
        ({"sasl.jaas.config": JAAS.replace('"p"', f'"{CANARY}"')}, "kafka.sasl.password and password in kafka.sasl.jaas.config "
         "have different values. Give one of them"),
        ({"sasl.jaas.config": JAAS.replace('"u"', '"v"')}, "kafka.sasl.username and username in kafka.sasl.jaas.config have"),
        ({"sasl.jaas.config": JAAS.replace("scram.Scram", "plain.Plain")}, "kafka.sasl.jaas.config has PlainLoginModule, but "
         "kafka.sasl.mechanism (or kafka.sasl.mechanisms) is SCRAM-SHA-512, which needs ScramLoginModule"),
        ({"sasl.jaas.config": JAAS[:-1] + " tokenauth=yes;"}, "tokenauth in kafka.sasl.jaas.config must be true or false"),
        ({"sasl.jaas.config": CANARY}, "kafka.sasl.jaas.config cannot be parsed at character 1"),
        ({"sasl.oauthbearer.scope": "s"}, "kafka.sasl.oauthbearer.scope is set, but a login with SCRAM-SHA-512 does not use it"),
        ({"https.ca.location": "s"}, "kafka.https.ca.location is set, but a login with SCRAM-SHA-512 does not use it"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "does not use it"),
        ({"sasl.login.read.timeout.ms": "1"}, "does not use it"),
    ],
)  # fmt: skip
def test_logins_by_password_that_cannot_be(options: dict[str, str], said: str) -> None:
    assert said in refusal(LOGIN, options)


@pytest.mark.covers("SEC11")
def test_a_text_of_jaas_that_says_the_same_is_no_contradiction() -> None:
    assert config(LOGIN, {"sasl.jaas.config": JAAS}).sasl_username == "u"
    config(LOGIN, {"sasl.username": "", "sasl.password": "", "sasl.jaas.config": JAAS[:-1] + " tokenauth=True;"})


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl.oauthbearer.token.endpoint.url": ""}, "a login with OAUTHBEARER needs kafka.sasl.oauthbearer.token.endpoint.url "
         "with a client id and secret, or oauthTokenProvider; neither is set"),
        ({"sasl.oauthbearer.client.id": ""}, "client.id (or kafka.sasl.oauthbearer.client.id), which is not set"),
        ({"sasl.oauthbearer.client.secret": ""}, "client.secret (or kafka.sasl.oauthbearer.client.secret), which is not set"),
        ({"oauthTokenProvider": "m:f"}, "are both set. Drop one of them"),
        ({"sasl.username": "u"}, "kafka.sasl.username is set, but a login with OAUTHBEARER does not use it"),
        ({"sasl.jaas.config": f"{OAUTH} clientSecret=x{CANARY};"}, "and clientSecret in kafka.sasl.jaas.config have different"),
        ({"sasl.jaas.config": f"{OAUTH} awsProfileName=x;"}, "has options of Amazon's signer, but tokens come from"),
        ({"sasl.jaas.config": JAAS}, "kafka.sasl.jaas.config has ScramLoginModule, but"),
        ({"sasl.oauthbearer.token.endpoint.url": f"http://idp.example.org/?{CANARY}"}, "begins with http"),
        ({"sasl.oauthbearer.token.endpoint.url": f"file:///{CANARY}"}, "names a token file, which uses none of them"),
        ({"sasl.oauthbearer.token.endpoint.url": f"file://h/{CANARY}"}, "must have the form file:///path"),
        ({"sasl.oauthbearer.token.endpoint.url": f"file:///{CANARY}:key"}, "must have the form file:///path"),
        ({"azureTenantId": "t"}, "azureTenantId is for the Azure identities"),
        ({"oauthTokenProvider": "azure-client-secret"}, "are both set. Drop one of them"),
        ({"sasl.oauthbearer.token.endpoint.url": f"https:///{CANARY}"}, "must have the form https://host/path"),
        ({"sasl.oauthbearer.token.endpoint.url": f"https://h:port/{CANARY}"}, "must have the form https://host/path"),
        ({"sasl.oauthbearer.token.endpoint.url": f"https://h/a {CANARY}"}, "must have the form https://host/path"),
        ({"sasl.oauthbearer.token.endpoint.url": f"https://u:{CANARY}@h/"}, "has a user before an @"),
        ({"sasl.oauthbearer.extensions": "a"}, "kafka.sasl.oauthbearer.extensions has no name=value as entry"),
        ({"sasl.oauthbearer.extensions": "a=1,a=2"}, "has 'a' twice"),
        ({"sasl.oauthbearer.extensions": "auth=1"}, "has only letters, and is not auth"),
        ({"sasl.oauthbearer.extensions": "a1=1"}, "has only letters"),
        ({"sasl.oauthbearer.extensions": "a=ä"}, "not printable ASCII"),
        ({"sasl.oauthbearer.extensions": "a=1", "sasl.jaas.config": f"{OAUTH} extension_a=2;"}, "different values of the ext"),
        ({"https.ca.location": "c", "https.ca.pem": PEM}, "are both set"),
        ({"sasl.login.callback.handler.class": "org.example.Handler"}, "is 'org.example.Handler': Java classes cannot run here. "
         "Give `oauthTokenProvider`"),
        ({"sasl.client.callback.handler.class": "org.example.Handler"}, "Java classes cannot run here"),
        ({"sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"},
         "the token provider 'aws-msk-iam' are both set"),
        ({"sasl.oauthbearer.method": "default"}, "must be one of oidc"),
    ],
)  # fmt: skip
def test_logins_by_token_that_cannot_be(options: dict[str, str], said: str) -> None:
    assert said in refusal(TOKENS, options)


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"oauthTokenProvider": "module"}, "is 'module'; it must be module:function or one of aws-msk-iam, azure-"),
        ({"oauthTokenProvider": "a b:c"}, "it must be module:function"),
        ({"oauthTokenProvider": ":c"}, "it must be module:function"),
        ({"sasl.oauthbearer.method": "oidc"}, "'m:f' does not use kafka.sasl.oauthbearer.method"),
        ({"sasl.oauthbearer.scope": "s"}, "'m:f' does not use the scope"),
        ({"sasl.oauthbearer.client.secret": CANARY}, "'m:f' does not use the client secret"),
        ({"https.ca.location": "s"}, "'m:f' does not use kafka.https.ca.*"),
        ({"sasl.jaas.config": f"{OAUTH} awsProfileName=x;"}, "'m:f' does not use options of Amazon's login"),
        ({"sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"},
         "is 'm:f', but kafka.sasl.login.callback.handler.class needs aws-msk-iam"),
        ({"sasl.login.callback.handler.class":
          "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"},
         "is for token endpoints, but oauthTokenProvider is set"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "is 'm:f', but kafka.sasl.mechanism needs aws-msk-iam"),
    ],
)  # fmt: skip
def test_token_providers_that_cannot_be(options: dict[str, str], said: str) -> None:
    assert said in refusal(PROVIDER, options)


GOOGLES = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"oauthTokenProvider": "azure"}, "azure-client-secret, azure-managed-identity, azure-workload-identity"),
        (
            {"oauthTokenProvider": "azure-client-secret"},
            "needs the client id and the client secret. Set kafka.sasl.oauthb",
        ),
        (
            {"oauthTokenProvider": "azure-client-secret", "sasl.oauthbearer.client.secret": CANARY},
            "needs the client id. Set",
        ),
        (
            {"oauthTokenProvider": "azure-managed-identity", "sasl.oauthbearer.client.secret": CANARY},
            "not use the client sec",
        ),
        ({"oauthTokenProvider": "azure-managed-identity", "azureTenantId": "t"}, "does not use azureTenantId"),
        ({"oauthTokenProvider": "azure-workload-identity", "https.ca.pem": PEM}, "does not use kafka.https.ca.*"),
        ({"oauthTokenProvider": "gcp-managed-kafka", "sasl.oauthbearer.scope": "s"}, "does not use the scope"),
        ({"sasl.login.callback.handler.class": GOOGLES}, "needs gcp-managed-kafka, but oauthTokenProvider"),
        ({"oauthTokenProvider": "aws-msk-iam", "azureTenantId": "t"}, "does not use azureTenantId"),
    ],
)
def test_cloud_identities_that_cannot_be(options: dict[str, str], said: str) -> None:
    assert said in refusal(PROVIDER, options)


@pytest.mark.covers("SEC11")
def test_cloud_identities_that_can_be() -> None:
    given = {"azureTenantId": "t", "sasl.oauthbearer.client.id": "c", "sasl.oauthbearer.scope": "s"}
    config(PROVIDER, {"oauthTokenProvider": "azure-managed-identity", "sasl.oauthbearer.client.id": "c"})
    config(PROVIDER, {"oauthTokenProvider": "azure-workload-identity"} | given)
    config(PROVIDER, {"oauthTokenProvider": "azure-client-secret", "sasl.oauthbearer.client.secret": CANARY} | given)
    for provider in ("", "gcp-managed-kafka"):
        googles = {"oauthTokenProvider": provider, "sasl.login.callback.handler.class": GOOGLES}
        sasl = security_settings(config(PROVIDER, googles)).sasl
        assert sasl is not None
        assert (sasl.mechanism, sasl.provider) == ("OAUTHBEARER", "gcp-managed-kafka")


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl.password": CANARY}, "kafka.sasl.password is set, but a login with AWS_MSK_IAM does not use it"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://h/"}, "a login with AWS_MSK_IAM does not use it"),
        ({"sasl.jaas.config": f"{OAUTH};"}, "has OAuthBearerLoginModule, but"),
        ({"sasl.login.callback.handler.class":
          "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"}, "which AWS_MSK_IAM does not use"),
    ],
)  # fmt: skip
def test_logins_with_iam_that_cannot_be(options: dict[str, str], said: str) -> None:
    assert said in refusal(MSK, options)


@pytest.mark.covers("SEC11")
def test_tokens_that_can_be() -> None:
    scoped = config(TOKENS, {"sasl.oauthbearer.method": "oidc", "https.ca.pem": PEM, "sasl.oauthbearer.scope": "a b"})
    assert (scoped.sasl_oauthbearer_scope, scoped.https_ca_pem) == ("a b", PEM.strip())
    near = config(TOKENS, {"sasl.oauthbearer.token.endpoint.url": "http://localhost:1/token"})
    assert near.sasl_oauthbearer_token_endpoint_url == "http://localhost:1/token"
    own = config(PROVIDER, {"oauthTokenProvider": "a.b:c.d", "sasl.login.refresh.window.factor": "0.5"})
    assert (own.sasl_oauthbearer_token_provider, own.sasl_login_refresh_window_factor) == ("a.b:c.d", 0.5)
    assert config(PROVIDER, {"sasl.jaas.config": f"{OAUTH};"}).sasl_jaas_config == Secret(f"{OAUTH};")
    assert config(MSK, {"oauthTokenProvider": "aws-msk-iam"}).sasl_mechanism == "AWS_MSK_IAM"


@pytest.mark.parametrize(("factor", "fits"), [("0.5", True), ("1", True), ("0.49", False), ("1.1", False), ("nan", False),
                                              ("1_0", False), ("x", False), ("", False), ("inf", False)])  # fmt: skip
def test_numbers_may_have_a_fraction_where_kafkas_do(factor: str, fits: bool) -> None:
    options = {"sasl.login.refresh.window.factor": factor}
    if fits:
        assert config(PROVIDER, options).sasl_login_refresh_window_factor == float(factor)
    else:
        assert "kafka.sasl.login.refresh.window.factor must " in refusal(PROVIDER, options)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True), ("LOCALHOST.", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True),
        ("::ffff:127.0.0.1", True), ("localhost.example.org", False), ("10.0.0.1", False), ("::ffff:10.0.0.1", False),
        ("0.0.0.0", False), ("127.0.0.1.example.org", False), ("example.org", False), ("", False),
    ],
)  # fmt: skip
def test_which_hosts_are_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected

"""The login to a broker: its SASL mechanism, with secrets that are resolved at each start."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Protocol

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, ConfigError
from spark_producer.security.gssapi import SecurityContext, gssapi
from spark_producer.security.oauthbearer import oauthbearer
from spark_producer.security.plain import plain
from spark_producer.security.references import is_reference, resolve
from spark_producer.security.scram import HASHES, fresh_nonce, scram
from spark_producer.security.settings import SaslSettings
from spark_producer.security.token import ENDLESS, Token, TokenSource


class KerberosLogin(Protocol):
    """The login of GSSAPI to one broker, which is begun before the connection."""

    def context(self) -> SecurityContext:
        """Return the context of the login, once; raise AuthenticationFailed if it has not begun."""

    def refused(self) -> bool:
        """Record that the broker rejected the login. Return whether one with new tickets may succeed."""

    def accepted(self) -> None:
        """Record that the broker accepted the login."""


class SaslLogin:
    """The login to a broker. Each connection, and each re-authentication (KIP-368), starts it once."""

    def __init__(
        self,
        settings: SaslSettings,
        allowed: Sequence[str],
        *,
        tokens: TokenSource | None = None,
        kerberos: KerberosLogin | None = None,
        clock: Callable[[], float] | None = None,
        nonce: Callable[[], str] = fresh_nonce,
    ) -> None:
        """`tokens` has the tokens of OAUTHBEARER, `kerberos` is the login of GSSAPI to one broker.

        `clock` returns seconds since 1970, for messages about the expiry of tokens.
        """
        self._settings = settings
        self._allowed = tuple(allowed)
        self._tokens = tokens
        self._kerberos = kerberos
        self._clock = clock
        self._nonce = nonce

    @property
    def mechanism(self) -> str:
        """Kafka's name of the mechanism."""
        return self._settings.mechanism

    @property
    def user(self) -> str:
        """The user name for messages; empty if only the token has it."""
        return self._settings.username

    @property
    def given_by(self) -> str:
        """The options with the user name and password, for messages."""
        return self._settings.given_by

    def start(self) -> Generator[bytes, bytes, None]:
        """Start the mechanism: `next` returns the first message, `send(challenge)` each following one.

        The generator returns after the last message of the server. The caller throws an error code of the server into it, and
        it raises that error again with the reason that it knows.

        Raises:
            ConfigError: a reference to a secret cannot be resolved. It has the attribute `fatal`.
            AuthenticationFailed: there is no token. The generator raises it too.
        """
        mechanism = _MECHANISMS.get(self.mechanism)
        if mechanism is None:
            raise ConfigError(f"kafka.sasl.mechanism: {self.mechanism} is not supported", fatal=True)
        return mechanism(self)

    def _plain(self) -> Generator[bytes, bytes, None]:
        return plain(self._username(), self._password())

    def _scram(self) -> Generator[bytes, bytes, None]:
        token_auth = self._settings.token_auth
        return scram(self.mechanism, self._username(), self._password(), token_auth=token_auth, nonce=self._nonce)

    def _oauthbearer(self) -> Generator[bytes, bytes, None]:
        if self._tokens is None:
            raise ConfigError(
                "no source of tokens for OAUTHBEARER. Set a token endpoint or a token provider", fatal=True
            )
        return self._by_token(self._tokens, self._tokens.token())

    def _gssapi(self) -> Generator[bytes, bytes, None]:
        if self._kerberos is None:
            raise ConfigError("no Kerberos for GSSAPI. Set kafka.sasl.kerberos.service.name", fatal=True)
        return self._by_ticket(self._kerberos, self._kerberos.context())

    def _by_ticket(self, kerberos: KerberosLogin, context: SecurityContext) -> Generator[bytes, bytes, None]:
        """Log in with a ticket. The first rejection is not fatal, since the key of the broker may be newer than the ticket."""
        try:
            yield from gssapi(context)
        except AuthenticationFailed as error:
            rejection = error
        else:
            kerberos.accepted()
            return
        again = rejection.fatal and kerberos.refused()
        final = AuthenticationFailed(str(rejection))
        final.__dict__.update(rejection.__dict__, fatal=rejection.fatal and not again)
        raise final

    def _by_token(self, tokens: TokenSource, token: Token) -> Generator[bytes, bytes, None]:
        """Log in with a token. The first rejection of a token is not fatal, since a new one may succeed."""
        try:
            yield from oauthbearer(token.text, self._settings.extensions + token.extensions)
        except AuthenticationFailed as error:
            rejection = error
        else:
            tokens.accepted(token)
            return
        again = rejection.fatal and tokens.refused(token)  # otherwise the token is not the cause
        # A new exception: its message differs, and re-raising the same object would make it its own `__cause__`.
        final = AuthenticationFailed(f"{rejection}{self._lifetime(token)}")
        final.__dict__.update(rejection.__dict__, fatal=rejection.fatal and not again)
        raise final

    def _lifetime(self, token: Token) -> str:
        """Return a sentence on the token's expiry by this machine's clock."""
        if self._clock is None or token.expires_at == ENDLESS:
            return ""
        remaining = token.expires_at - self._clock()
        if remaining < 0:
            return f" By this machine's clock the token expired {-remaining:.0f} s ago."
        return f" By this machine's clock the token expires in {remaining:.0f} s."

    def _username(self) -> str:
        """Return the user name, which may be a reference in a JAAS entry."""
        name = self._settings.username
        return self._resolved(Secret(name), "kafka.sasl.username") if is_reference(name) else name

    def _password(self) -> Secret:
        return Secret(self._resolved(self._settings.password or Secret(""), "kafka.sasl.password"))

    def _resolved(self, secret: Secret, name: str) -> str:
        return resolve(secret, self._allowed, name=name)


_MECHANISMS: Mapping[str, Callable[[SaslLogin], Generator[bytes, bytes, None]]] = {
    "PLAIN": SaslLogin._plain,
    "OAUTHBEARER": SaslLogin._oauthbearer,
    "GSSAPI": SaslLogin._gssapi,
    **dict.fromkeys(HASHES, SaslLogin._scram),
}
"""The SASL mechanisms of a client, by Kafka's names."""


def sasl_login(
    settings: SaslSettings,
    allowed: Sequence[str],
    *,
    tokens: TokenSource | None = None,
    kerberos: KerberosLogin | None = None,
    clock: Callable[[], float] | None = None,
    nonce: Callable[[], str] = fresh_nonce,
) -> SaslLogin:
    """Return the login for `settings`. `allowed` has the rules for references; the other arguments are those of `SaslLogin`."""
    return SaslLogin(settings, allowed, tokens=tokens, kerberos=kerberos, clock=clock, nonce=nonce)

"""A login: which mechanism, and its messages, with secrets that are read anew each time it starts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, ConfigError
from spark_producer.security.oauthbearer import oauthbearer
from spark_producer.security.plain import plain
from spark_producer.security.references import is_reference, resolve
from spark_producer.security.scram import HASHES, fresh_nonce, scram
from spark_producer.security.settings import SaslSettings
from spark_producer.security.token import ENDLESS, Token, TokenSource


class SaslLogin:
    """How to log in to one broker, as often as its connection must be made or has to prove itself again (KIP-368)."""

    def __init__(
        self,
        settings: SaslSettings,
        allowed: Sequence[str],
        *,
        tokens: TokenSource | None = None,
        clock: Callable[[], float] | None = None,
        nonce: Callable[[], str] = fresh_nonce,
    ) -> None:
        """`tokens` gives those of OAUTHBEARER, `clock` the seconds since 1970, for messages about their end."""
        self._settings = settings
        self._allowed = tuple(allowed)
        self._tokens = tokens
        self._clock = clock
        self._nonce = nonce

    @property
    def mechanism(self) -> str:
        """Kafka's name of the mechanism."""
        return self._settings.mechanism

    @property
    def user(self) -> str:
        """Whom messages name; empty if only the token knows."""
        return self._settings.username

    @property
    def given_by(self) -> str:
        """The options that hold name and password, for messages."""
        return self._settings.given_by

    def start(self) -> Generator[bytes, bytes, None]:
        """Return a new run of the mechanism: `next` gives the first message, `send(challenge)` the next ones.

        It returns once the server has proved itself. A refusal by an error code should be thrown into it: it raises the error
        again, with what it knows of the reason.

        Raises:
            ConfigError: A reference to a secret cannot be resolved. It has the attribute `fatal`.
            AuthenticationFailed: There is no token. The run itself raises it, too.
        """
        settings = self._settings
        if settings.mechanism == "PLAIN":
            return plain(self._username(), self._password())
        if settings.mechanism in HASHES:
            return scram(
                settings.mechanism,
                self._username(),
                self._password(),
                token_auth=settings.token_auth,
                nonce=self._nonce,
            )
        if settings.mechanism == "OAUTHBEARER" and self._tokens is not None:
            return self._by_token(self._tokens, self._tokens.token())
        raise ConfigError(f"kafka.sasl.mechanism: {settings.mechanism} is not known", fatal=True)

    def _by_token(self, tokens: TokenSource, token: Token) -> Generator[bytes, bytes, None]:
        """Log in by a token. The first time that one is refused, the error is not fatal, since a fresh one may do."""
        try:
            yield from oauthbearer(token.text, self._settings.extensions + token.extensions)
        except AuthenticationFailed as error:
            refused = error
        else:
            tokens.accepted(token)
            return
        again = refused.fatal and tokens.refused(token)  # else it is not the token's fault
        # Another object than the one that was thrown in: its text is new, and it is no cause of itself.
        told = AuthenticationFailed(f"{refused}{self._life(token)}")
        told.__dict__.update(refused.__dict__, fatal=refused.fatal and not again)
        raise told

    def _life(self, token: Token) -> str:
        """Return what our clock says of the token's end."""
        if self._clock is None or token.expires_at == ENDLESS:
            return ""
        rest = token.expires_at - self._clock()
        if rest < 0:
            return f" By this machine's clock the token ended {-rest:.0f} s ago."
        return f" By this machine's clock the token lives for {rest:.0f} s more."

    def _username(self) -> str:
        """Return the user's name, which in a JAAS entry may be a reference."""
        name = self._settings.username
        return self._resolved(Secret(name), "kafka.sasl.username") if is_reference(name) else name

    def _password(self) -> Secret:
        return Secret(self._resolved(self._settings.password or Secret(""), "kafka.sasl.password"))

    def _resolved(self, secret: Secret, name: str) -> str:
        return resolve(secret, self._allowed, name=name)


def sasl_login(
    settings: SaslSettings,
    allowed: Sequence[str],
    *,
    tokens: TokenSource | None = None,
    clock: Callable[[], float] | None = None,
    nonce: Callable[[], str] = fresh_nonce,
) -> SaslLogin:
    """Return how to log in by `settings`. `allowed` is what references may name; the rest is as in `SaslLogin`."""
    return SaslLogin(settings, allowed, tokens=tokens, clock=clock, nonce=nonce)

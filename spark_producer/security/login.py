"""A login: which mechanism, and its messages, with secrets that are read anew each time it starts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from spark_producer.errors import ConfigError
from spark_producer.secret import Secret
from spark_producer.security.plain import plain
from spark_producer.security.references import is_reference, resolve
from spark_producer.security.scram import HASHES, fresh_nonce, scram
from spark_producer.security.settings import SaslSettings
from spark_producer.security.token import Token


class Login:
    """How to log in to one broker, as often as its connection must be made or has to prove itself again (KIP-368)."""

    def __init__(
        self,
        settings: SaslSettings,
        allowed: Sequence[str],
        *,
        token: Callable[[], Token] | None = None,
        nonce: Callable[[], str] = fresh_nonce,
    ) -> None:
        self._settings = settings
        self._allowed = tuple(allowed)
        self._token = token
        self._nonce = nonce

    @property
    def mechanism(self) -> str:
        """Kafka's name of the mechanism."""
        return self._settings.mechanism

    @property
    def user(self) -> str:
        """Whom messages name; empty if only the token knows."""
        return self._settings.username

    def start(self) -> Generator[bytes, bytes, None]:
        """Return a new run of the mechanism: `next` gives the first message, `send(challenge)` the next ones.

        It returns once the server has proved itself.

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
        raise ConfigError(f"kafka.sasl.mechanism: {settings.mechanism} is not known", fatal=True)

    def _username(self) -> str:
        """Return the user's name, which in a JAAS entry may be a reference."""
        name = self._settings.username
        return self._resolved(Secret(name), "kafka.sasl.username") if is_reference(name) else name

    def _password(self) -> Secret:
        return Secret(self._resolved(self._settings.password or Secret(""), "kafka.sasl.password"))

    def _resolved(self, secret: Secret, name: str) -> str:
        return resolve(secret, self._allowed, name=name)


def login(
    settings: SaslSettings,
    allowed: Sequence[str],
    *,
    token: Callable[[], Token] | None = None,
    nonce: Callable[[], str] = fresh_nonce,
) -> Login:
    """Return how to log in by `settings`. `allowed` is what references may name; `token` gives tokens for OAUTHBEARER."""
    return Login(settings, allowed, token=token, nonce=nonce)

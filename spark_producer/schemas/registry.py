"""The Schema Registry as the driver asks it, through confluent-kafka's client; the one module that imports it.

Tasks never come here: they get an id and a plan.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from spark_producer.common.escape import for_log
from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.config import RegistryOptions
from spark_producer.errors import ConfigError, RegistryError, SchemaIncompatible

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

INSTALL = "pip install 'pyproducer[schemas]', or what it brings, 'confluent-kafka[schemaregistry]'"
"""The extra, and its package, which is enough where pyproducer itself was not installed by pip."""

TRIES = 2
"""How often each address is asked, so that one lost connection does not fail a write."""

PAUSE_MS = 100
"""The longest pause between two tries."""

GRACE = 0.5
"""Seconds for the client to say by itself what it was waiting for, and for its pauses."""

MAX_RESPONSE_BYTES = 16 << 20
"""The most bytes of an answer. A schema of more would not fit into the registry's own topic, whose limit is mostly 1 MiB."""

_Answer = TypeVar("_Answer")


class RegisteredSchema(NamedTuple):
    """A schema as the registry has it: its id, and its text if it was asked for."""

    schema_id: int
    text: str | None = None


class Registry:
    """A Schema Registry, until `close`. Every call ends within about `timeout` seconds, or raises, whatever the answer is like.

    The client's own timeouts are for single reads. So each call is made in a thread that is left alone when time is up; what it
    reads is bounded in bytes. `reveal` gives the text of a secret, which may be a reference.
    """

    def __init__(self, options: RegistryOptions, reveal: Callable[[str, Secret], str], timeout: float) -> None:
        self._options = options
        self._timeout = timeout
        self._client = _connect(options, reveal, timeout)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def register(self, subject: str, schema: str) -> RegisteredSchema:
        """Register a schema, or find it if the subject has it.

        Raises:
            SchemaIncompatible: Readers of the subject's other versions could not read what it writes.
            RegistryError: The registry refuses, or cannot be asked.
        """
        with self._asking(f"register the schema of subject {subject!r}", subject):
            normal = self._options.normalize_schemas
            return self._timed(
                lambda: _with_id(self._client.register_schema(subject, _avro(schema), normalize_schemas=normal))
            )

    def lookup(self, subject: str, schema: str) -> RegisteredSchema:
        """Find a schema that the subject must have.

        Raises:
            RegistryError: as `register`; or the subject does not have it.
        """
        with self._asking(f"find the schema under subject {subject!r}", subject):
            normal = self._options.normalize_schemas
            found = self._timed(lambda: self._client.lookup_schema(subject, _avro(schema), normalize_schemas=normal))
            return _with_id(found.schema_id)

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest schema of a subject, which must be Avro.

        Raises:
            RegistryError: as `register`; or there is no such subject.
        """
        with self._asking(f"get the latest schema of subject {subject!r}", subject):
            found = self._timed(lambda: self._client.get_latest_version(subject))
            return _with_id(found.schema_id)._replace(
                text=_text(found.schema, f"the latest schema of subject {subject!r}")
            )

    def by_id(self, schema_id: int) -> str:
        """Return the Avro schema of an id.

        Raises:
            RegistryError: as `register`; or there is no such id.
        """
        with self._asking(f"get schema {schema_id}", None):
            return _text(self._timed(lambda: self._client.get_schema(schema_id)), f"schema {schema_id}")

    def _timed(self, call: Callable[[], _Answer]) -> _Answer:
        """Return what a call returns, or raise its error.

        Raises:
            TimeoutError: It has not ended in time. Its thread ends with its next read, or with the process.
        """
        outcome: Future[_Answer] = Future()

        def run() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:  # it is raised where the result is asked for
                outcome.set_exception(error)

        threading.Thread(target=run, name="schema-registry", daemon=True).start()
        try:
            return outcome.result(self._timeout + GRACE)
        except TimeoutError:
            if outcome.done():
                raise
            raise TimeoutError(f"no whole answer within {self._timeout:g} s") from None

    @contextlib.contextmanager
    def _asking(self, what: str, subject: str | None) -> Iterator[None]:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        where = f"the Schema Registry at {self._options.schema_registry_url}"
        try:
            yield
        except SchemaRegistryError as error:
            code, said = (for_log(str(told)) for told in (error.error_code, error.error_message))
            raise _refusal(error.http_status_code, code, said, f"could not {what}: {where}", subject) from None
        except RegistryError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RegistryError(
                f"could not {what}: {where} answered with what is none of its answers ({type(error).__name__}); "
                f"{_PATH_HINT}"
            ) from None
        except Exception as error:  # every error of the client's own HTTP library
            from spark_producer.security.tls_errors import (
                is_tls_error,  # tasks, which ask nothing, import this module too
            )

            said = f"{type(error).__name__}: {for_log(str(error))}"
            check = _TLS_HINT if is_tls_error(error) else "schema.registry.url, and that the driver may connect to it"
            raise RegistryError(f"could not {what}: {where} cannot be reached ({said}); check {check}") from None


def _connect(options: RegistryOptions, reveal: Callable[[str, Secret], str], timeout: float) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigError(
            f"a Schema Registry needs confluent-kafka with its client, on the driver: {INSTALL} ({error})"
        ) from None
    addresses = options.schema_registry_url.split(",")
    conf: dict[str, Any] = {
        "url": options.schema_registry_url,
        "timeout": timeout / (TRIES * len(addresses)),
        "max.retries": TRIES - 1,
        "retries.wait.ms": PAUSE_MS,
        "retries.max.wait.ms": PAUSE_MS,
    }
    files = _files(options)
    conf |= {name.removeprefix(_PREFIX): file for name, file in files.items()}
    if options.schema_registry_ssl_certificate_location:
        password = options.schema_registry_ssl_key_password
        # An empty one is wrong for a key that has a password; with none at all OpenSSL would ask for it on the terminal.
        conf["ssl.key.password"] = "" if password is None else reveal(f"{_PREFIX}ssl.key.password", password)
    if options.basic_auth_user_info is not None:
        conf["basic.auth.user.info"] = reveal("basic.auth.user.info", options.basic_auth_user_info)
        if ":" not in conf["basic.auth.user.info"]:
            raise ConfigError("basic.auth.user.info must be user:password")
        for sent in (conf["basic.auth.user.info"].partition(":")[2], conf["basic.auth.user.info"]):
            remember(Secret(sent))
    if options.bearer_auth_token is not None:
        conf["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        conf["bearer.auth.token"] = reveal("bearer.auth.token", options.bearer_auth_token)
        remember(Secret(conf["bearer.auth.token"]))
        conf["bearer.auth.logical.cluster"] = options.bearer_auth_logical_cluster
    try:
        client = SchemaRegistryClient(conf)
        session = client._rest_client.session
        session.headers["Accept-Encoding"] = "identity"  # else a few bytes might become many
        session.event_hooks = {"response": [_bounded]}
        return client
    except (OSError, ValueError) as error:
        # Its text may hold what was given, and so a password: only files are named.
        reason = f"{error.strerror}" if isinstance(error, OSError) else "an option of the registry has a bad value"
        named = "".join(f" {name}={file!r}" for name, file in files.items())
        key = "; the password of a key is wrong, or the key is of another certificate" if len(files) > 1 else ""
        raise ConfigError(f"the client of the Schema Registry cannot be made: {reason}{key}{named}") from None


_PREFIX = "schema.registry."
_PATH_HINT = "is schema.registry.url its address, with its path?"
_TLS_HINT = (
    "schema.registry.ssl.ca.location, which must hold the CA of the registry's certificate, the host name in "
    "schema.registry.url, which must be one of the certificate's, and, if the registry asks for a certificate, "
    "schema.registry.ssl.certificate.location"
)


def _files(options: RegistryOptions) -> dict[str, str]:
    """Return the files of TLS that are given, by option."""
    files = {
        "ssl.ca.location": options.schema_registry_ssl_ca_location,
        "ssl.certificate.location": options.schema_registry_ssl_certificate_location,
        "ssl.key.location": options.schema_registry_ssl_key_location,
    }
    return {f"{_PREFIX}{name}": file for name, file in files.items() if file}


def _bounded(response: Any) -> None:
    """Read the body of an answer, and refuse one that does not end."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ValueError("it is compressed")
    chunks, size = [], 0
    for chunk in response.stream:
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_RESPONSE_BYTES:
            raise ValueError("it does not end")
    response.stream.close()
    response.stream = type(response)(response.status_code, content=b"".join(chunks)).stream


def _avro(schema: str) -> Schema:
    from confluent_kafka.schema_registry import Schema

    return Schema(schema, "AVRO")


def _with_id(schema_id: object) -> RegisteredSchema:
    if not isinstance(schema_id, int) or isinstance(schema_id, bool) or not 0 <= schema_id < 1 << 31:
        raise ValueError("no id")
    return RegisteredSchema(schema_id)


def _text(schema: Schema, what: str) -> str:
    if schema.schema_type not in (None, "AVRO"):
        raise RegistryError(
            f"{what} is {for_log(str(schema.schema_type))}, and not Avro; encode elsewhere, and set valueSchemaId"
        )
    if schema.references:
        raise RegistryError(
            f"{what} refers to other schemas, which is not supported: give the whole of it in valueSchema"
        )
    if not isinstance(schema.schema_str, str):
        raise ValueError("no schema")
    return schema.schema_str


_HINTS = {
    401: "the login is wrong or missing: set basic.auth.user.info or bearer.auth.token",
    403: "this user may not do that; ask for the right, or register the schema elsewhere and set auto.register.schemas=false",
    404: "register the schema first, or set auto.register.schemas=true",
    422: "the registry does not take this schema",
}


def _refusal(status: int, code: str, said: str, failed: str, subject: str | None) -> RegistryError:
    if status == 409 and subject is not None:
        return SchemaIncompatible(
            f"the schema does not fit the other versions of subject {subject!r}, by its compatibility level: {said}. "
            "Change the column so that the old readers can read it (new fields nullable), or the compatibility level"
        )
    if status == 404 and not code.startswith("404"):  # a registry says which of its things is missing: 40401 a subject
        return RegistryError(f"{failed} answered with 404, as no Schema Registry does; {_PATH_HINT}")
    hint = _HINTS.get(status, "")
    return RegistryError(f"{failed} refused it with {status}, code {code}: {said}" + (f". {hint}" if hint else ""))

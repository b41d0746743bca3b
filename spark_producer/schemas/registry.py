"""Requests to a Schema Registry, by confluent-kafka's client, which only this module imports.

Tasks that write make no requests: they get an id and a plan. Tasks that read ask for ids that the driver did not know.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from spark_producer.common.escape import for_log
from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.config import RegistryOptions
from spark_producer.errors import ConfigError, RegistryError, SchemaError, SchemaIncompatible
from spark_producer.schemas.avro_references import complete_avro_schema
from spark_producer.schemas.json_references import complete_json_schema
from spark_producer.schemas.references import (
    ReferredSchema,
    SchemaReference,
    UnknownSchema,
    is_valid_reference,
    referred_schemas,
    with_references,
)
from spark_producer.schemas.subjects import AssociatedSubject, Subject
from spark_producer.schemas.texts import list_names

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

INSTALL = "pip install 'pyproducer[schemas]', or what it brings, 'confluent-kafka[schemaregistry]'"
"""The command that installs the extra, or its package where pyproducer itself is not installed by pip."""

TRIES = 2
"""Attempts per address, so that one lost connection does not fail a write."""

PAUSE_MS = 100
"""Maximum pause between two attempts in milliseconds."""

GRACE = 0.5
"""Seconds beyond the timeout in which the client may raise its own error, with the reason."""

MAX_RESPONSE_BYTES = 16 << 20
"""Maximum bytes of a response. A larger schema would not fit into the registry's own topic, whose limit is usually 1 MiB."""

MAX_VERSIONS = 20
"""Maximum versions of a subject that are got in advance, a request each. Older ones are asked for when a value has their id."""

ANY_CLUSTER = "-"
"""The cluster id under which the associations of all clusters are found."""

NOT_FOUND = 404

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
"""The registry's names of formats."""

FORMAT_NAMES = {AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON Schema"}
"""The names of formats in messages."""

FORMAT_OPTIONS = {AVRO: "avro", PROTOBUF: "protobuf", JSON: "json-schema"}
"""The values of `valueFormat` and `keyFormat` for the formats."""

_Result = TypeVar("_Result")


SchemaKey = int | str
"""What the frame of a value says of its schema: an id, or a GUID as text."""

KnownSchemas = Mapping[int, str] | Mapping[SchemaKey, str]
"""The texts of schemas by their ids and GUIDs."""


class RegisteredSchema(NamedTuple):
    """A schema of the registry: its id, its text if it was requested, and its GUID if the registry gives them.

    The text is complete: it has the schemas that it refers to (`complete_avro_schema`, `complete_json_schema`). That of a
    Protobuf schema is JSON, as `with_references` returns it.
    """

    schema_id: int
    text: str | None = None
    guid: str | None = None


class Registry:
    """A client of a Schema Registry, until `close`. Every call returns or raises within about `timeout` seconds.

    The client's own timeouts are for single reads, so each call runs with all its requests in a thread that is left to itself
    after the timeout; it then makes no further request, and the bytes that it reads are bounded. `reveal` returns the text of a
    secret, which may be a reference. `kind` is the format of the schemas that are registered and read: `AVRO`, `PROTOBUF` or
    `JSON`.
    """

    def __init__(
        self, options: RegistryOptions, reveal: Callable[[str, Secret], str], timeout: float, kind: str = AVRO
    ) -> None:
        self._options = options
        self._kind = kind
        self._timeout = timeout
        self._client = _connect(options, reveal, timeout)
        self._given_up: set[threading.Thread] = set()
        """The threads whose call has taken too long."""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def register(self, subject: str, schema: str, references: Sequence[SchemaReference] = ()) -> RegisteredSchema:
        """Register a schema, unless the subject has it; return its id and GUID. `references` are the schemas that it refers to.

        Raises:
            SchemaIncompatible: the schema is incompatible with other versions of the subject.
            RegistryError: the registry refuses, or cannot be reached.
        """
        with self._request_errors(f"register the schema of subject {subject!r}", subject):
            normal, sent = self._options.normalize_schemas, self._schema(schema, references)
            found = self._timed(
                lambda: self._client.register_schema_full_response(subject, sent, normalize_schemas=normal)
            )
            return _registered(found)

    def lookup(self, subject: str, schema: str, references: Sequence[SchemaReference] = ()) -> RegisteredSchema:
        """Return the id and GUID of a schema of the subject. `references` are the schemas that it refers to.

        Raises:
            RegistryError: as `register`; or the subject does not have it.
        """
        with self._request_errors(f"find the schema under subject {subject!r}", subject):
            normal, sent = self._options.normalize_schemas, self._schema(schema, references)
            found = self._timed(lambda: self._client.lookup_schema(subject, sent, normalize_schemas=normal))
            return _registered(found)

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest schema of a subject, which must have the registry's format.

        Raises:
            RegistryError: as `register`; or there is no such subject.
        """
        with self._request_errors(f"get the latest schema of subject {subject!r}", subject):
            return self._timed(lambda: self._latest(subject))

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return the newest versions of a subject, the latest one last. Earlier ones of another format are left out.

        Raises:
            RegistryError: as `latest`.
        """
        latest = self.latest(subject)
        with self._request_errors(f"get the versions of subject {subject!r}", subject):
            found = self._timed(lambda: self._versions(subject))
        found.pop(latest.schema_id, None)
        return [*found.values(), latest]

    def _latest(self, subject: str) -> RegisteredSchema:
        found = self._client.get_latest_version(subject)
        what, kind = f"the latest schema of subject {subject!r}", found.schema.schema_type or AVRO
        if kind != self._kind and kind in FORMAT_OPTIONS:
            raise UnknownSchema(
                f"{self._other_format(what, kind)}. Set valueFormat or keyFormat to {FORMAT_OPTIONS[kind]}"
            )
        return _registered(found)._replace(text=self._text(found.schema, what))

    def _versions(self, subject: str) -> dict[int, RegisteredSchema]:
        found = {}
        for version in sorted(self._client.get_versions(subject))[-MAX_VERSIONS:]:
            self._check_time()
            each = self._client.get_version(subject, version)
            with contextlib.suppress(UnknownSchema):
                text = self._text(each.schema, "an earlier version")
                registered = _registered(each)
                found[registered.schema_id] = registered._replace(text=text)
        return found

    def subject(self, wanted: Subject) -> str:
        """Return the name of a subject: as it is given, or what is associated with a topic.

        Raises:
            RegistryError: several subjects are associated with it, or none, and there is no other name. And as `register`.
        """
        if isinstance(wanted, str):
            return wanted
        failed = f"get the subject that is associated with topic {wanted.topic!r}"
        names = self._associated(wanted, failed)
        if len(names) > 1:
            listed = list_names(names)
            raise RegistryError(
                f"could not {failed}: there are several, {listed}. Leave one, or set {wanted.column}Subject"
            )
        subject = names[0] if names else wanted.fallback
        if subject is None:
            raise RegistryError(
                f"could not {failed}: there is none. Associate one, set {wanted.column}Subject, or let "
                "subject.name.strategy.fallback.type name another strategy",
                status=NOT_FOUND,
            )
        return subject

    def _associated(self, wanted: AssociatedSubject, failed: str) -> list[str]:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        cluster, kinds = wanted.cluster_id or ANY_CLUSTER, [wanted.column]
        with self._request_errors(failed, None):
            try:
                found = self._timed(
                    lambda: self._client.get_associations_by_resource_name(wanted.topic, cluster, "topic", kinds)
                )
            except SchemaRegistryError as error:
                if error.http_status_code != NOT_FOUND:  # which registries without associations respond, too
                    raise
                found = []
            return [_checked(each.subject) for each in found]

    def by_id(self, key: SchemaKey) -> str:
        """Return the schema of an id or a GUID.

        Raises:
            UnknownSchema: there is no such schema, it has another format, or one that it refers to is missing. RegistryError: as
            `register`.
        """
        with self._request_errors(f"get schema {key}", None):
            return self._timed(lambda: self._by_id(key))

    def _by_id(self, key: SchemaKey) -> str:
        found = self._client.get_schema(key) if isinstance(key, int) else self._client.get_schema_by_guid(key)
        return self._text(found, f"schema {key}")

    def complete(self, schema: str, references: Sequence[SchemaReference], what: str) -> str:
        """Return a schema that is not registered, with the schemas that it refers to, as the text of `RegisteredSchema`.

        Raises:
            UnknownSchema: one of them is missing, or has another format. RegistryError: as `register`.
        """
        with self._request_errors(f"get the schemas that {what} refers to", None):
            return self._timed(lambda: self._complete(schema, references, what))

    def _schema(self, text: str, references: Sequence[SchemaReference]) -> Schema:
        from confluent_kafka.schema_registry import Schema
        from confluent_kafka.schema_registry import SchemaReference as Sent

        return Schema(text, self._kind, [Sent(*each) for each in references])

    def _text(self, schema: Schema, what: str) -> str:
        kind = schema.schema_type or AVRO
        if kind != self._kind:
            raise UnknownSchema(self._other_format(what, kind))
        return self._complete(_checked(schema.schema_str), _references(schema, what), what)

    def _other_format(self, what: str, kind: str) -> str:
        return f"{what} is {FORMAT_NAMES.get(kind) or for_log(str(kind))}, not {FORMAT_NAMES[self._kind]}"

    def _complete(self, text: str, references: Sequence[SchemaReference], what: str) -> str:
        others = referred_schemas(references, lambda each: self._referred(each, what), what)
        try:
            if self._kind == AVRO:
                return complete_avro_schema(text, others, what)
            return with_references(text, others) if self._kind == PROTOBUF else complete_json_schema(text, others, what)
        except SchemaError as error:
            raise UnknownSchema(str(error)) from None

    def _referred(self, reference: SchemaReference, what: str) -> ReferredSchema:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        self._check_time()
        version: int | Literal["latest"] = "latest" if reference.version == -1 else reference.version
        try:  # deleted versions are still referred to
            found = self._client.get_version(reference.subject, version, True).schema
        except SchemaRegistryError as error:
            if str(error.error_code)[:3] not in ("404", "422"):
                raise
            raise UnknownSchema(f"{_naming(what, reference)} the registry does not have") from None
        kind = found.schema_type or AVRO
        if kind != self._kind:
            raise UnknownSchema(self._other_format(_naming(what, reference), kind))
        return ReferredSchema(_checked(found.schema_str), _references(found, what))

    def _timed(self, call: Callable[[], _Result]) -> _Result:
        """Return what a call returns, or raise its error.

        Raises:
            TimeoutError: it has not returned in time. Its thread ends with its next read, or with the process.
        """
        outcome: Future[_Result] = Future()

        def run() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:  # raised to the caller, by outcome.result
                outcome.set_exception(error)

        thread = threading.Thread(target=run, name="schema-registry", daemon=True)
        thread.start()
        try:
            return outcome.result(self._timeout + GRACE)
        except TimeoutError:
            if outcome.done():
                raise
            self._given_up.add(thread)
            raise TimeoutError(f"no complete response within {self._timeout:g} s") from None

    def _check_time(self) -> None:
        """Raise TimeoutError on the thread of a call that has taken too long: no thread waits for its further requests."""
        if threading.current_thread() in self._given_up:
            raise TimeoutError

    @contextlib.contextmanager
    def _request_errors(self, what: str, subject: str | None) -> Iterator[None]:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        registry = f"the Schema Registry at {self._options.schema_registry_url}"
        try:
            yield
        except SchemaRegistryError as error:
            code, message = (for_log(str(each)) for each in (error.error_code, error.error_message))
            raise _refusal(error.http_status_code, code, message, f"could not {what}: {registry}", subject) from None
        except RegistryError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RegistryError(
                f"could not {what}: {registry} sent an invalid response ({type(error).__name__}). {_PATH_HINT}"
            ) from None
        except Exception as error:  # any error of the client's HTTP library
            from spark_producer.security.tls_errors import (
                is_tls_error,  # tasks import this module too, and make no requests
            )

            reason = f"{type(error).__name__}: {for_log(str(error))}"
            check = _TLS_HINT if is_tls_error(error) else "schema.registry.url, and that the driver may connect to it"
            raise RegistryError(f"could not {what}: {registry} cannot be reached ({reason}). Check {check}") from None


def _connect(options: RegistryOptions, reveal: Callable[[str, Secret], str], timeout: float) -> SchemaRegistryClient:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigError(
            f"the Schema Registry client is not installed on the driver: {error}. Run {INSTALL}"
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
        # Without a password OpenSSL would ask for one on the terminal; an empty one is wrong for an encrypted key.
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
        session.headers["Accept-Encoding"] = "identity"  # a compressed response could expand to any size
        session.event_hooks = {"response": [_bounded]}
        return client
    except (OSError, ValueError) as error:
        # The error's text may contain a password, so only files are named.
        reason = f"{error.strerror}" if isinstance(error, OSError) else "an option of the registry has a bad value"
        named = "".join(f" {name}={file!r}" for name, file in files.items())
        key = "; the password of the key is wrong, or it is the key of another certificate" if len(files) > 1 else ""
        raise ConfigError(f"the Schema Registry client cannot be created: {reason}{key}{named}") from None


_PREFIX = "schema.registry."
_PATH_HINT = "Check that schema.registry.url is its address, with its path"
_TLS_HINT = (
    "schema.registry.ssl.ca.location, which must contain the CA of the registry's certificate, the host name in "
    "schema.registry.url, which must be one of the certificate's, and, if the registry requires a client certificate, "
    "schema.registry.ssl.certificate.location"
)


def _files(options: RegistryOptions) -> dict[str, str]:
    """Return the given TLS files by option."""
    files = {
        "ssl.ca.location": options.schema_registry_ssl_ca_location,
        "ssl.certificate.location": options.schema_registry_ssl_certificate_location,
        "ssl.key.location": options.schema_registry_ssl_key_location,
    }
    return {f"{_PREFIX}{name}": file for name, file in files.items() if file}


def _bounded(response: Any) -> None:
    """Read the body of a response, and refuse one that is too large."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ValueError("it is compressed")
    chunks, size = [], 0
    for chunk in response.stream:
        chunks.append(chunk)
        size += len(chunk)
        if size > MAX_RESPONSE_BYTES:
            raise ValueError("it is too large")
    response.stream.close()
    response.stream = type(response)(response.status_code, content=b"".join(chunks)).stream


def _registered(found: Any) -> RegisteredSchema:
    if not isinstance(found.schema_id, int) or isinstance(found.schema_id, bool) or not 0 <= found.schema_id < 1 << 31:
        raise ValueError("no id")
    return RegisteredSchema(found.schema_id, guid=None if found.guid is None else str(uuid.UUID(found.guid)))


def _references(schema: Schema, what: str) -> list[SchemaReference]:
    given: list[Any] = schema.references or []
    found = [SchemaReference(each.name, each.subject, each.version) for each in given]
    if not all(map(is_valid_reference, found)):
        raise UnknownSchema(f"{what} has a reference without a name, a subject and a version")
    return found


def _naming(what: str, reference: SchemaReference) -> str:
    subject = for_log(reference.subject)
    return f"{what} refers to '{for_log(reference.name)}', version {reference.version} of subject '{subject}', which"


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError("no schema")
    return text


_HINTS = {
    401: "The login is wrong or missing. Set basic.auth.user.info or bearer.auth.token",
    403: "The user lacks the permission: get it; a write may set auto.register.schemas=false for a schema that is registered",
    404: "Register the schema first, or, for a write, set auto.register.schemas=true",
    422: "The schema is invalid for the registry",
}


def _refusal(status: int, code: str, message: str, failed: str, subject: str | None) -> RegistryError:
    if status == 409 and subject is not None:
        return SchemaIncompatible(
            f"the schema does not fit the other versions of subject {subject!r}, by its compatibility level: {message}. "
            "Change the column so that old readers can read it (new fields nullable), or the compatibility level"
        )
    if status == 404 and not code.startswith("404"):  # a registry has its own codes: 40401 for a missing subject
        return RegistryError(f"{failed} responded with 404, but not as a Schema Registry. {_PATH_HINT}")
    if status == 404 and subject is None:
        return UnknownSchema(f"{failed} does not have it (code {code}: {message})")
    hint = _HINTS.get(status, "")
    text = f"{failed} refused it with {status}, code {code}: {message.rstrip('.')}" + (f". {hint}" if hint else "")
    return RegistryError(text, status=status)

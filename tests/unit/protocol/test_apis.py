"""The table of the APIs: the types of each for the type checker are those of its schemas.

mypy is a judge here as well: `assert_type` fails where it finds another type, and so does a `type: ignore` without an error.
"""

from __future__ import annotations

from typing import assert_type, get_args, get_type_hints

import pytest

from spark_producer.errors import LocalProtocolError
from spark_producer.protocol import (
    APIS,
    FETCH,
    METADATA,
    PRODUCE_ZSTD,
    AnyApi,
    apis,
    decode_response,
    encode_request,
    encode_response,
    messages,
)
from spark_producer.protocol.fields import describe


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_types_of_an_api_are_those_that_its_schemas_are_made_of(api: AnyApi) -> None:
    (name,) = (name for name, value in vars(apis).items() if value is api)
    request, response = get_args(get_type_hints(apis)[name])
    assert describe(request) is api.request
    assert describe(response) is api.response


def test_a_response_has_the_type_of_its_api() -> None:
    frame = b"".join(encode_response(METADATA, 9, 1, messages.MetadataResponse(controller_id=7)))
    _, body = decode_response(METADATA, 9, memoryview(frame)[4:])
    assert_type(body, messages.MetadataResponse)
    assert body == messages.MetadataResponse(controller_id=7)


def test_the_body_of_another_api_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="FetchRequest cannot be written"):
        encode_request(FETCH, 12, 1, None, messages.MetadataRequest())  # type: ignore[misc]


def test_an_api_with_fewer_versions_keeps_its_types() -> None:
    assert_type(PRODUCE_ZSTD.request.make([None, -1, 0, ()]), messages.ProduceRequest)
    assert PRODUCE_ZSTD.request is APIS[PRODUCE_ZSTD.key].request

"""All parts of the benchmarks, in the order of the main page."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import (
    avro,
    avro_decoding,
    bulk,
    far,
    first_write,
    imports,
    json_schema,
    protobuf_decoding,
    protobuf_encoding,
    single_records,
)
from benchmarks.broker_engines import part as broker_engines
from benchmarks.micro_batches import part as micro_batches
from benchmarks.part import Part
from benchmarks.reading import kafka_to_kafka, streams, whole_topics

BULK = "bulk"
"""The one name for all scenes of whole writes."""

PARTS: tuple[Part, ...] = (
    *bulk.PARTS,
    micro_batches.PART,
    single_records.PART,
    first_write.PART,
    whole_topics.PART,
    streams.PART,
    kafka_to_kafka.PART,
    avro.PART,
    avro_decoding.PART,
    protobuf_decoding.PART,
    protobuf_encoding.PART,
    json_schema.PART,
    imports.PART,
    far.PART,
    broker_engines.PART,
)


def named(names: list[str], parts: Sequence[Part] = PARTS) -> list[Part]:
    """Return those of `parts` with these names, in their order; all of them if there are no names.

    Raises:
        ValueError: no part has one of the names.
    """
    wanted = {name for given in names for name in ([part.name for part in bulk.PARTS] if given == BULK else [given])}
    unknown = sorted(wanted - {part.name for part in parts})
    if unknown:
        known = ", ".join([BULK, *(part.name for part in parts)])
        raise ValueError(f"unknown parts {', '.join(unknown)}; there are: {known}")
    return [part for part in parts if not names or part.name in wanted]

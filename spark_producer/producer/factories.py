"""Creates the parts of a producer from its configuration, with times in seconds."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer import config as options
from spark_producer.accumulator import BufferPool, Compression, RecordAccumulator
from spark_producer.protocol import PRODUCE_BY_ID, PRODUCE_ZSTD
from spark_producer.record.codecs import Codec
from spark_producer.sender import Metadata, SenderSettings


def make_metadata(config: options.ProducerConfig, backoff: Callable[[int], float]) -> Metadata:
    """Return the metadata of a cluster, without any topic or node yet."""
    recovers = config.metadata_recovery_strategy == "rebootstrap"
    return Metadata(
        max_age=config.metadata_max_age_ms / 1000,
        max_idle=config.metadata_max_idle_ms / 1000,
        backoff=backoff,
        check_cluster=config.checks_cluster,
        rebootstrap_after=config.metadata_recovery_rebootstrap_trigger_ms / 1000 if recovers else None,
    )


def sender_settings(config: options.ProducerConfig, user: str = "") -> SenderSettings:
    """Return the settings of the sender. `user` is the producer's principal, for messages."""
    return SenderSettings(
        acks=-1 if config.acks == "all" else int(config.acks),
        timeout=config.request_timeout_ms / 1000,
        max_request_size=config.max_request_size,
        retries=config.retries,
        idempotent=options.idempotent(config),
        availability_timeout=config.partitioner_availability_timeout_ms / 1000,
        produce=PRODUCE_ZSTD if config.compression_type == "zstd" else PRODUCE_BY_ID,
        user=user,
        transactional_id=config.transactional_id or None,
        transaction_timeout_ms=config.transaction_timeout_ms,
    )


def make_accumulator(
    config: options.ProducerConfig, pool: BufferPool, clock: Callable[[], float], wakeup: Callable[[], None]
) -> RecordAccumulator:
    """Return an empty accumulator with the memory of `pool`. `wakeup` wakes the I/O thread."""
    return RecordAccumulator(
        pool,
        batch_size=config.batch_size,
        linger=config.linger_ms / 1000,
        delivery_timeout=config.delivery_timeout_ms / 1000,
        max_block=config.max_block_ms / 1000,
        keep_order=config.max_in_flight_requests_per_connection == 1,
        clock=clock,
        wakeup=wakeup,
        compression=compression(config, pool),
    )


def compression(config: options.ProducerConfig, pool: BufferPool) -> Compression | None:
    """Return the compression for the accumulator; None for `compression.type=none`."""
    codec = Codec[config.compression_type.upper()]
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return None if codec is Codec.NONE else Compression(codec, levels.get(codec), pool)

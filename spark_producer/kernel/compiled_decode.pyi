from collections.abc import Sequence

from spark_producer.kernel.decoded_v2 import DecodedV2, Limits, V2Batch

def decode_v2(batches: Sequence[V2Batch], columns: frozenset[str], limits: Limits) -> DecodedV2: ...

from spark_producer.kernel.columns import ByteArray, Int64Array
from spark_producer.kernel.decode import DecodedV2

def decode_v2(data: ByteArray, positions: Int64Array, ends: Int64Array, counts: Int64Array) -> DecodedV2: ...

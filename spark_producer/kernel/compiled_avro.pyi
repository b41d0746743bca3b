from spark_producer.kernel.arrays import ByteArray, Int64Array
from spark_producer.kernel.avro_columns import AvroColumn

def encode_avro(column: AvroColumn, prefix: bytes) -> tuple[Int64Array, ByteArray]: ...

from spark_producer.kernel.arrays import ByteArray, Int64Array
from spark_producer.kernel.avro_nodes import AvroColumn
from spark_producer.kernel.protobuf_nodes import ProtobufNode

def encode_protobuf(plan: ProtobufNode, column: AvroColumn, prefix: bytes) -> tuple[Int64Array, ByteArray]: ...

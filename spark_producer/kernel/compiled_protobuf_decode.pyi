from spark_producer.kernel.arrays import ByteArray, Int64Array
from spark_producer.kernel.avro_program import Failure, RawColumn
from spark_producer.kernel.protobuf_program import ProtobufProgram

def decode_protobuf(
    program: ProtobufProgram, data: ByteArray, starts: Int64Array, ends: Int64Array
) -> tuple[list[RawColumn], list[Failure]]: ...

from spark_producer.kernel.arrays import ByteArray, Int64Array
from spark_producer.kernel.avro_program import Failure, Program, RawColumn

def decode_avro(
    program: Program, data: ByteArray, starts: Int64Array, ends: Int64Array
) -> tuple[list[RawColumn], list[Failure]]: ...

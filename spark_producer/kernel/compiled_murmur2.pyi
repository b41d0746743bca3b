from spark_producer.kernel.columns import BinaryColumn
from spark_producer.kernel.murmur2 import UInt32Array

def murmur2(column: BinaryColumn) -> UInt32Array: ...

"""Adapter: the positions of commits, each in a Puffin file that the table's metadata list as the statistics of its snapshot.

So Iceberg's own maintenance keeps a file as long as its snapshot, and deletes it with the snapshot, or if no commit followed.
"""

from typing import Any, Final, NamedTuple
from uuid import uuid4

from py4j.protocol import Py4JJavaError

from starling_spark.lakehouse.positions import Position, from_text, to_text

_KIND: Final = "starling-position-v1"
_UNKNOWN: Final = -1
"""Puffin's number of a snapshot that is made after the file."""
_PAYLOAD_SIZE: Final = 4
_FOOTER_END: Final = 12
"""A footer ends with the size of its payload, flags and a magic number, four bytes each."""
_MAGIC: Final = 4


class PositionGone(Exception):
    """The file of a position is missing."""


class PositionFile(NamedTuple):
    """The place of a position. Units of `size` and `footer`: bytes."""

    location: str
    size: int
    footer: int


def write_position(jvm: Any, table: Any, position: Position) -> PositionFile:
    """Write a position into a new file. `table`: of Iceberg."""
    location = f"{table.location()}/metadata/{uuid4().hex}.position.puffin"
    puffin = jvm.org.apache.iceberg.puffin
    writer = puffin.Puffin.write(table.io().newOutputFile(location)).compressBlobs(puffin.PuffinCompressionCodec.ZSTD).build()
    try:
        text = jvm.java.nio.ByteBuffer.wrap(to_text(position).encode())
        writer.add(puffin.Blob(_KIND, jvm.java.util.ArrayList(), _UNKNOWN, _UNKNOWN, text))
        writer.finish()
        return PositionFile(location, int(writer.fileSize()), int(writer.footerSize()))
    finally:
        writer.close()


def read_position(jvm: Any, table: Any, location: str) -> Position:
    """Return the position in a file. Raises: PositionGone."""
    iceberg = jvm.org.apache.iceberg
    try:
        reader = iceberg.puffin.Puffin.read(table.io().newInputFile(location)).build()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "NotFoundException":
            raise
        raise PositionGone(location) from error
    try:
        blob = reader.readAll(reader.fileMetadata().blobs()).iterator().next()
        return from_text(bytes(iceberg.util.ByteBuffers.toByteArray(blob.second())).decode())
    finally:
        reader.close()


def found_position(table: Any, location: str) -> PositionFile:
    """Return the place of a written position."""
    source = table.io().newInputFile(location)
    size, stream = int(source.getLength()), source.newStream()
    try:
        stream.seek(size - _FOOTER_END)
        payload = int.from_bytes([stream.read() for _ in range(_PAYLOAD_SIZE)], "little")
    finally:
        stream.close()
    return PositionFile(location, size, _MAGIC + payload + _FOOTER_END)


def as_statistics(jvm: Any, file: PositionFile, snapshot: int) -> Any:
    """Return the entry in the metadata that ties the file to a snapshot. It names no blob, so no planner looks for statistics."""
    return jvm.org.apache.iceberg.GenericStatisticsFile(snapshot, file.location, file.size, file.footer, jvm.java.util.ArrayList())

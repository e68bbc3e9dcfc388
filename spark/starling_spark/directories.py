"""Adapter: directories of checkpoints and of the files beside them, on this machine or in a file system of Hadoop such as `s3a`.

A file system of Hadoop is accessed through the JVM of the session, which has its addresses and credentials.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


class Directory(Protocol):
    """A directory, which need not exist. `names` and `read` then return nothing."""

    @property
    def name(self) -> str:
        """The last part of the path."""

    @property
    def uri(self) -> str:
        """The address by which Spark finds the directory."""

    def __truediv__(self, name: str) -> "Directory":
        """Return the directory of this name below this one."""

    def exists(self) -> bool:
        """Return whether the directory exists."""

    def names(self) -> list[str]:
        """Return the names of its files and directories, sorted."""

    def make(self) -> None:
        """Create the directory and those above it."""

    def delete(self) -> None:
        """Delete the directory with its content, if it exists."""

    def read(self, file: str) -> str | None:
        """Return the text of a file; None without the file."""

    def write(self, file: str, text: str) -> None:
        """Write a file as a whole, durably, in place of a former one."""

    def remove(self, file: str) -> None:
        """Delete a file."""


def as_uri(location: str) -> str:
    """Return a URI unchanged, and a path as a URI."""
    return location if urlsplit(location).scheme else Path(location).absolute().as_uri()


def local_path(location: str) -> Path | None:
    """Return the path of a location on this machine; None for another file system."""
    parts = urlsplit(as_uri(location))
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def directory_at(location: str, open_spark: Callable[[], SparkSession]) -> Directory:
    """Return the directory at a path or URI. `open_spark` is called when a directory of another file system is first accessed."""
    path = local_path(location)
    return HadoopDirectory(location.rstrip("/"), open_spark) if path is None else LocalDirectory(path)


class LocalDirectory:
    """A directory of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name

    @property
    def uri(self) -> str:
        """The address by which Spark finds the directory."""
        return self.path.absolute().as_uri()

    def __truediv__(self, name: str) -> "LocalDirectory":
        """Return the directory of this name below this one."""
        return LocalDirectory(self.path / name)

    def exists(self) -> bool:
        """Return whether the directory exists."""
        return self.path.is_dir()

    def names(self) -> list[str]:
        """Return the names of its files and directories, sorted."""
        return sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []

    def make(self) -> None:
        """Create the directory and those above it."""
        self.path.mkdir(parents=True, exist_ok=True)

    def delete(self) -> None:
        """Delete the directory with its content, if it exists."""
        if self.path.exists():
            shutil.rmtree(self.path)

    def read(self, file: str) -> str | None:
        """Return the text of a file; None without the file."""
        path = self.path / file
        return path.read_text() if path.is_file() else None

    def write(self, file: str, text: str) -> None:
        """Write a file as a whole, durably, in place of a former one and of its checksum."""
        temporary = self.path / f".{file}.new"
        with temporary.open("w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        self._checksum(file).unlink(missing_ok=True)
        temporary.rename(self.path / file)

    def remove(self, file: str) -> None:
        """Delete a file, and its checksum."""
        (self.path / file).unlink()
        self._checksum(file).unlink(missing_ok=True)

    def _checksum(self, file: str) -> Path:
        """Return the path of the checksum that Hadoop's file system keeps beside a file."""
        return self.path / f".{file}.crc"


class HadoopDirectory:
    """A directory of a file system of Hadoop. Files are written by Spark's own writer of checkpoints."""

    def __init__(self, uri: str, open_spark: Callable[[], SparkSession]) -> None:
        self.uri = uri
        self._open_spark = open_spark

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.uri.rsplit("/", 1)[-1]

    def __truediv__(self, name: str) -> "HadoopDirectory":
        """Return the directory of this name below this one."""
        return HadoopDirectory(f"{self.uri}/{name}", self._open_spark)

    def exists(self) -> bool:
        """Return whether the directory exists."""
        return bool(self._files().exists(self._path()))

    def names(self) -> list[str]:
        """Return the names of its files and directories, sorted."""
        files, path = self._files(), self._path()
        return sorted(str(found.getPath().getName()) for found in files.list(path)) if files.exists(path) else []

    def make(self) -> None:
        """Create the directory and those above it."""
        self._files().mkdirs(self._path())

    def delete(self) -> None:
        """Delete the directory with its content, if it exists."""
        self._files().delete(self._path())

    def read(self, file: str) -> str | None:
        """Return the text of a file; None without the file. Raises: Py4JJavaError."""
        try:
            stream = self._files().open(self._path(file))
        except Py4JJavaError as error:
            if "FileNotFoundException" in error.java_exception.getClass().getName():
                return None
            raise
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, file: str, text: str) -> None:
        """Write a file as a whole, in place of a former one. Raises: Py4JJavaError."""
        stream = self._files().createAtomic(self._path(file), True)
        try:
            stream.write(bytearray(text.encode()))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def remove(self, file: str) -> None:
        """Delete a file."""
        self._files().delete(self._path(file))

    def _path(self, *file: str) -> Any:
        return self._jvm().org.apache.hadoop.fs.Path("/".join((self.uri, *file)))

    def _files(self) -> Any:
        spark = self._open_spark()
        managers = getattr(self._jvm().org.apache.spark.sql.execution.streaming.checkpointing, "CheckpointFileManager$")
        configuration = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as below
        return getattr(managers, "MODULE$").create(self._path(), configuration)

    def _jvm(self) -> Any:
        return self._open_spark()._jvm  # noqa: SLF001 - PySpark has no public access to the JVM

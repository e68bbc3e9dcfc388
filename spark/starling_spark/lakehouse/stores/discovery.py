"""Adapter: the settings with which Iceberg's client writes the files of a table -> how workers write them."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from starling_spark.lakehouse.stores.translation import (
    CREDENTIAL_FILES,
    DIRECTORY,
    HADOOP_PREFIX,
    HADOOP_S3,
    Credentials,
    FileStore,
    StoreUnknown,
    check_table,
    of_hadoop,
    of_iceberg,
)

_RESOLVING: Final = "org.apache.iceberg.io.ResolvingFileIO"
_HADOOP: Final = "org.apache.iceberg.hadoop.HadoopFileIO"
_S3: Final = "org.apache.iceberg.aws.s3.S3FileIO"


class Stores:
    """The stores of tables. Settings of Hadoop do not change while a process runs; credentials of a catalog do."""

    def __init__(self) -> None:
        self._of_hadoop: dict[str, FileStore] = {}

    def of(self, jvm: Any, table: Any) -> FileStore:
        """Return the store of a table of Iceberg. Raises: StoreUnknown."""
        location = str(table.location())
        place = urlsplit(location)
        if place.scheme in {"", "file"}:
            return DIRECTORY
        if place.scheme not in {"s3", "s3a"}:
            raise StoreUnknown(f"workers cannot write to {place.scheme}://")
        check_table(_plain(jvm, table.properties()))
        files = table.io()
        name = str(files.getClass().getName())
        if name == _RESOLVING:
            name = str(files.ioClass(location).getName())
        if name == _HADOOP:
            bucket = f"{place.scheme}://{place.netloc}"
            if bucket not in self._of_hadoop:
                self._of_hadoop[bucket] = of_hadoop(place.netloc, place.scheme, _changed(jvm, files.getConf()))
            return self._of_hadoop[bucket]
        if name != _S3:
            raise StoreUnknown(f"the client {name} is not supported")
        given = [Credentials(str(one.prefix()), _plain(jvm, one.config())) for one in files.credentials()]
        return of_iceberg(location, _plain(jvm, files.properties()), given)


def _changed(jvm: Any, configuration: Any) -> dict[str, str]:
    """Return the settings that concern S3 and differ from Hadoop's defaults.

    Iceberg copies the configuration, and the copy does not know which settings are defaults.
    """
    defaults = jvm.org.apache.hadoop.conf.Configuration(False)
    defaults.addResource("core-default.xml")
    found, known = _about_s3(jvm, configuration), _about_s3(jvm, defaults)
    return {key: value for key, value in found.items() if value != known.get(key)}


def _about_s3(jvm: Any, configuration: Any) -> dict[str, str]:
    found = {HADOOP_PREFIX + key: value for key, value in _plain(jvm, configuration.getPropsWithPrefix(HADOOP_PREFIX)).items()}
    return found | {key: str(value) for key in (CREDENTIAL_FILES, HADOOP_S3) if (value := configuration.get(key)) is not None}


def _plain(jvm: Any, entries: Any) -> Mapping[str, str]:
    """Return a map of the JVM, in one call: py4j makes one for each entry."""
    found: Mapping[str, str] = json.loads(jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(entries))
    return found

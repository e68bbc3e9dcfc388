"""A lake whose catalog is Nessie, with its files in the object store of the cluster."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.catalog import Catalog, load_catalog

from starling_local.nessie import WAREHOUSE, Nessie, ObjectStore, nessie
from tests.s3_server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY
from tests.spark_cluster.rig import Rig


@dataclass(frozen=True)
class NessieLake:
    """The running catalog."""

    catalog: Nessie

    def settings(self) -> dict[str, str]:
        """Return the settings of a job."""
        return {
            "STARLING_LAKE_WAREHOUSE": WAREHOUSE,
            "STARLING_LAKE_CATALOG": json.dumps({"type": "rest", "uri": self.catalog.uri}),
            "STARLING_LAKE_CATALOG_SECRETS": json.dumps(self._secrets()),
        }

    def opened(self) -> Catalog:
        """Return a client of PyIceberg."""
        return load_catalog(uuid.uuid4().hex, type="rest", uri=self.catalog.uri, warehouse=WAREHOUSE, **self._secrets())

    def _secrets(self) -> dict[str, str]:
        return {"token": self.catalog.token, "s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}


@contextmanager
def nessie_lake(cluster: Rig) -> Iterator[NessieLake]:
    """Start the catalog for the duration of a block. It names the store by the address that hosts reach."""
    host, port = cluster.links.store.place
    store = ObjectStore(f"http://{host}:{port}", REGION, ACCESS_KEY, SECRET_KEY, f"s3://{BUCKET}/of-nessie")
    with nessie(store) as catalog:
        yield NessieLake(catalog)

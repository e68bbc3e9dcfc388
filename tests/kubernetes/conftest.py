"""One control plane with one node for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.control_plane import ControlPlane, control_plane
from tests.kubernetes.kubelet import Cloud, Heartbeat, PretendKubelet, repeatedly
from tests.kubernetes.prepared import prepare_cluster
from tests.kubernetes.process_kubelet import ProcessKubelet


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with what the files of `helm/starling/ci` require, and without a node."""
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as found:
        prepare_cluster(found.api)
        yield found


@pytest.fixture(scope="module")
def kubelet(plane: ControlPlane) -> Iterator[PretendKubelet]:
    """A node whose pods are reported as ready without running."""
    pretend = PretendKubelet(plane.api)
    with repeatedly([Heartbeat(plane.api).step, Cloud(plane.api).step, pretend.step]):
        yield pretend


@pytest.fixture(scope="module")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessKubelet]:
    """A node whose pods are processes."""
    kubelet = ProcessKubelet(plane, tmp_path_factory.mktemp("node"))
    steps = [Heartbeat(plane.api, kubelet.port).step, Cloud(plane.api, kubelet.address).step, kubelet.step]
    with kubelet.ended(), repeatedly(steps):
        yield kubelet


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory for what Helm keeps."""
    return tmp_path / "helm"

"""Clients generated from the OpenAPI document run the quick start. `make api-clients` installs the generators and runs this."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from starling_common.testing import Service
from tests.contract.api.conftest import POOL

HERE = Path(__file__).parent
TOOLS = HERE.parents[3] / "out" / "clients"
QUICK_START = {"members": 0, "estimate": 0, "name": "Loyal buyers"}


def run(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def document(api: Service, tmp_path: Path) -> dict[str, Any]:
    """Also in the file `openapi.json`."""
    answer = httpx.get(f"{api.url}/openapi.json", trust_env=False)
    (tmp_path / "openapi.json").write_text(answer.text)
    found: dict[str, Any] = answer.json()
    return found


def test_a_typescript_client(api: Service, document: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    (tmp_path / "package.json").write_text((HERE / "package.json").read_text())
    (tmp_path / "quick_start.ts").write_text((HERE / "quick_start.ts").read_text())
    run(TOOLS / "node_modules/.bin/openapi-typescript", "openapi.json", "--output", "api.d.ts", cwd=tmp_path)
    strict = ("--strict", "--target", "es2022", "--module", "nodenext", "--types", "node")
    run(TOOLS / "node_modules/.bin/tsc", *strict, "quick_start.ts", cwd=tmp_path)
    printed = run("node", "quick_start.js", api.url, f"marketer-{POOL.pop()}", cwd=tmp_path)
    assert json.loads(printed) == {"created": "typescript", "listed": ["typescript"], **QUICK_START}


def test_a_python_client(api: Service, document: dict[str, Any], tmp_path: Path) -> None:
    python, package = TOOLS / "venv/bin/python", tmp_path / "starling_client"
    options = ("--path", "openapi.json", "--meta", "none", "--output-path", package)
    run(python, "-m", "openapi_python_client", "generate", *options, cwd=tmp_path)
    operations = {operation["operationId"] for item in document["paths"].values() for operation in item.values()}
    assert {path.stem for path in package.glob("api/*/*.py")} - {"__init__"} == operations
    (tmp_path / "quick_start_client.py").write_text((HERE / "quick_start_client.py").read_text())
    printed = run(python, "quick_start_client.py", api.url, f"marketer-{POOL.pop()}", cwd=tmp_path)
    assert json.loads(printed) == {"created": "python", "listed": ["python"], **QUICK_START}

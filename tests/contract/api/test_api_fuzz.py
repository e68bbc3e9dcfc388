"""Generated requests for every operation of the OpenAPI document, and sequences of them: no 5xx, no undocumented answer.

`make fuzz-api` runs the long version: it sets `STARLING_FUZZ_EXAMPLES`. There is one worker: of two requests that write one list at
the same time, one is answered 503.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from starling_common.testing import Service
from tests.contract.api.conftest import POOL

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,unsupported_method,allow_header_conformance,ignored_auth"
)
EXAMPLES = int(os.environ.get("STARLING_FUZZ_EXAMPLES", "1"))
PHASES = "examples,fuzzing,stateful"
"""Not `coverage`: it enumerates the combinations of the recursive conditions, and does not come to an end."""

SEED = os.environ.get("STARLING_FUZZ_SEED", "1")
LEAST_CASES = int(os.environ.get("STARLING_FUZZ_LEAST_CASES", "100"))


def generatable(part: Any) -> Any:
    """The same schema without the one keyword that schemathesis cannot generate data for."""
    if isinstance(part, list):
        return [generatable(one) for one in part]
    if isinstance(part, dict):
        return {name: generatable(one) for name, one in part.items() if name != "unevaluatedProperties"}
    return part


def test_every_answer_is_documented(api: Service, tmp_path: Path) -> None:
    document = httpx.get(f"{api.url}/openapi.json", trust_env=False).json()
    (tmp_path / "openapi.json").write_text(json.dumps(generatable(document)))
    shutil.copy(Path(__file__).with_name("schemathesis.toml"), tmp_path)
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", "openapi.json", "--url", api.url,
        "--header", f"Authorization:Bearer admin-{POOL.pop()}",
        "--checks", CHECKS, "--phases", PHASES, "--max-examples", str(EXAMPLES), "--seed", SEED,
        "--continue-on-failure", "--no-color", "--request-timeout", "60", "--warnings", "off", "--suppress-health-check", "all",
        "--workers", "1",
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr
    generated = re.search(r"([\d,]+) generated", run.stdout)
    assert generated is not None, run.stdout
    assert int(generated[1].replace(",", "")) >= LEAST_CASES

"""What the process of the API imports."""

import subprocess
import sys


def test_an_api_that_runs_no_job_on_kubernetes_does_not_import_its_client() -> None:
    code = "import sys, starling_api.__main__; print([name for name in sys.modules if name.split('.')[0] == 'kubernetes'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

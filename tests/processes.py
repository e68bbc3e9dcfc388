"""Ends processes that a test has started."""

import subprocess


def end(process: "subprocess.Popen[bytes]") -> None:
    """End the process: by SIGTERM, and by SIGKILL after a minute."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""Adapter: profiles of all services while a block runs, as collapsed stacks: Python's with py-spy, the JVMs' with JFR."""

import json
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from whole.meters import Meters

SERVICES = ("ingest", "normalizer", "segmenter", "projector", "delivery", "api")
JVMS = ("cassandra", "kafka")


@contextmanager
def profiles(meters: Meters, directory: Path, *, enabled: bool) -> Iterator[None]:
    """Write `directory/<service>-<pid>.txt` (stack and number of samples a line) for the duration of the block."""
    running: list[subprocess.Popen[bytes]] = []
    if enabled:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for service in SERVICES:
            for pid in meters.pids(service):
                out = directory / f"{service}-{pid}.txt"
                command = ["py-spy", "record", "--pid", str(pid), "--format", "raw", "--rate", "50", "--duration", "3600"]
                running.append(
                    subprocess.Popen(
                        [*command, "--nonblocking", "--output", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                    )
                )
    recordings = {f"{jvm}-{pid}": pid for jvm in JVMS for pid in meters.pids(jvm)} if enabled else {}
    for pid in recordings.values():
        _jcmd(pid, "JFR.start", "name=benchmark", "settings=profile")
    try:
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait(60)
        for name, pid in recordings.items():
            recording = directory / f"{name}.jfr"
            _jcmd(pid, "JFR.stop", "name=benchmark", f"filename={recording}")
            (directory / f"{name}.txt").write_text(_collapsed(recording))


def _jcmd(pid: int, *words: str) -> None:
    subprocess.run(["jcmd", str(pid), *words], check=True, stdout=subprocess.DEVNULL)


def _collapsed(recording: Path) -> str:
    """Return one line a stack: thread, frames from the outermost, samples."""
    command = ["jfr", "print", "--json", "--stack-depth", "64", "--events", "jdk.ExecutionSample", str(recording)]
    events = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["recording"]["events"]
    stacks: Counter[str] = Counter()
    for event in events:
        sample = event["values"]
        trace, thread = sample["stackTrace"] or {}, sample["sampledThread"] or {}
        frames = [f"{frame['method']['type']['name']}.{frame['method']['name']}" for frame in reversed(trace.get("frames", ()))]
        stacks[";".join([thread.get("javaName") or "?", *frames])] += 1
    return "".join(f"{stack} {count}\n" for stack, count in stacks.most_common())

"""The number of malloc arenas in a process."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

PROGRAM = """
import ctypes, sys, threading
from starling_stream.worker.arenas import share_arenas
if sys.argv[1] == "shared":
    share_arenas()
kept, all_are_here = [], threading.Barrier(20)
def work():
    all_are_here.wait()
    kept.append(bytes(10_000))
    all_are_here.wait()
threads = [threading.Thread(target=work) for _ in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, out)
libc.fclose(out)
"""


@pytest.mark.parametrize(
    ("how", "setting", "few"), [("shared", {}, True), ("own", {}, False), ("shared", {"MALLOC_ARENA_MAX": "9"}, False)]
)
def test_threads_share_two_arenas_unless_the_environment_sets_a_number(
    how: str, setting: dict[str, str], few: bool, tmp_path: Path
) -> None:
    info = tmp_path / "info.xml"
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"} | setting
    subprocess.run([sys.executable, "-c", PROGRAM, how, str(info)], check=True, env=environment)
    assert (info.read_text().count("<heap nr=") <= 2) is few


@pytest.mark.parametrize(("service", "wiring"), [("starling_normalizer", "open_service"), ("starling_segmenter", "open_service")])
def test_a_service_limits_arenas_before_it_starts_threads(service: str, wiring: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main, done = importlib.import_module(f"{service}.__main__"), []

    def built(_settings: object) -> None:
        done.append("built")
        raise Built

    monkeypatch.setattr(main, "share_arenas", lambda: done.append("limited"))
    connections = {"kafka": SimpleNamespace(brokers="b"), "http": SimpleNamespace(host="h", port=1)}
    monkeypatch.setattr(main, "Settings", lambda: SimpleNamespace(log_level="INFO", **connections))
    monkeypatch.setattr(main, "configure_logs", lambda *_: None)
    monkeypatch.setattr(main, "await_access", lambda *_: None)
    monkeypatch.setattr(main, wiring, built)
    with pytest.raises(Built):
        main.main()
    assert done == ["limited", "built"]


class Built(Exception):
    pass

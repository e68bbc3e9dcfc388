"""The build hook of the wheel: with STARLING_NATIVE_WHEEL=1 it contains the compiled modules, and is for this platform alone.

Without it, and in an editable installation, the wheel contains the sources alone and runs on every platform.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeWheel(BuildHookInterface[BuilderConfig]):
    """Adds each compiled module beside its source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled modules to the files of the wheel. Raises: RuntimeError if they were built from other sources."""
        if version == "editable" or os.environ.get("STARLING_NATIVE_WHEEL") != "1":
            return
        root = Path(self.root)
        check = subprocess.run([sys.executable, "apps/local/compile_native.py", "--check"], cwd=root, check=False)
        compiled = {
            str(module): module.relative_to(root / source).as_posix()
            for source in self.build_config.sources
            for module in (root / source).rglob("*.so")
        }
        if check.returncode != 0 or not compiled:
            raise RuntimeError(
                "the compiled modules are missing, or were built from other sources: run apps/local/compile_native.py"
            )
        build_data["force_include"].update(compiled)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

"""The channel in the author's guide."""

import re
from pathlib import Path

GUIDE = Path(__file__).parents[3] / "docs/how-to/channel-author.md"


def source_of_the_guide() -> str:
    [source] = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return str(source)

"""A function fits on a screen, and a package shows about a dozen modules at a glance."""

from pathlib import Path

from tools.dead_code import ROOT
from tools.house_table import PRODUCT, functions, modules, product

MOST_LINES = 40
MOST_MODULES = 14


def test_functions_fit_on_a_screen() -> None:
    assert [str(one) for one in functions(product(ROOT)) if one.size > MOST_LINES] == []


def test_packages_show_their_modules_at_a_glance() -> None:
    assert [str(one) for one in modules(product(ROOT)) if one.size > MOST_MODULES] == []


def test_a_long_function_and_a_crowded_package_are_found(tmp_path: Path) -> None:
    package = tmp_path / PRODUCT[0] / "common" / "starling_common"
    package.mkdir(parents=True)
    (package / "long.py").write_text("def long():\n" + "    pass\n" * MOST_LINES)
    for number in range(MOST_MODULES):
        (package / f"module_{number}.py").write_text("")
    texts = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in package.iterdir()}
    assert [one.name for one in functions(texts) if one.size > MOST_LINES] == ["libs/common/starling_common/long.py:long"]
    assert [one.size for one in modules(texts)] == [MOST_MODULES + 1]

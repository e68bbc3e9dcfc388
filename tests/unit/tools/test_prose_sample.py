"""The drawing of texts for a review: which texts it knows, and that a seed repeats it."""

import ast

import pytest

from tools.prose_sample import docstrings, drawn, main, user_facing

MODULE = '''
"""Pure core: orders."""

limit: int = Field(ge=1, description="maximum orders of one user")
short = Field(description="a limit")


class Order:
    """One order."""

    def check(self) -> None:
        """Refuse an empty order."""
        raise ValueError(f"the order {self.key!r} has no items")
'''


def test_docstrings_and_user_facing_texts_are_found_with_their_places() -> None:
    tree = ast.parse(MODULE)
    assert [(one.line, one.text) for one in docstrings("orders.py", tree)] == [
        (2, "Pure core: orders."),
        (9, "One order."),
        (12, "Refuse an empty order."),
    ]
    assert sorted((one.line, one.text) for one in user_facing("orders.py", tree)) == [
        (4, "maximum orders of one user"),
        (13, "the order {self.key} has no items"),
    ]


@pytest.mark.long
def test_a_seed_repeats_the_drawing_and_another_one_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert drawn(1, 10) == drawn(1, 10) != drawn(2, 10)
    assert main(["--seed", "1", "--count", "3"]) == 0
    printed = capsys.readouterr().out
    assert "# Docstrings\n" in printed
    assert all(str(text) in printed for kind in drawn(1, 3) for text in kind)

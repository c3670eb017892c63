"""Lines that fit a screen."""

from __future__ import annotations

from tests.house.widths import code, markdown, too_wide


def test_lines_fit_a_screen() -> None:
    """Code has at most 120 columns; comments and the prose of pages have at most 100."""
    assert not too_wide()


def test_wide_lines_are_found() -> None:
    """Long code, comments and prose are found; links, tables, pragmas and strings without spaces may be longer."""
    call = f"call({', '.join(['argument'] * 12)})"
    assert [*code([call, f"x = 1  # noqa: E501 {'x ' * 60}", f"# {'word ' * 20}", f'    "{"f" * 130}",'])] == [
        (1, 120),
        (3, 100),
    ]
    assert [*code(["/* one", f" * {'word ' * 20}", " */", f"int {'x, ' * 30}"])] == [(2, 100)]
    prose = "word " * 21
    assert [*markdown([prose, f"| {prose} |", "```text", prose, "```", f"{prose}[a page](page.md)"])] == [(1, 100)]

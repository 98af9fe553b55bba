"""Tables in Markdown, and the part of a page that is written by a program."""

from collections.abc import Sequence
from pathlib import Path

BEGIN = "<!-- results:begin -->"
END = "<!-- results:end -->"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """The first `left` columns to the left, figures to the right."""
    lines = [head, ["---" if column < left else "--:" for column in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def splice(page: str, text: str) -> str:
    """`page` with `text` between its markers, whatever stood there. Raises `ValueError` where they are not one pair."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(f"the page needs {BEGIN} and, behind it, {END}, each once")
    return f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}"


def write(page: Path, text: str) -> None:
    """Replaces the part of the file between the markers."""
    page.write_text(splice(page.read_text(encoding="utf-8"), text), encoding="utf-8")

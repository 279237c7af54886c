# SPDX-License-Identifier: MIT
"""What the scripts that write measurements into the documentation share."""
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"


def geomean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def section(name, text, page=PAGE):
    """Replaces what stands between the two markers of that name."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    head, rest = page.read_text().split(begin)
    page.write_text(head + begin + "\n" + text.strip() + "\n" + end + rest.split(end, 1)[1])

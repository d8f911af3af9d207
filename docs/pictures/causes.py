"""Draws the pictures of docs/acbo: what the code of the pages `start` and `optimizer` writes when it is run.

python docs/pictures/causes.py
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def names_of(page: str) -> dict[str, Any]:
    """What a page's code leaves behind, run in order in an empty folder."""
    found: dict[str, Any] = {"__name__": "__page__"}
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            for code in BLOCK.findall((HERE.parent / "acbo" / page).read_text()):
                exec(compile(code, page, "exec"), found)
        finally:
            os.chdir(before)
    return found


def main() -> None:
    (HERE / "acbo-causes.svg").write_text(names_of("start.md")["picture"])
    optimizer = names_of("optimizer.md")["optimizer"]
    optimizer.plot_effects().savefig(HERE / "acbo-effects.png", dpi=80)
    optimizer.plot_graph().savefig(HERE / "acbo-graph.png", dpi=80)


if __name__ == "__main__":
    main()

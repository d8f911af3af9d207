"""Everything people read is run: the Python blocks and our commands in README and docs/, and the files of examples/."""

import importlib
import importlib.util
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("quick_compile")

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
BLOCK = re.compile(
    r"^(?P<indent> *)```python(?P<rest>[^\n]*)\n(?P<code>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE
)


SHELL = re.compile(
    r"^(?P<indent> *)```(?:sh|console|bash|shell|toml|csv)\n(?P<text>.*?)^(?P=indent)```",
    re.DOTALL | re.MULTILINE,
)
NAMED = re.compile(r"# (?P<name>[\w.-]+\.(?:toml|csv))\n")
"""The first line of a block that is a file."""
PROGRAMS = ("jaxworlds", "jaxarc", "jaxtrace", "acbo")
# What makes a command cheap enough for a test: the last of two equal options counts.
SMALLER = {
    ("acbo", "train"): "--updates 1 --models 8 --group 8 --width 8 --layers 1 --size 3",
    ("acbo", "eval"): "--strategies random --sizes 3 --families chain --models 4",
    ("acbo", "bench"): "--variables 3 --rows 10 --repeats 2",
    ("jaxarc", "rollout"): "--environments 4 --steps 100",
    ("jaxarc", "bench"): "--environments 4 --steps 5 --rounds 1 --formats point",
    ("jaxtrace", "bench"): "--particles 4 --steps 20 --rounds 1 --integrators euler",
}
# Run by tests of their own: test_demo_page.py and test_cli.py in tests/unit/jaxworlds/commands.
ELSEWHERE = {("jaxworlds", "demo"), ("jaxworlds", "bench")}


def shell_blocks(page: Path) -> list[str]:
    """The blocks of a page for a shell, and those that are files, in order."""
    found = SHELL.finditer(page.read_text())
    return [
        "\n".join(line.removeprefix(m["indent"]) for line in m["text"].splitlines()) + "\n" for m in found
    ]


def command_lines(text: str) -> list[list[str]]:
    """The commands of a block, without prompts and comments; a backslash at the end of a line joins it with the next."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line.strip().removeprefix("$ "), comments=True) for line in lines]
    return [line for line in words if line]


def our_commands(page: Path) -> list[list[str]]:
    lines = [line for text in shell_blocks(page) if not NAMED.match(text) for line in command_lines(text)]
    return [line for line in lines if line[0] in PROGRAMS]


@pytest.mark.parametrize("page", [p for p in PAGES if our_commands(p)], ids=lambda p: p.name)
def test_our_commands_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in shell_blocks(page):
        if named := NAMED.match(text):
            (tmp_path / named["name"]).write_text(text[named.end() :])
            continue
        for program, *rest in command_lines(text):
            if program not in PROGRAMS or (program, rest[0]) in ELSEWHERE:
                continue
            if "--devices" in rest:  # needs a process of its own: `test_scaling.py` runs these
                continue
            monkeypatch.setattr("sys.stdin", io.StringIO("stop\n"))
            smaller = shlex.split(SMALLER.get((program, rest[0]), "")) if "--help" not in rest else []
            with pytest.raises(SystemExit) as ended:
                importlib.import_module(f"{program}.cli").main([*rest, *smaller])
            assert ended.value.code == 0, f"{program} {shlex.join(rest)}: {capsys.readouterr().err}"


def test_other_commands_of_pages_are_there() -> None:
    """Targets of make, scripts and modules that a page tells people to run; most take minutes, so they are only looked up."""
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    looked_up = 0
    for page in PAGES:
        for text in shell_blocks(page):
            lines = [] if NAMED.match(text) else command_lines(text)
            for line in [line for line in lines if line[0] in ("make", "python")]:
                looked_up += 1
                if line[0] == "make":
                    assert line[1] in targets, f"{page.name}: {shlex.join(line)}"
                elif line[1] == "-m":
                    assert importlib.util.find_spec(line[2]), f"{page.name}: {shlex.join(line)}"
                else:
                    assert (ROOT / line[1]).is_file(), f"{page.name}: {shlex.join(line)}"
    assert looked_up > 5


def blocks(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page with their first line."""
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        indent = match["indent"]
        code = "\n".join(line.removeprefix(indent) for line in match["code"].splitlines())
        found.append((text[: match.start("code")].count("\n"), code))
    return found


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_python_blocks_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__page__"}
    for line, code in blocks(page):
        # The padding makes a traceback point at the line of the page.
        exec(compile("\n" * line + code, str(page), "exec"), namespace)


def test_the_readmes_run_of_the_core_can_be_pasted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text().split("## The core in ten lines")[1].split("\n## ")[0]
    codes = [match["code"] for match in BLOCK.finditer(text)]
    assert any("checkpoint" in code for code in codes)
    for _ in range(2):
        for code in codes:
            exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_the_readme_has_python_to_run() -> None:
    assert len(blocks(ROOT / "README.md")) >= 1


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_examples_run(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")


# What is made here and kept out of the repository; looked at only where git cannot say.
MADE_HERE = {"site", "report", "build", "dist", "node_modules", "__pycache__"}


def files_of_the_repository() -> list[Path]:
    """The tracked files, or where git or its folder is missing (an unpacked archive) all but what is made here."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [ROOT / name for name in listed.split("\0") if name]
    return files_of_a_tree(ROOT)


def files_of_a_tree(root: Path) -> list[Path]:
    """All files under a folder, without hidden folders (`.git`, `.venv`, caches) and what is made here."""
    found = []
    for folder, folders, names in os.walk(root):
        kept = {name for name in folders if name == ".ci" or not name.startswith(".")} - MADE_HERE
        folders[:] = [name for name in kept if not name.endswith(".egg-info")]
        found += [Path(folder) / name for name in names]
    return found


def test_without_git_the_tree_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "src/b.py", ".ci/run", ".git/config", ".venv/c.py", ".jax_cache/d", "site/e.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {path.relative_to(tmp_path).as_posix() for path in files_of_a_tree(tmp_path)}
    assert found == {"a.py", "src/b.py", ".ci/run"}
    tracked = {path for path in files_of_the_repository() if path.is_file()}
    monkeypatch.setattr(shutil, "which", lambda name: None)
    walked = set(files_of_the_repository())
    assert Path(__file__).resolve() in walked
    assert {path for path in tracked if path.suffix == ".py"} <= walked


def test_no_file_names_a_package_registry() -> None:
    """Constraints are plain `name==version` lines, and no file records where packages come from."""
    hosts = ("py" + "pi", "python" + "hosted", "npm" + "js")
    signs = (*hosts, "index" + "-url", "file:" + "///")
    where = re.compile(rf"({'|'.join(hosts)})\.(org|com)|--(extra-)?{signs[-2]}|{signs[-1]}")
    guilty = []
    for path in files_of_the_repository():
        if path.suffix in {".txt", ".toml", ".md", ".py", ".yml", ".cfg", ""} and path.is_file():
            text = path.read_text(errors="ignore")
            guilty += [str(path)] if any(sign in text for sign in signs) and where.search(text) else []
    assert guilty == []
    for file in (ROOT / "constraints").glob("*.txt"):
        lines = file.read_text().splitlines()
        assert len(lines) > 20, f"{file.name} must pin what was tested"
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+", line) for line in lines), file.name

"""No file of the repository names a folder of somebody's machine: not in text, not in the metadata of weights."""

import re
from pathlib import Path

import pytest
import release

ROOT = Path(__file__).resolve().parents[2]
# Absolute paths into homes, mounts and scratch folders; an address such as example.org/home/ is none.
MACHINE_PATH = re.compile(
    rb"(?<![\w.)}])/(?:work|root|home|Users|mnt|scratch|tmp|var/folders)/[\w.~-]+[\w./~-]*"
    rb"|\b[A-Za-z]:\\+Users\\+\w+"
)


def machine_paths(content: bytes) -> list[str]:
    """Every path of a machine in the bytes of a file, text or not."""
    return [found.group().decode() for found in MACHINE_PATH.finditer(content)]


def test_no_file_names_a_folder_of_a_machine() -> None:
    files = release.tracked_files()
    if not files:
        pytest.skip("not a checkout: git does not know which files are ours")
    found = {
        name: paths
        for name in sorted(files)
        if (ROOT / name).is_file() and (paths := machine_paths((ROOT / name).read_bytes()))
    }
    assert not found, f"write paths relative to the repository, or leave the folder out: {found}"


@pytest.mark.parametrize(
    "parts",
    [
        ("", "work", "shared", "data"),
        ("", "root", "out", "default.safetensors"),
        ("", "home", "ana", "runs"),
        ("", "Users", "ana", "runs"),
        ("", "tmp", "run-1"),
    ],
)
def test_a_path_of_a_machine_is_found(parts: tuple[str, ...]) -> None:
    path = "/".join(parts)
    for text in (path, f'Path("{path}")', f"python -m x --out {path} --minutes 8", f'\x00{{"out":"{path}"}}'):
        assert machine_paths(text.encode()) == [path]


@pytest.mark.parametrize(
    "text", ["https://example.org/home/ana", "tests/work/x", "f'{folder}/tmp/x'", "/work/"]
)
def test_other_paths_are_left_alone(text: str) -> None:
    assert not machine_paths(text.encode())

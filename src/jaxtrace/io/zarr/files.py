"""Where the bytes of a Zarr store lie: in a folder or a zip archive, outside of which nothing is ever read."""

import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path

from ..files import DatasetError, named_errors

# RuntimeError is that of an archive with a password; NotImplementedError, of an unknown compression, is one too.
_ZIP_ERRORS = (OSError, ValueError, EOFError, LookupError, OverflowError, RuntimeError)
_ZIP_ERRORS += (struct.error, zipfile.BadZipFile, zlib.error)


class FolderFiles:
    """A folder: each key, such as "u/zarr.json", is the path of a file in it."""

    def __init__(self, path: Path) -> None:
        self.path, self._root = path, os.path.realpath(path)
        self._folders: dict[str, str] = {}

    def folders(self) -> list[str]:
        """The names of the folders at the top, of which some are arrays."""
        with os.scandir(self._root) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def size(self, key: str) -> int | None:
        """How many bytes a key has; None where it is not stored."""
        found = self._locate(key)
        return None if found is None else found[1]

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes of a key that is stored, or those from `start` up to `stop`."""
        found = self._locate(key)
        if found is None:
            raise DatasetError(f"{self.path}: {key!r} is gone.")
        with open(found[0], "rb") as file:
            file.seek(start)
            return file.read(-1 if stop is None else stop - start)

    def count_stored(self, prefix: str, enough: int) -> tuple[int, int]:
        """How many files lie below `prefix` and how many bytes they have; counted until there are `enough` bytes."""
        files = held = 0
        for folder, _, names in os.walk(os.path.join(self._root, prefix)):
            for name in names:
                files, held = files + 1, held + os.lstat(os.path.join(folder, name)).st_size
            if held >= enough:
                break
        return files, held

    def _locate(self, key: str) -> tuple[str, int] | None:
        """The file of a key and its size. Links are followed within the store only; pipes and devices never end."""
        folder, _, name = key.rpartition("/")
        real = self._folders.get(folder)
        if real is None:
            real = self._folders[folder] = self._real(folder, key)
        path = f"{real}/{name}"
        try:
            facts = os.lstat(path)
            if stat.S_ISLNK(facts.st_mode):
                path = self._real(key, key)
                facts = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(facts.st_mode):
            raise DatasetError(f"{self.path}: {key!r} must be a file; it is a folder, a pipe or a device.")
        return path, facts.st_size

    def _real(self, place: str, key: str) -> str:
        """Where a place in the store is on the disk, links followed."""
        real = os.path.realpath(os.path.join(self._root, place))
        if os.path.commonpath([self._root, real]) != self._root:
            raise DatasetError(
                f"{self.path}: {key!r} is a link that leads out of the store and is not followed."
            )
        return real


class ZipFiles:
    """A zip archive: each key is the name of a member. All of them may lie in one folder, as in a folder that was packed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        remedy = " It is damaged or no Zarr store."
        with named_errors(f"{path}: the archive cannot be read", _ZIP_ERRORS, remedy, 200):
            self._archive = zipfile.ZipFile(path)
        found = self._archive.infolist()
        members = {info.filename: info for info in found if not info.filename.endswith("/")}
        tops = {name.partition("/")[:2] for name in members}
        own = "".join(*tops) if len(tops) == 1 else ""
        self._members = {name[len(own) :]: info for name, info in members.items() if name != own}

    def folders(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self._members if "/" in name} - {""})

    def size(self, key: str) -> int | None:
        info = self._members.get(key)
        return None if info is None else info.file_size

    def read(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        info = self._members[key]
        wanted = (info.file_size if stop is None else stop) - start
        where, remedy = f"{self.path}: {key!r} cannot be read", " The archive is damaged."
        with named_errors(where, _ZIP_ERRORS, remedy, 200), self._archive.open(info) as file:
            file.seek(start)
            return file.read(max(wanted, 0))

    def count_stored(self, prefix: str, enough: int) -> tuple[int, int]:
        inside = [info for name, info in self._members.items() if name.startswith(f"{prefix}/")]
        return len(inside), sum(info.compress_size for info in inside)


StoreFiles = FolderFiles | ZipFiles


def open_files(path: Path) -> StoreFiles:
    """The store at `path`: a folder, or a file that is a zip archive."""
    if path.is_dir():
        return FolderFiles(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the store is missing.")
    return ZipFiles(path)

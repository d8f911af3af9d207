"""Check that another distribution has not replaced files of this one: import names may clash.

pip does not notice. What was installed last wins file by file, and uninstalling the other one takes files of ours with it.
"""

import os
import sys

_NAME = "jaxworlds"
_GONE = "its `__init__.py` is gone, as when another distribution with such a package was uninstalled"
_own: set[str] = set()


def demand_own_files(package: str, *, first: bool = False) -> None:
    """Raise an `ImportError` with the remedy where the files of `package` are not, or not only, those of this distribution.

    A package calls it in its `__init__` with `first`; modules of it that another distribution does not have call it too,
    and so notice an `__init__` that is not ours, or none.
    """
    if first:
        _own.add(package)
    module = sys.modules.get(package)
    init = None if module is None else getattr(module, "__file__", None)
    if package in _own and init is not None:
        rivals = _rivals_beside(os.path.dirname(init))
        if not rivals:
            return
        trouble = f"{' and '.join(rivals)} put files into the same folder as {_NAME}"
    else:
        trouble = f"{init} is another distribution's file, not that of {_NAME}" if init else _GONE
    raise ImportError(f"the package `{package}` is not as {_NAME} installed it: {trouble}. {remedy(package)}")


def remedy(package: str) -> str:
    """The commands that restore the package."""
    return (
        f"Type `pip uninstall -y {package}`, then `pip install --force-reinstall --no-deps {_NAME}` (or the file or folder "
        f"that you installed {_NAME} from); keep the other one in an environment of its own."
    )


def _rivals_beside(folder: str) -> list[str]:
    """Other installed distributions with the package's name, by one look into the folder above."""
    try:
        names = os.listdir(os.path.dirname(folder))
    except OSError:
        return []
    stems = [os.path.splitext(name)[0] for name in names if name.endswith((".dist-info", ".egg-info"))]
    parts = [stem.partition("-") for stem in stems]
    own = os.path.basename(folder)
    return [f"{name} {version}".strip() for name, _, version in parts if name.lower() == own]


def trouble_of(package: str) -> str | None:
    """Faults of a package's installed files, as text; None if there are none. Imports nothing."""
    import importlib.util
    from pathlib import Path

    here = Path(__file__).resolve().parents[1]
    spec = importlib.util.find_spec(package)
    if spec is None:
        return "it is not there"
    places = [Path(place).resolve() for place in spec.submodule_search_locations or ()]
    if spec.origin is None:
        return _GONE
    if places != [here / package]:
        return f"Python finds it at {', '.join(map(str, places))}, which is another distribution's"
    rivals = " and ".join(_rivals_beside(str(here / package)))
    if changed := _changed_files(package):
        trouble = f"{len(changed)} of its files are not those that were installed, such as {changed[0]}"
        return f"{trouble}; {rivals} put files there" if rivals else trouble
    return f"{rivals} put files into the same folder" if rivals else None


def _changed_files(package: str) -> list[str]:
    """Files that are missing or changed, by the installer's list; empty without such a list."""
    import base64
    import hashlib
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path

    try:
        found = distribution(_NAME)
    except PackageNotFoundError:
        return []
    changed = []
    for file in found.files or ():
        if file.parts[0] != package or file.hash is None or file.suffix == ".pyc":
            continue
        path = Path(str(found.locate_file(file)))
        content = path.read_bytes() if path.is_file() else b""
        digest = base64.urlsafe_b64encode(hashlib.new(file.hash.mode, content).digest()).decode().rstrip("=")
        if digest != file.hash.value:
            changed.append(str(file))
    return changed

"""Builds two wheels and the sdist and tries them outside the tree, on every Python that is here (`make release`).

    python tests/support/release.py [--pythons 3.11 3.12] [--extras core all] [--out dist]

For each Python and each extra alone a fresh environment is made under the constraints of that Python, and
`release_smoke.py` runs there, far from the tree. Needs a network. Nothing but `--out` is written into the tree. The wheel for
Linux on x86-64, which brings its kernels compiled, is tried without extras and without a compiler ("prebuilt").
"""

import argparse
import email.message
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
SMOKE = Path(__file__).with_name("release_smoke.py")
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("core", "prebuilt", "fast", "arc", "causal", "trace", "docs", "all")
PACKAGES = ("jaxworlds", "jaxarc", "acbo", "jaxtrace")
# A right line, and below it a wrong one: a checker that sees no types finds nothing wrong.
TYPED = """import acbo, jaxarc.tasks, jaxtrace, jaxworlds
from jaxworlds.store import content_hash

right: str = content_hash({"a": 1})
wrong: int = content_hash({"a": 1})
"""


def version() -> str:
    """The version of the tree, read as the build does."""
    text = (ROOT / "src/jaxworlds/_version.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def build(kind: str, out: Path, source: Path = ROOT) -> Path:
    """Build the "wheel", the "sdist" or the "prebuilt" wheel with what is installed here, without a network."""
    out.mkdir(parents=True, exist_ok=True)
    prebuilt = kind == "prebuilt"
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel" if prebuilt else kind,
        "-d",
        str(out),
    ]
    own = {**os.environ, "JAXWORLDS_PREBUILT": str(int(prebuilt))}
    done = subprocess.run(
        command, cwd=source, capture_output=True, text=True, timeout=900, check=False, env=own
    )
    if done.returncode:
        raise RuntimeError(f"{kind} was not built: {done.stderr}")
    pattern = {"wheel": "-py3-none-any.whl", "prebuilt": "-py3-none-manylinux*.whl", "sdist": ".tar.gz"}[kind]
    (file,) = out.glob(f"jaxworlds-{version()}{pattern}")
    return file


def wheel_files(wheel: Path) -> dict[str, str]:
    """Every file of a wheel with a hash of its content."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def sdist_files(sdist: Path) -> set[str]:
    """The paths of the files of an sdist, below its one folder."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def tracked_files() -> set[str]:
    """The files that git knows, which are those that a release may hold; empty outside a checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(filter(None, done.stdout.split("\0"))) if done.returncode == 0 else set()


def wheel_metadata(wheel: Path) -> email.message.Message:
    """METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def judge_files(wheel: Path, sdist: Path) -> None:
    """The wheel holds every tracked file of the packages and nothing else; the sdist every tracked file of the tree."""
    tracked = tracked_files()
    if not tracked:
        return
    packed = {name for name in wheel_files(wheel) if ".dist-info/" not in name}
    wanted = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    if packed != wanted:
        raise RuntimeError(f"the wheel and the tree differ: {sorted(packed ^ wanted)}")
    odd = (sdist_files(sdist) ^ tracked) - {"PKG-INFO"}
    if odd:
        raise RuntimeError(f"the sdist and the tree differ: {sorted(odd)}")


def judge_prebuilt(prebuilt: Path, wheel: Path) -> None:
    """The wheel with kernels is the pure one and nine libraries: three for each level of the processor."""
    pure, found = wheel_files(wheel), wheel_files(prebuilt)
    added = {name for name in found.keys() - pure.keys() if "/kernels/prebuilt/" in name}
    changed = {name for name in pure if found.get(name) != pure[name]} | (found.keys() - pure.keys() - added)
    if len(added) != 9 or {name.rpartition("/")[2] for name in changed} != {"RECORD", "WHEEL"}:
        raise RuntimeError(
            f"the prebuilt wheel is not the pure one with libraries: {sorted(added | changed)}"
        )


def find_python(wanted: str) -> Path | None:
    """An interpreter of this version on the path or with pyenv."""
    homes = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{wanted}"), *sorted(homes.glob(f"{wanted}.*/bin/python"))]
    for place in filter(None, places):
        command = [str(place), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.stdout.strip() == wanted:
            return Path(place)
    return None


class Environment:
    """A fresh virtual environment outside the tree, with a folder to work in."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder = folder
        self.desk = folder / "desk"
        run([str(python), "-m", "venv", str(folder)])
        self.desk.mkdir()
        self.python = folder / "bin" / "python"

    def install(self, *what: str, constraints: Path) -> None:
        """Install under the constraints of this Python."""
        run([str(self.python), "-m", "pip", "install", "--quiet", "-c", str(constraints), *what])

    def run(self, *words: str, **variables: str) -> str:
        """Run this Python in the working folder."""
        return run([str(self.python), *words], cwd=self.desk, variables=variables)


def run(
    command: Sequence[str],
    cwd: Path | None = None,
    allowed: tuple[int, ...] = (0,),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What a command prints, with nothing of the tree on its path."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JAX", "XLA"))}
    own |= {"JAX_PLATFORMS": "cpu", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if cwd is not None:
        own["JAXWORLDS_CACHE_DIR"] = str(cwd.parent / "cache")
    own |= variables
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=1800, check=False, env=own
    )
    if done.returncode not in allowed:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def judge_types(environment: Environment) -> None:
    """The checker sees our types through py.typed: one mistake is found, and no package is called untyped."""
    (environment.desk / "typed.py").write_text(TYPED)
    settings = {"reportMissingTypeStubs": "error", "reportMissingImports": "error", "include": ["typed.py"]}
    (environment.desk / "pyrightconfig.json").write_text(json.dumps(settings))
    checker = str(Path(sys.executable).with_name("pyright"))
    words = [checker, "--outputjson", "--pythonpath", str(environment.python)]
    found = json.loads(run(words, cwd=environment.desk, allowed=(0, 1)))["generalDiagnostics"]
    lines = [one["range"]["start"]["line"] for one in found if one["severity"] == "error"]
    if lines != [TYPED.splitlines().index('wrong: int = content_hash({"a": 1})')]:
        raise RuntimeError(f"types of the installed package are not as they should be: {found}")


def judge_sdist(environment: Environment, sdist: Path, wheel: Path) -> None:
    """A wheel made from the sdist, as pip makes it, is the wheel."""
    out = environment.desk / "from-sdist"
    environment.run("-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out), str(sdist))
    (made,) = out.glob("*.whl")
    if wheel_files(made) != wheel_files(wheel):
        odd = set(wheel_files(made).items()) ^ set(wheel_files(wheel).items())
        raise RuntimeError(f"the wheel from the sdist differs: {sorted({name for name, _ in odd})}")


def try_out(python: Path, number: str, extra: str, wheel: Path, sdist: Path, folder: Path) -> str:
    """Install and try one extra, or the prebuilt wheel, on one Python; what to tell of it."""
    environment = Environment(python, folder)
    try:
        what = str(wheel) if extra in ("core", "prebuilt") else f"{wheel}[{extra}]"
        environment.install(what, constraints=ROOT / "constraints" / f"python-{number}.txt")
        environment.run("-m", "pip", "check")
        shutil.copy(SMOKE, environment.desk)
        variables = {"PATH": "/nowhere", "CXX": ""} if extra == "prebuilt" else {}
        checks = environment.run(SMOKE.name, extra, version(), **variables).splitlines()[-1]
        if extra == "core":
            judge_types(environment)
            judge_sdist(environment, sdist, wheel)
        text = "import sys, jax; print('Python %d.%d.%d,' % sys.version_info[:3], 'jax', jax.__version__)"
        return f"{environment.run('-c', text).strip()}: {checks} checks"
    finally:
        shutil.rmtree(folder)


def main() -> int:
    """Build and try; ends with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description="Build the wheels and the sdist and try them outside the tree."
    )
    parser.add_argument("--pythons", nargs="+", choices=PYTHONS, help="default: those that are installed")
    parser.add_argument("--extras", nargs="+", choices=EXTRAS, default=EXTRAS, help="default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the files")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    wheel, sdist, prebuilt = (build(kind, options.out) for kind in ("wheel", "sdist", "prebuilt"))
    try:
        judge_files(wheel, sdist)
        judge_prebuilt(prebuilt, wheel)
    except RuntimeError as error:
        print(f"{error}. Add these files to git, or remove them.", file=sys.stderr)
        return 1
    for file in (wheel, prebuilt):
        print(f"{file.name}: {len(wheel_files(file))} files, {file.stat().st_size / 1e6:.2f} MB")
    print(f"{sdist.name}: {len(sdist_files(sdist))} files, {sdist.stat().st_size / 1e6:.2f} MB", flush=True)
    failed = []
    for number in options.pythons or PYTHONS:
        python = find_python(number)
        if python is None:
            print(f"Python {number}: not here", flush=True)
            failed += [f"Python {number}"] if options.pythons else []
            continue
        for extra in options.extras:
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="jaxworlds-release-") as folder:
                try:
                    which = prebuilt if extra == "prebuilt" else wheel
                    told = try_out(python, number, extra, which, sdist, Path(folder) / "venv")
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    failed.append(f"{extra} on Python {number}")
                    told = f"FAILED: {error}"
            print(f"{extra:<7} {told} in {time.monotonic() - began:.0f} s", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "The release works.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

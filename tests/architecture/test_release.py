"""What is released: one version, all files that are needed, type information, a citation. `make release` tries it out."""

import importlib
import importlib.util
import platform
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import release

import jaxworlds

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONSTRAINTS = sorted((ROOT / "constraints").glob("python-3.*.txt"))
# Files that no import asks for: without one of them something fails only when it is used.
DATA = {
    "jaxworlds/kernels/native.h",
    "jaxworlds/commands/demo_page.html",
    "jaxarc/kernels/native.cc",
    "jaxarc/conf/config.yaml",
    "jaxarc/conf/environment/official.yaml",
    "jaxarc/utils/visualization/replay_page.html",
    "jaxtrace/kernels/native.cc",
    "jaxtrace/visualization/player_page.html",
    "acbo/surrogate/pretrained/default.safetensors",
    "acbo/policy/pretrained/default.safetensors",
    *(f"{package}/py.typed" for package in release.PACKAGES),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release.build("wheel", tmp_path_factory.mktemp("wheel"))


def test_the_version_stands_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    written = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "src").rglob("*.py")
        if re.search(rf"['\"]{re.escape(jaxworlds.__version__)}['\"]", file.read_text())
    ]
    assert written == [PROJECT["tool"]["hatch"]["version"]["path"]] == ["src/jaxworlds/_version.py"]
    for package in release.PACKAGES:
        assert importlib.import_module(package).__version__ == jaxworlds.__version__ == release.version()


@pytest.mark.parametrize("program", release.PACKAGES)
def test_a_command_tells_its_version(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module(f"{program}.cli").main
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{program} {jaxworlds.__version__}\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--version" in capsys.readouterr().out


def test_the_wheel_is_pure_unless_kernels_are_asked_for(wheel: Path) -> None:
    assert wheel.name == f"jaxworlds-{jaxworlds.__version__}-py3-none-any.whl"
    assert not any("prebuilt/" in name or name.endswith(".so") for name in release.wheel_files(wheel))


def test_the_wheel_holds_what_is_needed(wheel: Path) -> None:
    packed = {name for name in release.wheel_files(wheel) if ".dist-info/" not in name}
    sources = {str(file.relative_to(ROOT / "src")) for file in (ROOT / "src").rglob("*.py")}
    assert packed >= sources | DATA
    assert {Path(name).suffix for name in packed - sources} <= {
        ".cc",
        ".h",
        ".html",
        ".safetensors",
        ".typed",
        ".yaml",
        "",
    }
    assert {name.partition("/")[0] for name in packed} == set(release.PACKAGES)


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    found = release.wheel_metadata(wheel)
    assert found["Name"] == "jaxworlds"
    assert found["Version"] == jaxworlds.__version__
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Author"] == "The jaxworlds authors"
    assert set(found.get_all("Provides-Extra", [])) == {*release.EXTRAS, "dev"} - {"core", "prebuilt"}
    assert "Typing :: Typed" in found.get_all("Classifier", [])
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        licence = archive.read(f"{folder}/licenses/LICENSE").decode()
        scripts = archive.read(f"{folder}/entry_points.txt").decode()
    assert licence == (ROOT / "LICENSE").read_text()
    assert all(f"{program} = {program}.cli:main" in scripts for program in release.PACKAGES)


def test_a_file_that_is_missing_or_too_much_is_found(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = {f"src/{name}" for name in release.wheel_files(wheel) if ".dist-info/" not in name}
    monkeypatch.setattr(release, "sdist_files", lambda sdist: {*release.tracked_files(), "PKG-INFO"})
    monkeypatch.setattr(release, "tracked_files", lambda: inside)
    release.judge_files(wheel, tmp_path)
    for odd in (inside | {"src/acbo/forgotten.json"}, inside - {"src/jaxworlds/kernels/native.h"}):
        monkeypatch.setattr(release, "tracked_files", lambda odd=odd: odd)
        with pytest.raises(RuntimeError, match=r"the wheel and the tree differ: \['(acbo|jaxworlds)/"):
            release.judge_files(wheel, tmp_path)
    monkeypatch.setattr(release, "tracked_files", lambda: inside)
    monkeypatch.setattr(release, "sdist_files", lambda sdist: {*inside, "notes.txt"})
    with pytest.raises(RuntimeError, match=r"the sdist and the tree differ: \['notes.txt'\]"):
        release.judge_files(wheel, tmp_path)


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook that adds kernels to a wheel."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


needs_tools = pytest.mark.skipif(
    platform.machine() != "x86_64" or not all(map(shutil.which, ("g++", "objdump"))),
    reason="prebuilt kernels need g++ and objdump on x86-64",
)


@needs_tools
def test_a_prebuilt_library_asks_for_no_more_than_the_tag_says(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jaxarc.kernels import native

    library = tmp_path / "kernels.so"
    hook.compile_library(native.SOURCE, native.MACROS, "x86-64-v2+avx", library)
    hook.demand_portable(library)
    assert hook.TAG == "py3-none-manylinux_2_17_x86_64"
    monkeypatch.setattr(hook, "GLIBC", (2, 1))
    with pytest.raises(RuntimeError, match=r"kernels.so asks for .* and glibc 2\.\d.*promises less"):
        hook.demand_portable(library)
    monkeypatch.undo()
    (tmp_path / "more.cc").write_text(
        "#include <string>\nstd::string twice(std::string x) { return x + x; }\n"
    )
    command = ["g++", "-shared", "-fPIC", "-Wl,--no-as-needed", str(tmp_path / "more.cc"), "-o", str(library)]
    subprocess.run(command, check=True)
    with pytest.raises(RuntimeError, match=r"'libstdc\+\+\.so\.6'"):
        hook.demand_portable(library)


def test_kernels_are_prebuilt_with_the_oldest_jax_alone(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    monkeypatch.setattr(hook.platform, "system", lambda: "Linux")
    monkeypatch.setattr(hook.platform, "machine", lambda: "x86_64")
    asked = PROJECT["project"]["dependencies"]
    (oldest,) = [line.removeprefix("jax>=") for line in asked if line.startswith("jax>=")]
    monkeypatch.setattr(jax, "__version__", f"{oldest}.1")
    hook.demand_oldest_jax(asked)
    for newer in (f"{oldest}0.1", "99.0"):
        monkeypatch.setattr(jax, "__version__", newer)
        with pytest.raises(RuntimeError, match=f"needs jax {oldest}, the oldest .*; got {newer}"):
            hook.demand_oldest_jax(asked)
    monkeypatch.setattr(jax, "__version__", oldest)
    monkeypatch.setattr(hook.platform, "machine", lambda: "aarch64")
    with pytest.raises(RuntimeError, match="needs Linux on x86-64; got Linux, aarch64"):
        hook.demand_oldest_jax(asked)


def test_the_prebuilt_wheel_is_the_pure_one_with_libraries(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pure = release.wheel_files(wheel)
    libraries = {f"jaxtrace/kernels/prebuilt/{n}.so": "" for n in range(9)}
    info = {name: "" for name in pure if name.endswith((".dist-info/RECORD", ".dist-info/WHEEL"))}
    assert len(info) == 2
    for odd, right in (({}, True), ({"acbo/more.so": ""}, False), ({"acbo/__init__.py": "other"}, False)):
        found = {wheel: pure, tmp_path: {**pure, **libraries, **info, **odd}}
        monkeypatch.setattr(release, "wheel_files", found.__getitem__)
        if right:
            release.judge_prebuilt(tmp_path, wheel)
        else:
            with pytest.raises(RuntimeError, match="is not the pure one with libraries"):
                release.judge_prebuilt(tmp_path, wheel)


def test_no_library_is_in_git() -> None:
    assert not [name for name in release.tracked_files() if name.endswith(".so") or "/prebuilt/" in name]


def test_the_citation_is_of_this_version() -> None:
    import yaml

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == jaxworlds.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["keywords"] == PROJECT["project"]["keywords"]
    assert [author["name"] for author in citation["authors"]] == ["The jaxworlds authors"]
    assert {"cff-version", "message", "title", "type"} <= set(citation)


def test_every_dependency_has_a_tested_version() -> None:
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    asked += [line for lines in PROJECT["project"]["optional-dependencies"].values() for line in lines]
    names = {re.split(r"[\[<>=;~! ]", line)[0].lower() for line in asked} - {"jaxworlds"}
    assert len(CONSTRAINTS) == len(release.PYTHONS)
    for file in CONSTRAINTS:
        pinned = {line.partition("==")[0].lower() for line in file.read_text().splitlines()}
        assert names <= pinned, f"{file.name} lacks {sorted(names - pinned)}"


def test_line_ends_are_those_of_unix_on_every_machine(tmp_path: Path) -> None:
    """`.gitattributes` in a repository of its own, where git would otherwise give scripts the line ends of Windows."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "core.autocrlf=true",
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@x",
    ]
    (tmp_path / ".gitattributes").write_bytes((ROOT / ".gitattributes").read_bytes())
    texts = {"run.sh": b"a\nb\n", "native.cc": b"a\n", "page.md": b"a\r\nb\r\n"}
    data = {"weights.safetensors": b"\x00\r\n\x00", "picture.png": b"a\r\nb\n", "array.npz": b"\r\n"}
    for name, content in (texts | data).items():
        (tmp_path / name).write_bytes(content)
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True, capture_output=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    for name in texts | data:
        (tmp_path / name).unlink()
    subprocess.run([*git, "checkout", "-q", "."], check=True)
    for name, content in texts.items():
        assert (tmp_path / name).read_bytes() == content.replace(b"\r\n", b"\n"), name
    for name, content in data.items():
        assert (tmp_path / name).read_bytes() == content, name
    assert ".gitattributes" in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    for folder in ("src", "tests", "docs", "examples"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".py", ".sh", ".md", ".cc", ".html") and file.is_file():
                assert b"\r\n" not in file.read_bytes(), file


def test_metadata_and_citation_name_one_address_or_none() -> None:
    """There is none yet; whoever adds one adds it in both places."""
    found = re.search(
        r"^repository-code: *[\"']?([^\"'\s]+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE
    )
    urls = PROJECT["project"].get("urls", {})
    assert (found is None) == (not urls)
    if found is not None:
        assert found[1] in urls.values()
        assert all(url.startswith("https://") for url in urls.values())

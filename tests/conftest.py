"""Settings every test shares: the simulated devices, the compilation cache, and the jaxtyping hook of pyproject.

`JAXWORLDS_TEST_DEVICES=8` runs the same tests on eight simulated CPU devices; the default is one.
`JAXWORLDS_TEST_THOROUGH=1` runs what `thorough.txt` names as well, and compiles everything as users do.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

DEVICES = int(os.environ.get("JAXWORLDS_TEST_DEVICES", "1"))
THOROUGH = os.environ.get("JAXWORLDS_TEST_THOROUGH", "") not in ("", "0")
ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAXWORLDS_CACHE_DIR", str(ROOT / ".jax_cache"))
if DEVICES == 1 and not THOROUGH:
    # XLA's older code generator compiles in half the time of the newer, which `make unit8` and `make thorough` use.
    older = "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters"
    given = os.environ.get("XLA_FLAGS", "").replace(older, "")
    os.environ["XLA_FLAGS"] = f"{given} {older}".strip()

import jax

from jaxworlds.runtime import configure

jax.config.update("jax_num_cpu_devices", DEVICES)
configure(cache_dir="auto")
# Tracing makes objects by the hundred thousand; looking through all of them so often takes a tenth of the time.
gc.freeze()
gc.set_threshold(100_000, 20, 50)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `thorough.txt` names, unless it was asked for, all of it or one by one."""
    if DEVICES > 1:
        # What acbo learns is tested on one device; here it is asked whether several agree with one.
        alone = [
            item
            for item in items
            if item.path.name.startswith("test_acbo_") and "devices" not in getattr(item, "fixturenames", ())
        ]
        config.hook.pytest_deselected(items=alone)
        items[:] = [item for item in items if item not in alone]
    lines = (ROOT / "tests" / "thorough.txt").read_text().splitlines()
    named = {line for line in lines if line and not line.startswith("#")}
    if THOROUGH or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if {item.nodeid, item.nodeid.split("[")[0]} & named]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="module")
def quick_compile() -> Iterator[None]:
    """Programs compiled without most optimizations, in less than half the time: for tests of what comes out."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()  # hundreds of programs otherwise stay in the worker, gigabytes in the end
    gc.collect()


@pytest.fixture
def devices() -> list[jax.Device]:
    """The simulated devices of this run: one, or eight."""
    found = jax.devices()
    assert len(found) == DEVICES
    return found

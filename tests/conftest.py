"""Settings every test shares: the simulated devices, the compilation cache, and the jaxtyping hook of pyproject.

`JAXWORLDS_TEST_DEVICES=8` runs the same tests on eight simulated CPU devices; the default is one.
`JAXWORLDS_TEST_AS_USERS=1` compiles everything as users do, and tries fewer examples of each law (`make asusers`).
`JAXWORLDS_TEST_THOROUGH=1` runs what `thorough.txt` names as well, and compiles everything as users do.
"""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

EXAMPLES = 20  # the most of each law in `make asusers`; `make thorough` tries as many as the law asks for
DEVICES = int(os.environ.get("JAXWORLDS_TEST_DEVICES", "1"))
THOROUGH = os.environ.get("JAXWORLDS_TEST_THOROUGH", "") not in ("", "0")
AS_USERS = os.environ.get("JAXWORLDS_TEST_AS_USERS", "") not in ("", "0")
ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAXWORLDS_CACHE_DIR", str(ROOT / ".jax_cache"))
# Where the secret of processes on one machine lies: not in the home of who runs the tests.
os.environ.setdefault("XDG_STATE_HOME", os.environ["JAXWORLDS_CACHE_DIR"])
if not (THOROUGH or AS_USERS):
    # XLA's older code generator compiles in half the time of the newer; without most optimizations, in a quarter of that,
    # here and in the processes that tests start. `make unit8` optimizes; `make asusers` and `make thorough` compile as users do.
    quick = ["--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters"]
    if DEVICES == 1:
        quick += ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
    given = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag not in quick]
    os.environ["XLA_FLAGS"] = " ".join([*given, *quick])

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts jobs in the background so, and all their children: Ctrl-C could not be tested there.
    signal.signal(signal.SIGINT, signal.default_int_handler)

import jax

from jaxworlds.runtime import configure

jax.config.update("jax_num_cpu_devices", DEVICES)
configure(cache_dir="auto")
# Tracing makes objects by the hundred thousand; looking through all of them so often takes a tenth of the time.
gc.set_threshold(100_000, 20, 50)


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later collection: a million objects that stay."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `thorough.txt` names, unless it was asked for, all of it or one by one."""
    if AS_USERS and not THOROUGH:
        for item in items:
            try_fewer_examples(item)
    lines = (ROOT / "tests" / "thorough.txt").read_text().splitlines()
    named = {line for line in lines if line and not line.startswith("#")}
    if THOROUGH or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if {item.nodeid, item.nodeid.split("[")[0]} & named]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def try_fewer_examples(item: pytest.Item) -> None:
    """At most `EXAMPLES` of a law. Hypothesis has no profile for that: settings written at a test win over it."""
    law = getattr(item, "obj", None)
    asked = getattr(law, "_hypothesis_internal_use_settings", None)
    if asked is not None and asked.max_examples > EXAMPLES:
        law._hypothesis_internal_use_settings = hypothesis.settings(asked, max_examples=EXAMPLES)


@pytest.fixture(scope="module")
def quick_compile() -> Iterator[None]:
    """Programs compiled without most optimizations, in less than half the time: for tests of what comes out."""
    jax.config.update("jax_disable_most_optimizations", not (THOROUGH or AS_USERS))
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()  # hundreds of programs otherwise stay in the worker, gigabytes in the end
    gc.collect()
    gc.freeze()


@pytest.fixture
def devices() -> list[jax.Device]:
    """The simulated devices of this run: one, or eight."""
    found = jax.devices()
    assert len(found) == DEVICES
    return found

"""Where the bytes go: the state, its history, the tasks that all environments share, and a file on disk.

Sizes come from shapes (`jax.eval_shape`) and from live arrays, both exact; the memory of the process says neither.
"""

import tempfile
from pathlib import Path

import jax
import jax.random as jr

import jaxarc.tasks
from jaxarc.envs import (
    EnvironmentConfig,
    JaxArcConfig,
    UnifiedActionConfig,
    arc_reset,
    load_state_efficiently,
    save_state_efficiently,
    state_bytes,
)
from jaxarc.performance import (
    TARGET_MEMORY_REDUCTION,
    analyze_memory_usage_by_format,
    create_memory_optimized_config,
    profile_memory_usage,
)


def bytes_of(config: JaxArcConfig, bank) -> int:
    """Bytes of one environment's state, from shapes alone: nothing is compiled and nothing is run."""
    state, _ = jax.eval_shape(lambda key, bank: arc_reset(key, config, bank), jr.key(0), bank)
    own = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return own - sum(leaf.nbytes for leaf in jax.tree.leaves(bank))


def main() -> None:
    tasks = jaxarc.tasks.load("arc-agi-1", "training")
    bank = tasks.bank

    print("The action history of 1,000 steps, by format:")
    usage = analyze_memory_usage_by_format()
    assert (
        usage["point"]["action_history_mb"]
        < (1 - TARGET_MEMORY_REDUCTION) * usage["mask"]["action_history_mb"]
    )

    print("\nOne environment at 30×30, 100 steps, the bank not counted:")
    sizes = {}
    for name in ("point", "bbox", "mask", "off"):
        action = (
            UnifiedActionConfig(history=False)
            if name == "off"
            else UnifiedActionConfig(selection_format=name)
        )
        sizes[name] = bytes_of(JaxArcConfig(EnvironmentConfig(max_episode_steps=100), action=action), bank)
        print(f"  history {name:5} {sizes[name]:6,} bytes")
    assert sizes["off"] <= 2_500
    assert sizes["point"] <= 3_000

    print(f"\nAll {len(tasks)} tasks, once for any number of environments: {bank.nbytes / 1e6:.2f} MB")
    copied = 1024 * bank.nbytes
    print(f"  a copy in each of 1,024 states would be {copied / 1e9:.1f} GB; the states are "
          f"{1024 * sizes['point'] / 1e6:.1f} MB")  # fmt: skip

    print("\nBatches on a canvas of 15×15, states and observations:")
    small = create_memory_optimized_config()
    puzzles = tasks.fits(15, 15)
    profile = profile_memory_usage(small, puzzles, batch_sizes=[64])
    state, obs = arc_reset(jr.key(0), small, puzzles)
    seen = sum(leaf.nbytes for leaf in jax.tree.leaves(obs))
    # Sixty-four times one environment, to the byte: the puzzles are not in it.
    assert round(profile[64]["total_memory_mb"] * 1e6) == 64 * (state_bytes(state) + seen)

    print("\nA state on disk:")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.jxw"
        save_state_efficiently(state, file)
        held = state_bytes(state) + puzzles.bank.nbytes
        print(f"  {file.stat().st_size:,} bytes for a state that holds {held:,} with its tasks")
        assert file.stat().st_size < held / 10
        again = load_state_efficiently(file, puzzles, arc_reset(jr.key(1), small, puzzles)[0])
    assert (again.working_grid == state.working_grid).all()
    assert jax.tree.all(
        jax.tree.map(lambda own, all_of: (own == all_of).all(), again.task_data, puzzles.bank)
    )


if __name__ == "__main__":
    main()

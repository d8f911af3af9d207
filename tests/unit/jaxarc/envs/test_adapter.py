"""Settings from dictionaries, YAML and Hydra: every key arrives and changes something, wrong ones are named."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxarc.envs import BboxAction, JaxArcConfig, PointAction, arc_reset, arc_step, official
from jaxarc.envs._settings import setting_paths
from jaxarc.envs.adapter import CONF, config_from_dict, config_from_hydra, config_from_yaml, config_to_dict
from jaxarc.envs.rewards import step_cost
from jaxarc.tasks import create_jax_task_from_data
from jaxworlds.checking import CheckError

pytestmark = pytest.mark.usefixtures("quick_compile")


def brighter(grid: Any, selection: Any) -> Any:
    """The next colour where selected."""
    return grid + selection


# A value other than the default for every key, and the test of what the key does.
KEYS: dict[str, tuple[Any, str]] = {
    "environment.max_episode_steps": (4, "test_the_episode"),
    "environment.debug_level": ("minimal", "test_checks"),
    "environment.max_attempts": (2, "test_the_reward"),
    "environment.autoreset": ("same", "test_pairs_and_autoreset"),
    "environment.episode_mode": ("test", "test_the_canvas_and_the_mode"),
    "environment.solve": ("all", "test_pairs_and_autoreset"),
    "dataset.max_grid_height": (6, "test_the_canvas_and_the_mode"),
    "dataset.max_grid_width": (7, "test_the_canvas_and_the_mode"),
    "action.selection_format": ("bbox", "test_the_episode"),
    "action.allowed_operations": ([1, 2, 34], "test_the_episode"),
    "action.control_operations": (True, "test_pairs_and_autoreset"),
    "action.history": (False, "test_pairs_and_autoreset"),
    "action.extra_operations": ([f"{__name__}.brighter"], "test_an_operation_by_its_name"),
    "action.rotation": ("center", "test_a_rotation_about_the_center"),
    "reward.similarity": (2.0, "test_the_reward"),
    "reward.success": (5.0, "test_the_reward"),
    "reward.step_penalty": (0.5, "test_the_reward"),
    "reward.submission_penalty": (3.0, "test_the_reward"),
    "reward.extra": ([{"term": "jaxarc.envs.rewards.step_cost", "weight": 100.0}], "test_the_reward"),
    "observation.format": ("onehot", "test_what_is_seen"),
    "observation.input": (False, "test_what_is_seen"),
    "observation.clipboard": (False, "test_what_is_seen"),
    "observation.demonstrations": (True, "test_what_is_seen"),
    # What these do is tested with `VisualizationSession`; here, that they arrive.
    "visualization.enabled": (True, "test_every_key_arrives"),
    "visualization.debug.level": ("verbose", "test_every_key_arrives"),
    "visualization.debug.async_logging": (False, "test_every_key_arrives"),
    "visualization.debug.performance_monitoring": (False, "test_every_key_arrives"),
    "visualization.debug.memory_management.max_cache_mb": (1.0, "test_every_key_arrives"),
    "visualization.debug.memory_management.max_total_mb": (2.0, "test_every_key_arrives"),
    "visualization.debug.memory_management.lazy_loading": (False, "test_every_key_arrives"),
    "visualization.debug.memory_management.compression": (False, "test_every_key_arrives"),
}
SMALL = {"dataset.max_grid_height": 6, "dataset.max_grid_width": 7}
SWAP = {"input": [[1, 2]], "output": [[2, 1]]}
TASK = create_jax_task_from_data({"train": [SWAP, SWAP], "test": [SWAP]})
SUBMIT, NEXT = 34, 35
PLAY = (
    *("environment.max_episode_steps", "environment.max_attempts"),
    *("action.selection_format", "action.allowed_operations"),
    *(path for path in KEYS if path.startswith("reward.")),
)


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *groups, key = path.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
        place[key] = value
    return tree


def flat(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return found


def config_of(*paths: str, **more: Any) -> JaxArcConfig:
    """A small config with the values of `KEYS` at these paths."""
    return config_from_dict(nested({**SMALL, **{path: KEYS[path][0] for path in paths}, **more}))


def episode(config: JaxArcConfig, *actions: tuple[int, int]) -> tuple[Any, list[float], dict[str, list[Any]]]:
    """The state after some actions, each an operation on one column of row 0; rewards; and what `info` said."""
    state, _ = arc_reset(jax.random.key(0), config, TASK, initial_pair_idx=0)
    rewards: list[float] = []
    said: dict[str, list[Any]] = {}
    for operation, col in actions:
        state, _, reward, _, info = arc_step(state, PointAction(operation, 0, col), config)
        rewards.append(float(reward))
        for name in ("valid_action", "terminated", "truncated", "success"):
            said.setdefault(name, []).append(bool(info[name]))
    return state, rewards, said


def test_the_table_names_every_key_and_a_test_of_it() -> None:
    paths = list(setting_paths(JaxArcConfig, ""))
    leaves = {path for path in paths if not any(other.startswith(f"{path}.") for other in paths)}
    assert set(KEYS) == leaves == set(flat(config_to_dict(JaxArcConfig())))
    assert all(callable(globals()[test]) for _, test in KEYS.values())


@pytest.mark.parametrize("path", KEYS)
def test_every_key_arrives(path: str, tmp_path: Path) -> None:
    value, _ = KEYS[path]
    needed = {"action.control_operations": True} if path == "environment.solve" else {}
    config = config_from_dict(nested({path: value, **needed}))
    default = config_from_dict(nested(needed)) if needed else JaxArcConfig()
    old, new = flat(config_to_dict(default)), flat(config_to_dict(config))
    implied = {"visualization.enabled"} if path.startswith("visualization.debug") else set()
    assert {key for key in new if new[key] != old[key]} == {path, *implied}
    assert new[path] == value
    assert config_from_dict(config_to_dict(config)) == config
    file = tmp_path / "all.yaml"
    omegaconf = pytest.importorskip("omegaconf")
    omegaconf.OmegaConf.save(omegaconf.OmegaConf.create(config_to_dict(config)), file)
    assert config_from_yaml(file) == config


def test_the_episode() -> None:
    state, _, said = episode(config_of(*PLAY), (0, 0), (1, 0), (1, 1), (1, 0))
    assert said["valid_action"] == [False, True, True, True]  # filling with 0 is not allowed
    assert said["truncated"] == [False, False, False, True]
    assert state.action_history.words.shape == (4, 2)  # two words for a box, one for a point


def test_an_operation_by_its_name() -> None:
    state, _, said = episode(config_of("action.extra_operations"), (7, 1), (42, 1), (43, 1))
    assert said["valid_action"] == [True, True, False]
    assert int(state.working_grid[0, 1]) == 8


def test_a_rotation_about_the_center() -> None:
    """A row of two cells turned about its corner loses one; about its center it does not fit into the grid."""
    for paths, valid, width in (((), True, 1), (("action.rotation",), False, 2)):
        config = config_of(*paths)
        state, _ = arc_reset(jax.random.key(0), config, TASK, initial_pair_idx=0)
        state, *_, info = arc_step(state, BboxAction(24, 0, 0, 0, 1), config)
        assert (bool(info["valid_action"]), int(jnp.sum(state.working_grid > 0))) == (valid, width)


def test_the_reward() -> None:
    config = config_of(*PLAY)
    assert config.reward.extra == ((step_cost, 100.0),)
    _, rewards, said = episode(config, (SUBMIT, 0), (2, 0), (1, 1), (SUBMIT, 0))
    assert (
        said["terminated"] == said["success"] == [False, False, False, True]
    )  # one of two attempts was wrong
    always = 100.0 - 0.5
    gain = 2.0 * 0.5  # each of the two cells is half of the answer
    np.testing.assert_allclose(rewards, [always - 3.0, always + gain, always + gain, always + 5.0], rtol=1e-6)


def test_pairs_and_autoreset() -> None:
    chosen = ("environment.autoreset", "environment.solve", "action.control_operations", "action.history")
    state, _, said = episode(config_of(*chosen), (2, 0), (1, 1), (SUBMIT, 0), (NEXT, 0))
    assert (said["valid_action"], said["terminated"]) == (
        [True] * 4,
        [False] * 4,
    )  # one of two pairs is solved
    assert (int(state.pair_index), state.solved[0].tolist()) == (1, [True, False])
    assert (state.action_history.nbytes, int(state.action_history.length)) == (0, 4)
    state, _, _, done, _ = arc_step(state, PointAction(SUBMIT, 0, 0), config_of(*chosen))
    assert (bool(done), int(state.step_count), int(state.pair_index)) == (
        True,
        0,
        0,
    )  # where the episode began


def test_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EQX_ON_ERROR", raising=False)
    with pytest.raises(CheckError, match="operation"):
        episode(config_of("environment.debug_level"), (99, 0))
    assert config_from_dict({"environment": {"debug_level": False}}).environment.debug_level == "off"


def test_the_canvas_and_the_mode() -> None:
    state, seen = arc_reset(jax.random.key(0), config_of("environment.episode_mode"), TASK)
    assert state.working_grid.shape == seen.grid.shape == (6, 7)
    assert int(state.episode_mode) == 1


def test_what_is_seen() -> None:
    plain = config_of()
    _, seen = arc_reset(jax.random.key(0), plain, TASK)
    assert (seen.grid.shape, seen.grid.dtype, seen.demonstrations) == ((6, 7), jnp.int8, None)
    assert seen.input is not None
    assert seen.clipboard is not None
    config = config_of(*(path for path in KEYS if path.startswith("observation.")))
    _, seen = arc_reset(jax.random.key(0), config, TASK)
    assert (seen.grid.shape, seen.grid.dtype) == ((10, 6, 7), jnp.bool_)
    assert (seen.input, seen.clipboard) == (None, None)
    assert seen.demonstrations.inputs.shape == (2, 10, 6, 7)


def test_the_guides_file_is_the_visualization_group(tmp_path: Path) -> None:
    pytest.importorskip("omegaconf")
    file = tmp_path / "conf" / "visualization" / "debug_standard.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(
        "debug:\n  level: 'standard'\n  async_logging: true\n  performance_monitoring: true\n  memory_management:\n"
        "    max_cache_mb: 100.0\n    max_total_mb: 500.0\n    lazy_loading: true\n    compression: true\n"
    )
    config = config_from_yaml(file)
    assert config == config_from_yaml(tmp_path / "conf", "visualization/debug_standard")
    assert config.visualization == config_from_yaml(CONF, "visualization/debug_standard").visualization
    assert config.visualization.enabled  # the guide's file has no `enabled` and is there to show something
    assert config.visualization.debug.memory_management.max_total_mb == 500.0
    changed = config_from_yaml(file, overrides=["visualization.debug.memory_management.max_cache_mb=7"])
    assert changed.visualization.debug.memory_management.max_cache_mb == 7.0
    file.write_text("debug:\n  level: off\n")  # a false for YAML
    assert (
        config_from_yaml(file).visualization.enabled,
        config_from_yaml(file).visualization.debug.level,
    ) == (
        False,
        "off",
    )


def test_our_folder_composes_with_hydra() -> None:
    hydra = pytest.importorskip("hydra")
    with hydra.initialize_config_module("jaxarc.conf", version_base="1.3"):
        composed = hydra.compose("config")
        chosen = hydra.compose(
            "config", ["visualization=debug_research", "environment.max_episode_steps=50", "dataset=mini"]
        )
        rules = hydra.compose("config", ["environment=official", "reward=sparse"])
    assert config_from_hydra(composed) == JaxArcConfig() == config_from_yaml()
    config = config_from_hydra(chosen)
    assert (config.visualization.enabled, config.visualization.debug.level) == (True, "research")
    assert (config.environment.max_episode_steps, config.canvas) == (50, (5, 5))
    assert config_from_hydra(rules) == official()
    assert config_from_yaml(overrides=["environment=official", "reward=sparse"]) == official()


@pytest.mark.parametrize("level", ["off", "minimal", "standard", "verbose", "research"])
def test_each_level_has_a_file(level: str) -> None:
    pytest.importorskip("hydra")
    shown = config_from_yaml(overrides=[f"visualization=debug_{level}"]).visualization
    assert (shown.debug.level, shown.enabled) == (level, level != "off")


def test_every_file_of_ours_names_every_key() -> None:
    """Hydra changes only keys that are there; a file that leaves one out would make it unreachable."""
    omegaconf = pytest.importorskip("omegaconf")
    default = config_to_dict(JaxArcConfig())
    files = [file for file in CONF.rglob("*.yaml") if file.parent != CONF]
    assert len(files) >= 11
    for file in files:
        content = omegaconf.OmegaConf.to_container(omegaconf.OmegaConf.load(file))
        assert set(flat(content)) == set(flat(default[file.parent.name])), file
        assert config_from_yaml(file)


def test_a_folder_of_the_users_can_build_on_ours(tmp_path: Path) -> None:
    pytest.importorskip("hydra")
    (tmp_path / "action").mkdir()
    (tmp_path / "action" / "painting.yaml").write_text("allowed_operations: [0, 1, 33, 34]\n")
    (tmp_path / "config.yaml").write_text(
        "defaults:\n  - environment: training\n  - action: painting\n  - _self_\n"
        "hydra:\n  searchpath:\n    - pkg://jaxarc.conf\nenvironment:\n  max_episode_steps: 20\n"
    )
    config = config_from_yaml(tmp_path)
    assert config.action.allowed_operations == (0, 1, 33, 34)
    assert (config.environment.autoreset, config.environment.max_episode_steps) == ("task", 20)
    assert config.dataset == JaxArcConfig().dataset


def test_interpolations_and_missing_values() -> None:
    omegaconf = pytest.importorskip("omegaconf")
    made = omegaconf.OmegaConf.create(
        {"dataset": {"max_grid_height": 12, "max_grid_width": "${.max_grid_height}"}}
    )
    assert config_from_hydra(made).canvas == (12, 12)
    with pytest.raises(omegaconf.errors.MissingMandatoryValue):
        config_from_hydra(omegaconf.OmegaConf.create({"dataset": {"max_grid_height": "???"}}))
    with pytest.raises(TypeError, match="`config_from_dict`"):
        config_from_hydra({"dataset": {}})


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"environment": {"max_episode_step": 3}}, ValueError, "Did you mean `environment.max_episode_steps`"),
    ({"dataset": {"autoreset": "pair"}}, ValueError, "Did you mean `environment.autoreset`"),
    ({"enviroment": {}}, ValueError, "`enviroment` is no setting.*Did you mean `environment`"),
    ({"visualization": {"debug": {"levl": 1}}}, ValueError, "Did you mean `visualization.debug.level`"),
    ({"environment": 3}, TypeError, r"`environment` must be a mapping.*got 3 \(int\)"),
    (
        {"environment": {"max_episode_steps": "50"}},
        TypeError,
        "`environment.max_episode_steps` must be an integer",
    ),
    (
        {"environment": {"max_episode_steps": True}},
        TypeError,
        "`environment.max_episode_steps` must be an integer",
    ),
    ({"environment": {"max_episode_steps": 0}}, ValueError, "In `environment`: `max_episode_steps` must be"),
    (
        {"environment": {"autoreset": "tasks"}},
        TypeError,
        "`environment.autoreset` must be.*Did you mean 'task'",
    ),
    ({"environment": {"debug_level": "loud"}}, ValueError, "In `environment`: `debug_level`"),
    ({"action": {"history": 1}}, TypeError, "`action.history` must be true or false; got 1"),
    ({"action": {"allowed_operations": [1, "2"]}}, TypeError, "`action.allowed_operations` must be a list"),
    ({"reward": {"success": "much"}}, TypeError, "`reward.success` must be a number"),
    ({"reward": {"extra": {}}}, TypeError, "`reward.extra` must be a list"),
    (
        {"reward": {"extra": [{"term": "os.path"}]}},
        TypeError,
        r"`reward.extra\[0\]` must have the keys term and",
    ),
    ({"reward": {"extra": [{"term": "os.path.no", "weight": 1}]}}, ValueError, r"`reward.extra\[0\].term`"),
    ({"reward": {"extra": [{"term": "os.name", "weight": 1}]}}, TypeError, "must name a function"),
    ({"reward": {"extra": [{"term": "tidy", "weight": 1}]}}, TypeError, "must be a function's name"),
    ({"reward": {"extra": [{"term": len, "weight": "1"}]}}, TypeError, r"`reward.extra\[0\].weight`"),
    ({"environment": {"solve": "all"}}, ValueError, "`solve='all'` needs"),
]


@pytest.mark.parametrize(("mapping", "error", "says"), WRONG, ids=[says for *_, says in WRONG])
def test_wrong_settings_are_named_by_path(mapping: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        config_from_dict(mapping)


def test_wrong_files_and_overrides_are_named(tmp_path: Path) -> None:
    pytest.importorskip("omegaconf")
    file = tmp_path / "all.yaml"
    file.write_text("environment:\n  max_steps: 3\n")
    with pytest.raises(ValueError, match=r"all.yaml: `environment.max_steps` is no setting"):
        config_from_yaml(file)
    with pytest.raises(ValueError, match=r"Did you mean `environment.max_episode_steps`"):
        config_from_yaml(overrides=["environment.max_episode_stps=3"])
    with pytest.raises(ValueError, match="must hold assignments"):
        config_from_yaml(overrides=["environment"])
    with pytest.raises(TypeError, match="`overrides` must be a list"):
        config_from_yaml(overrides="environment.max_episode_steps=3")
    with pytest.raises(FileNotFoundError, match=r"visualization/debug_standard.*got 'debug'"):
        config_from_yaml(CONF, "debug")
    with pytest.raises(FileNotFoundError, match="`path` must be a YAML file"):
        config_from_yaml(tmp_path / "absent.yaml")
    file.write_text("- 1\n")
    with pytest.raises(TypeError, match="must hold a mapping"):
        config_from_yaml(file)


def test_a_term_without_a_name_cannot_be_written() -> None:
    config = config_from_dict({"reward": {"extra": [{"term": lambda t: t.similarity_after, "weight": 1.0}]}})
    with pytest.raises(ValueError, match=r"`reward.extra` must hold functions that can be imported"):
        config_to_dict(config)


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "omegaconf", None)
        with pytest.raises(ImportError, match=r"pip install 'jaxworlds\[arc\]'"):
            config_from_yaml()
    pytest.importorskip("omegaconf")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "hydra", None)
        with pytest.raises(ImportError, match=r"Hydra composes. Run `pip install 'jaxworlds\[arc\]'`"):
            config_from_yaml()

"""A policy in safetensors, as for the surrogate: named arrays with the settings and the story of their making."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr

from acbo.surrogate.weights import config_of, read_arrays, read_metadata, write_arrays

from .network import PolicyNetwork
from .settings import PolicyConfig
from .strategy import Policy

FORMAT = "acbo-policy-1"


def save_policy(
    path: str | Path, policy: Policy | PolicyNetwork, metadata: Mapping[str, Any] | None = None
) -> Path:
    """Write a policy to one file, whole or not at all; `metadata` (texts and numbers) says how it was made."""
    network = policy.network if isinstance(policy, Policy) else policy
    return write_arrays(path, network, FORMAT, network.config, metadata)


def load_policy(path: str | Path, temperature: float = 0.0, precision: str = "float32") -> Policy:
    """The policy in a file of `save_policy`."""
    config = config_of(path, PolicyConfig, policy_metadata(path), precision=precision)
    like = eqx.filter_eval_shape(lambda: PolicyNetwork(config, key=jr.key(0)))
    return Policy(read_arrays(path, like), temperature)


def policy_metadata(path: str | Path) -> dict[str, Any]:
    """What a file of weights says about itself: `format`, `config` and `metadata`."""
    return read_metadata(path, FORMAT)


def pretrained_policy(name: str = "default", temperature: float = 0.0) -> Policy:
    """The trained policy that comes with the package; `policy_metadata(policy_path(name))` tells how it was made."""
    return load_policy(policy_path(name), temperature)


def policy_path(name: str = "default") -> Path:
    """Where the weights of this name lie."""
    folder = Path(str(resources.files("acbo") / "policy" / "pretrained"))
    path = folder / f"{name}.safetensors"
    if not path.is_file():
        there = sorted(file.stem for file in folder.glob("*.safetensors")) or ["none"]
        raise ValueError(
            f"`name` must be one of the policies in the package ({', '.join(there)}); got {name!r}."
        )
    return path

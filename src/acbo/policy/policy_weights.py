"""Weights of the policy in safetensors: named arrays with settings and metadata."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr

from acbo.surrogate.weights import config_of, packaged_file, read_arrays, read_metadata, write_arrays

from .policy_network import PolicyConfig, PolicyNetwork

FORMAT = "acbo-policy-1"


def save_policy(path: str | Path, policy: Any, metadata: Mapping[str, Any] | None = None) -> Path:
    """Write a `Policy` or its network to one file, whole or not at all; `metadata` (texts and numbers) says how it was made."""
    network: PolicyNetwork = getattr(policy, "network", policy)
    return write_arrays(path, network, FORMAT, network.config, metadata)


def load_network(path: str | Path, precision: str = "float32") -> PolicyNetwork:
    """The network in a file of `save_policy`."""
    config = config_of(path, PolicyConfig, policy_metadata(path), precision=precision)
    like = eqx.filter_eval_shape(lambda: PolicyNetwork(config, key=jr.key(0)))
    return read_arrays(path, like)


def policy_metadata(path: str | Path) -> dict[str, Any]:
    """The `format`, `config` and `metadata` of a file of weights."""
    return read_metadata(path, FORMAT)


def policy_path(name: str = "default") -> Path:
    """Path of the pretrained weights of this name."""
    return packaged_file("policy", "policies", name)

"""Settings as YAML, one folder for each group, for Hydra and for `jaxarc.envs.adapter.config_from_yaml`."""

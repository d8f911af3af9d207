"""The batched step as few GPU kernels; the functions of `jaxarc.envs` are the twin that runs everywhere."""

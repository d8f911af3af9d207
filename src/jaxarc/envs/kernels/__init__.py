"""The batched step as kernels, for GPUs and for CPUs; the functions of `jaxarc.envs` are the twin that runs everywhere."""

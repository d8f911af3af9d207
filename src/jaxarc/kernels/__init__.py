"""The step as kernels, for GPUs and CPUs: twins of the definition in `jaxarc.envs`, with the same bits."""

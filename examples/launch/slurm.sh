#!/bin/bash
# One run on all nodes of a SLURM job, one process on each node with all its GPUs. Submit it with the command to run:
#
#   sbatch --nodes=2 --gpus-per-node=8 slurm.sh jaxtrace run flow.nc --out paths.nc --checkpoint saved --resume
#
# The folder is one that all nodes see. The job may be stopped at any time: it goes on from what was saved.
#SBATCH --ntasks-per-node=1
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append

# The secret by which the hosts of this run know each other. It is handed on in the environment, also after `sbatch --export=NONE`.
export JAXWORLDS_TOKEN=${JAXWORLDS_TOKEN:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
export SLURM_EXPORT_ENV=ALL

srun "$@" --hosts "$SLURM_NTASKS"
code=$?

# 143: SIGTERM, here two minutes before the time is over. 75: a node was lost. 137: a process was killed. All go on in a new turn.
if [[ $code =~ ^(143|75|137)$ && " $* " == *" --resume "* ]] && ((${SLURM_RESTART_COUNT:-0} < 20)); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code

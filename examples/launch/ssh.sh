#!/bin/bash
# One run on several hosts by SSH, one process on each. First the hosts, then the command:
#
#   ssh.sh node0,node1 .venv/bin/jaxtrace run flow.nc --out paths.nc --checkpoint saved --resume
#
# All hosts see this folder under the same name, and reach the first one at PORT (default 1234). Keys are set up, so that
# SSH asks nothing. Ctrl-C stops the run at the end of a chunk; a second one stops it at once.

IFS=, read -ra hosts <<<"$1"
shift
coordinator=${hosts[0]}:${PORT:-1234}
# The secret by which the hosts of this run know each other. It goes through SSH's input: a command line can be read by others.
token=${JAXWORLDS_TOKEN:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
pid=.cache/jaxworlds/ssh-${coordinator//[^[:alnum:]]/-}.pid # in the home folder, which others cannot write

# A script's children in the background do not hear Ctrl-C, so it is sent to host 0, which stops all the others.
pass() { ssh -n "${hosts[0]}" "kill -$1 \$(cat ~/$pid)"; }
trap 'pass INT' INT
trap 'pass TERM' TERM HUP

jobs=()
for k in "${!hosts[@]}"; do
  line="cd $(printf %q "$PWD") && exec $(printf '%q ' "$@")--hosts ${#hosts[@]} --host $k --coordinator $coordinator"
  ((k == 0)) && line="(umask 077; mkdir -p ~/${pid%/*}); echo \$\$ >~/$pid && $line"
  line="read -r JAXWORLDS_TOKEN; export JAXWORLDS_TOKEN; $line"
  ssh "${hosts[$k]}" "exec bash -c $(printf %q "$line")" <<<"$token" &
  jobs+=($!)
done

# The first failure that is not a follow-up of another (75) is the exit code of all.
code=0
for job in "${jobs[@]}"; do
  while wait "$job"; one=$?; kill -0 "$job" 2>/dev/null; do :; done # a signal ends `wait` before the job
  ((one != 0 && (code == 0 || code == 75))) && code=$one
done
exit $code

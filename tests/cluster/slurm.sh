#!/bin/bash
# Run the examples of docs/cluster under a real Slurm on this machine, and check what comes out.
#
#   apt-get install slurm-wlm munge      # Debian
#   tests/cluster/slurm.sh [PARTS]       # as root; PARTS such as 23; all take eight minutes
#
# munged, slurmctld and slurmd run on loopback with files of their own in a temporary folder; an
# installed Slurm is not touched. They are stopped at the end. Checked are:
#   1. an array trains a sweep of six; one task is killed and requeued; the table comes out whole;
#   2. srun torchrun trains one model in two processes;
#   3. a job that meets its time limit saves, is requeued and goes on.
set -euo pipefail
parts=${1:-123}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d /tmp/seqgen-slurm-XXXXXX)
host=$(hostname -s)
export PYTHONPATH=$root SEQGEN_HOME=$work/home SLURM_CONF=$work/slurm.conf OMP_NUM_THREADS=1
mkdir -p "$work"/{bin,munge,spool,state,jobs}
chmod 755 "$work"
printf '#!/bin/sh\nexec %s -m seqgen "$@"\n' "$(command -v python3)" > "$work/bin/seqgen"
chmod +x "$work/bin/seqgen"
export PATH=$work/bin:$PATH

cat > "$SLURM_CONF" <<END
ClusterName=seqgen
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
KillWait=30
OverTimeLimit=0
MpiDefault=none
SchedulerParameters=requeue_setup_env_fail
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(getconf _NPROCESSORS_ONLN) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END

daemons=()
stop() {
    scancel --user=root 2>/dev/null || true
    for pid in $(printf '%s\n' "${daemons[@]}" | tac); do kill "$pid" 2>/dev/null && wait "$pid" || true; done
    [ "${KEEP:-}" ] && echo "kept $work" || rm -rf "$work"
}
trap stop EXIT
fail() { echo "FAILED: $*" >&2; tail -n 20 "$work"/jobs/*.out "$work"/slurm*.log >&2 || true; exit 1; }

dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
chmod 400 "$work/munge/key"
munged --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" --force \
    --log-file="$work/munge/log" --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" &
daemons+=($!)
for _ in $(seq 50); do [ -S "$work/munge/socket" ] && break; sleep 0.1; done
slurmctld -D -c > /dev/null 2>&1 &
daemons+=($!)
slurmd -D -N "$host" > /dev/null 2>&1 &
daemons+=($!)
is_idle() { [ -n "$(sinfo --noheader --states=idle --responding --format=%T 2>/dev/null | grep idle)" ]; }
for _ in $(seq 100); do is_idle && break; sleep 0.3; done
is_idle || fail "Slurm has not started: $(sinfo 2>&1)"
echo "== $(sinfo --version), $(sinfo --noheader)"

finished() {  # wait until a job has left the queue
    for _ in $(seq 400); do [ -n "$(squeue --noheader --job "$1" 2>/dev/null)" ] || return 0; sleep 0.5; done
    fail "job $1 does not end"
}

cd "$work"
for _ in $(seq 40); do cat "$root/corpora/fox.txt"; done > text.txt
sweep=(text.txt --models rnn,gru,lstm --parameters 20k,40k --steps "${STEPS:-200}" --set checkpoint_every=20)

if [[ $parts = *1* ]]; then
echo "== 1. a sweep of six as an array; one task is killed"
seqgen sweep "${sweep[@]}" --print-jobs > jobs.txt
id=$(sbatch --parsable --array=1-6 --cpus-per-task=1 --output="jobs/sweep-%a.out" \
    "$root/docs/cluster/array.sbatch" jobs.txt)
for _ in $(seq 300); do ls -d home/models/*/checkpoints >/dev/null 2>&1 && break; sleep 0.2; done
task=$(squeue --noheader --job "$id" --states=running --format=%K | head -n 1)
killed=$(squeue --noheader --job "$id" --states=running --format=%A | head -n 1)
scontrol requeue "${id}_$task"  # kills the task, as the loss of its machine does
echo "task $task (job $killed) is killed and requeued"
sleep 3
scontrol update jobid="${id}_$task" starttime=now  # which would be in two minutes
finished "$id"
seqgen sweep "${sweep[@]}" --json > table.jsonl 2> table.err
[ "$(wc -l < table.jsonl)" = 6 ] || fail "the table has not six rows"
[ "$(grep -c "trained before" table.err)" = 6 ] || fail "not all were trained: $(cat table.err)"
! grep -q '"error": "' table.jsonl || fail "$(cat table.jsonl)"
seqgen sweep "${sweep[@]}" 2>/dev/null | head -n 4

fi
if [[ $parts = *2* ]]; then
echo "== 2. srun torchrun, two processes"
srun --ntasks=1 --cpus-per-task=2 --chdir="$work" python3 -m torch.distributed.run --nproc-per-node 2 \
    --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29533 -m seqgen train text.txt --model gru --name two \
    --steps 40 --hidden-size 16 --layers 1 --seed 1 --quiet > jobs/two.out 2>&1 || fail "srun torchrun"
seqgen train text.txt --model gru --name one --steps 40 --hidden-size 16 --layers 1 --seed 1 --quiet
losses=$(for name in one two; do
    seqgen models show $name --json |
        python3 -c 'import json, sys; print("%.4f" % json.load(sys.stdin)["training"]["result"]["val_loss"])'
done)
echo "validation loss of one process and of two:" $losses
[ "$(sort -u <<< "$losses" | wc -l)" = 1 ] || fail "two processes train another model"

fi
if [[ $parts = *3* ]]; then
echo "== 3. a time limit"
echo "seqgen train text.txt --continue --name long --model gru --steps 100000 --hidden-size 16 --layers 1 --seed 1" \
    > long.txt
id=$(sbatch --parsable --array=1 --time=1 --signal=B:TERM@35 --cpus-per-task=1 --output="jobs/long.out" \
    "$root/docs/cluster/array.sbatch" long.txt)
steps() { seqgen models show long --json 2>/dev/null | python3 -c \
    'import json, sys; r = json.load(sys.stdin)["training"]["result"]; print(r["steps"] if r else 0)'; }
for _ in $(seq 300); do grep -q "resume with" jobs/long.out 2>/dev/null && break; sleep 0.5; done
grep "resume with" jobs/long.out || fail "the job has not saved"
first=$(steps)
sleep 3
scontrol update jobid="${id}_1" starttime=now  # Slurm waits two minutes before it starts it again
restarts() { scontrol show job "${id}_1" --oneliner | grep -o "Restarts=[0-9]*" | cut -d= -f2; }
for _ in $(seq 400); do [ "$(grep -c "resume with" jobs/long.out)" = 2 ] && break; sleep 0.5; done
second=$(steps)
echo "saved at step $first, requeued ($(restarts) restart(s)), saved again at step $second"
scancel "$id"
[ "$second" -gt "$first" ] && [ "$first" -gt 0 ] || fail "the run has not gone on"
fi
echo "== all as it should be"

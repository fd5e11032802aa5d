#!/bin/sh
# The paper's grid on rel-f1, five seeds, one run after the other, in the order of what matters most.
#
#     nice -n 19 taskset -c 1 sh benchmarks/paper_grid.sh ../shared/data/rel-f1 [RUNS]
#
# Stop it at any time: the same command goes on, a run in progress from its last checkpoint. Every
# finished run is a folder in RUNS; experiments/rel-f1/authors-*/results.json is written after each.
set -eu
data=$1
runs=${2:-runs/authors}
python=${PYTHON:-python}

study() { # NAME TASK OUT MORE...
    name=$1 task=$2 out=$3
    shift 3
    "$python" -m relfrog experiment "$name" --datasets "$data" --tasks "$task" --seeds 5 \
        --out "experiments/rel-f1/authors-$out-$task" --runs "$runs" \
        --preset 'paper/{dataset}-{task}' "$@"
}

for task in driver-top3 driver-position driver-dnf; do
    study main "$task" main --models frog sage
done
# Learned roles are the runs of FROG above, and all nodes those of the plain GNN but for the losses.
for task in driver-top3 driver-position driver-dnf; do
    study roles "$task" roles
done
for task in driver-top3 driver-position driver-dnf; do
    study fd "$task" fd
    study sensitivity "$task" sensitivity
done

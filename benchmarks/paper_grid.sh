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

# driver-dnf last: a run of it takes many times as long as the others.
for task in driver-top3 driver-position; do
    study main "$task" main --models frog sage
done
# Learned roles are the runs of FROG above, and all nodes those of the plain GNN but for the losses.
for study_of in roles fd sensitivity; do
    for task in driver-top3 driver-position; do
        study "$study_of" "$task" "$study_of"
    done
done
study main driver-dnf main --models frog sage
for study_of in roles fd sensitivity; do
    study "$study_of" driver-dnf "$study_of"
done

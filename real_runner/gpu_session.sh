#!/usr/bin/env bash
# Everything that waits for a GPU, on a machine that may have no network: tests, a drafter, traces, prices with and
# without CUDA graphs, the search, the confirmation, the report. What is finished is used again, so it can be cut off and
# called again.
#
#   real_runner/gpu_session.sh OUT PROMPTS DEV_PROMPTS          # JSON lines with an id and turns
#
# simlab must be installed (pip install '.[models,test]') and the models on this machine: a folder, or fetched before
# (SIMLAB_CACHE, HF_HOME). May be set in the environment:
#   TARGET, DRAFT, DEVICE, DTYPE    what runs; DEVICE=cpu is a rehearsal
#   LIMIT, TOKENS, MINUTES, MOST    prompts, new tokens, minutes of each confirmation, drafted tokens as far as prices reach
#   PROFILE_OPTIONS                 more options of simlab profile
#   EXECUTIONS                      what is priced and confirmed: "eager cuda_graphs"
#   TRAIN_TEXT                      Parquet or JSON lines; where given a drafter is trained on it first, and used
#   STEPS, SHORT_STEPS, DECAYS, BLOCK, TRAIN_OPTIONS    of training: a short run for each decay, the best goes on
set -euo pipefail

out=${1:?give a folder for everything that is made}
prompts=${2:?give the prompts to report on, as JSON lines}
dev_prompts=${3:?give other prompts to choose on, as JSON lines}
target=${TARGET:-smollm2-135m}
draft=${DRAFT:-dflash-smollm2-135m}
device=${DEVICE:-cuda}
dtype=${DTYPE:-bfloat16}
limit=${LIMIT:-100}
tokens=${TOKENS:-256}
minutes=${MINUTES:-8}
most=${MOST:-256}
default_executions="eager cuda_graphs"
if [ "$device" = cpu ]; then default_executions=eager; fi
executions=${EXECUTIONS:-$default_executions}
mkdir -p "$out"

step() { echo; echo "== $*"; }
again() { if [ -e "$1" ]; then echo --resume; fi; }
train() { # folder, steps, further options
    local folder=$1 steps=$2
    shift 2
    # shellcheck disable=SC2046,SC2086 # options, to be split
    simlab train dflash --target "$target" --text "$TRAIN_TEXT" --dev "$out/dev_prompts.jsonl" --block-size "${BLOCK:-16}" \
        --steps "$steps" --device "$device" --out "$folder" $(again "$folder") ${TRAIN_OPTIONS:-} "$@"
}
best_run() { # folders: the one whose chain is accepted furthest on the dev prompts
    python - "$@" <<'EOF'
import json, sys
from pathlib import Path

def score(folder):
    points = json.loads((Path(folder) / "curve.json").read_text())
    dev = points[-1]["dev"].values()
    return sum(one["acceptance_length"] for one in dev) / len(dev)

for folder in sys.argv[1:]:
    print(f"{score(folder):.3f} {folder}", file=sys.stderr)
print(max(sys.argv[1:], key=score))
EOF
}
record() { # folder, prompts, further options
    local folder=$1 from=$2
    shift 2
    [ -e "$folder/manifest.json" ] && return
    # shellcheck disable=SC2046 # options, to be split
    simlab record --target "$target" --draft "$draft" --device "$device" --dtype "$dtype" --max-new-tokens "$tokens" \
        --prompts "$from" --out "$folder" $(again "$folder") "$@"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

step "the machine"
{ nvidia-smi || true; python -c 'import platform, torch; print(platform.platform(), "torch", torch.__version__, torch.cuda.is_available())'; simlab version; } | tee "$out/machine.txt"

step "tests that need a GPU"
if [ "$device" = cpu ]; then
    echo "left out: the device is the CPU"
else
    (cd "$here" && python -m pytest -q -m gpu tests) | tee "$out/tests.txt" || echo "tests failed: see $out/tests.txt"
fi

for execution in $executions; do
    step "beside the models and beside the released runner, $execution (the packaged pair)"
    python "$here/tests/bench/bench_overhead.py" --device "$device" --dtype "$dtype" --execution "$execution" | tee "$out/overhead_$execution.txt"
    if python -c 'import dflash' 2> /dev/null; then
        python "$here/tests/bench/bench_dflash.py" --device "$device" --dtype "$dtype" --execution "$execution" | tee "$out/dflash_$execution.txt"
    else
        echo "left out: PyPI dflash is not installed (pip install --no-deps dflash==0.1.0)"
    fi
done

step "prompts"
head -n "$limit" "$prompts" > "$out/prompts.jsonl"
head -n "$limit" "$dev_prompts" > "$out/dev_prompts.jsonl"

if [ -n "${TRAIN_TEXT:-}" ]; then
    step "a drafter"
    runs=()
    for decay in ${DECAYS:-0 2 4 7}; do
        train "$out/decay_$decay" "${SHORT_STEPS:-1000}" --decay "$decay"
        runs+=("$out/decay_$decay")
    done
    best=$(best_run "${runs[@]}")
    train "$out/drafter" "${STEPS:-10000}" --decay "${best##*_}" --init "$best"
    draft=$out/drafter
fi

for execution in $executions; do
    step "prices, $execution"
    # shellcheck disable=SC2046,SC2086 # options, to be split
    simlab profile --target "$target" --draft "$draft" --device "$device" --dtype "$dtype" --execution "$execution" \
        --out "$out/cost_$execution.json" ${PROFILE_OPTIONS:-} $(again "$out/cost_$execution.json")
done
costs=()
for execution in $executions; do costs+=(--cost "$out/cost_$execution.json"); done

step "traces"
record "$out/dev" "$out/dev_prompts.jsonl"
record "$out/trace" "$out/prompts.jsonl"
record "$out/trace_t1" "$out/prompts.jsonl" --temperature 1

step "does the winning budget change between the prices?"
simlab replay --trace "$out/trace" "${costs[@]}" -p ddtree:budget=4/8/16/32/64 | tee "$out/budgets.txt"

for execution in $executions; do
    step "the search, $execution"
    simlab optimize --trace "$out/dev" --report-on "$out/trace" --cost "$out/cost_$execution.json" \
        --out "$out/optimize_$execution.json" --results "$out/finalists_$execution.parquet" --no-progress \
        | tee "$out/optimize_$execution.txt"

    step "the confirmation, $execution"
    # shellcheck disable=SC2046 # options, to be split
    simlab confirm --from "$out/optimize_$execution.json" -p ddtree:budget=16/64 -p caddtree:budget="$most" \
        -p presto:budget=16 -p price:budget="$most" --trace "$out/trace" --cost "$out/cost_$execution.json" \
        --device "$device" --dtype "$dtype" --execution "$execution" --time-limit "$minutes" --until-interval 0.03 \
        --out "$out/confirm_$execution" $(again "$out/confirm_$execution") | tee "$out/confirm_$execution.txt"

    step "the report, $execution"
    simlab report "$out/confirm_$execution" --trace "$out/trace" --cost "$out/cost_$execution.json" \
        --optimum "$out/optimize_$execution.json" --out "$out/report_$execution.html"
done

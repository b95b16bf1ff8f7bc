#!/usr/bin/env bash
# Everything that waits for a GPU, on a machine that may have no network: tests, traces, prices, the search, the
# confirmation, the report. What is finished is used again, so it can be cut off and called again.
#
#   real_runner/gpu_session.sh OUT PROMPTS DEV_PROMPTS          # JSON lines with an id and turns
#
# TARGET, DRAFT, DEVICE, DTYPE, LIMIT, TOKENS, MINUTES, MOST and PROFILE_OPTIONS may be set in the environment. simlab must be
# installed (pip install '.[models,test]') and the models on this machine: a folder, or fetched before (SIMLAB_CACHE,
# HF_HOME). With DEVICE=cpu it is a rehearsal.
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
most=${MOST:-256} # drafted tokens of a round, as far as prices reach
mkdir -p "$out"

step() { echo; echo "== $*"; }
record() { # folder, prompts, further options
    local folder=$1 from=$2
    shift 2
    [ -e "$folder/manifest.json" ] && return
    local resume=()
    if [ -e "$folder" ]; then resume=(--resume); fi
    simlab record --target "$target" --draft "$draft" --device "$device" --dtype "$dtype" --max-new-tokens "$tokens" \
        --prompts "$from" --out "$folder" "${resume[@]}" "$@"
}

step "the machine"
{ nvidia-smi || true; python -c 'import platform, torch; print(platform.platform(), "torch", torch.__version__, torch.cuda.is_available())'; simlab version; } | tee "$out/machine.txt"

step "tests that need a GPU"
if [ "$device" = cpu ]; then
    echo "left out: the device is the CPU"
else
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    (cd "$here" && python -m pytest -q -m gpu tests) | tee "$out/tests.txt" || echo "tests failed: see $out/tests.txt"
fi

step "prompts"
head -n "$limit" "$prompts" > "$out/prompts.jsonl"
head -n "$limit" "$dev_prompts" > "$out/dev_prompts.jsonl"

step "prices"
resume=()
if [ -e "$out/cost.json" ]; then resume=(--resume); fi
# shellcheck disable=SC2086 # several options, to be split
simlab profile --target "$target" --draft "$draft" --device "$device" --dtype "$dtype" --out "$out/cost.json" \
    ${PROFILE_OPTIONS:-} "${resume[@]}"

step "traces"
record "$out/dev" "$out/dev_prompts.jsonl"
record "$out/trace" "$out/prompts.jsonl"
record "$out/trace_t1" "$out/prompts.jsonl" --temperature 1

step "the search"
simlab optimize --trace "$out/dev" --report-on "$out/trace" --cost "$out/cost.json" --out "$out/optimize.json" \
    --results "$out/finalists.parquet" --no-progress | tee "$out/optimize.txt"

step "the confirmation"
resume=()
if [ -e "$out/confirm" ]; then resume=(--resume); fi
simlab confirm --from "$out/optimize.json" -p caddtree:budget="$most" -p presto:budget=16 -p price:budget="$most" --trace "$out/trace" \
    --cost "$out/cost.json" --device "$device" --dtype "$dtype" --time-limit "$minutes" --until-interval 0.03 \
    --out "$out/confirm" "${resume[@]}" | tee "$out/confirm.txt"

step "the report"
simlab report "$out/confirm" --trace "$out/trace" --cost "$out/cost.json" --optimum "$out/optimize.json" \
    --out "$out/report.html"

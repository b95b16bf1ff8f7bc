#!/usr/bin/env bash
# Everything from prompts to a report on a machine with a GPU: prompts, what it will take, tests, traces, prices with and
# without CUDA graphs, the search, the confirmation, the report. What is finished is used again, so it can be cut off and
# called again. docs/how_to/gpu.md explains each step.
#
#   real_runner/gpu_session.sh OUT                              # prompts from the Hugging Face Hub
#   real_runner/gpu_session.sh OUT PROMPTS DEV_PROMPTS          # JSON lines with an id and turns
#   IN_MINUTES=10 real_runner/gpu_session.sh OUT                # the packaged pair and prompts, no network
#
# With IN_MINUTES each step says what it takes and has a limit; what does not fit any more is left out, the tests come last.
#
# simlab must be installed (pip install '.[models,test]'). The models are fetched where there is a network; else they are
# folders, or were fetched before (SIMLAB_CACHE, HF_HOME). May be set in the environment:
#   TARGET, DRAFT, DEVICE, DTYPE    what runs; DEVICE=cpu is a rehearsal
#   DATASETS, LIMIT                 prompts to choose on and as many to report on: of each of these (25 of each of "gsm8k
#                                   mbpp humaneval mt-bench"), or of the files (100)
#   TOKENS, MINUTES, MOST           new tokens, minutes of each confirmation, drafted tokens as far as prices reach
#   TEMPERATURES                    further traces, one at each: "1"; none by default
#   EXECUTIONS                      what is priced and confirmed: "eager cuda_graphs"
#   STEPS_LEFT_OUT                  "tests bench" leaves out both
#   RECORD_OPTIONS, PROFILE_OPTIONS, OPTIMIZE_OPTIONS, CONFIRM_OPTIONS, REPORT_OPTIONS    more options of each
#                                   command, split at blanks; RECORD_OPTIONS is by default what turns Qwen3's thinking off
#   FIELD_MODELS, FIELD_OPTIONS     a file of `simlab study field --models`: at last every system runs on these; "packaged" for those
#                                   that come with simlab
#   TRAIN_TEXT                      Parquet or JSON lines; where given a drafter is trained on it first, and used
#   STEPS, SHORT_STEPS, DECAYS, BLOCK, TRAIN_OPTIONS    of training: a short run for each decay, the best goes on
set -euo pipefail
set -f # options are split into words, and are no patterns of files

out=${1:?give a folder for everything that is made}
prompts=${2:-}
dev_prompts=${3:-}
if [ -n "$prompts" ] && [ -z "$dev_prompts" ]; then echo "give other prompts to choose on, as JSON lines" >&2; exit 2; fi
total=${IN_MINUTES:-}
if [ -n "$total" ]; then
    : "${TARGET:=smollm2-135m}" "${DRAFT:=dflash-smollm2-135m}" "${LIMIT:=41}" "${TOKENS:=128}" "${MINUTES:=1}"
    : "${RECORD_OPTIONS=}" "${PROFILE_OPTIONS=--contexts 128,640}" "${STEPS_LEFT_OUT=bench}"
fi
target=${TARGET:-Qwen/Qwen3-8B}
draft=${DRAFT:-z-lab/Qwen3-8B-DFlash-b16}
device=${DEVICE:-cuda}
dtype=${DTYPE:-bfloat16}
datasets=${DATASETS:-gsm8k mbpp humaneval mt-bench}
limit=${LIMIT:-25}
tokens=${TOKENS:-256}
minutes=${MINUTES:-8}
most=${MOST:-256}
thinking_off='--chat-template-kwargs {"enable_thinking":false}'
record_options=${RECORD_OPTIONS-$thinking_off}
left_out=${STEPS_LEFT_OUT:-}
with_ngram=
if [ "$target" = smollm2-135m ]; then with_ngram="-p presto:budget=16"; fi # a 3-gram comes with simlab for this one only
default_executions="eager cuda_graphs"
if [ -n "$total" ]; then default_executions="cuda_graphs eager"; fi
patience=2 # so many times what a step took on a GPU it may take
if [ "$device" = cpu ]; then default_executions=eager patience=12; fi
executions=${EXECUTIONS:-$default_executions}
mkdir -p "$out/logs"

step() { echo; echo "== $*"; }
within() { # name, the seconds it took on an H200 with loading (docs/how_to/gpu.md), command: within IN_MINUTES, with a log
    local name=$1 seen=$2 left limit began=$SECONDS code=0
    shift 2
    if [ -z "$total" ]; then "$@"; return; fi
    left=$((60 * total - SECONDS)) limit=$((seen * patience))
    if [ "$limit" -gt "$left" ]; then limit=$left; fi
    if [ "$seen" -gt "$left" ]; then
        echo "$name: left out, it takes about $seen s and $left s are left" | tee -a "$out/steps.txt"
        return
    fi
    echo "$name: about $seen s, at most $limit s; $left s are left"
    timeout -s INT -k 5 "$limit" "$@" 2>&1 | tee "$out/logs/$name.txt" || code=$?
    echo "$name: took $((SECONDS - began)) s, exit code $code" | tee -a "$out/steps.txt"
}
ready() { # files that the next step reads: within IN_MINUTES the step that makes one may have been left out
    local file
    if [ -z "$total" ]; then return; fi
    for file in "$@"; do
        if [ ! -e "$file" ]; then echo "left out: there is no $file"; return 1; fi
    done
}
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
is_left_out() { [[ " $left_out " == *" $1 "* ]]; }
record() { # folder, prompts, further options
    local folder=$1 from=$2
    shift 2
    [ -e "$folder/manifest.json" ] && return
    # shellcheck disable=SC2046,SC2086 # options, to be split
    within "record_$(basename "$folder")" 25 \
        simlab record --target "$target" --draft "$draft" --device "$device" --dtype "$dtype" --max-new-tokens "$tokens" \
        --prompts "$from" --out "$folder" $(again "$folder") $record_options "$@"
}
gpu_tests() {
    step "tests that need a GPU"
    if [ "$device" = cpu ] || is_left_out tests; then
        echo "left out"
    else
        (cd "$here" && within tests 130 python -m pytest -q -m gpu -n 8 tests) | tee "$out/tests.txt" || echo "tests failed: see $out/tests.txt"
    fi
}
prompt_file() { # file, split
    [ -e "$1" ] && return
    if [ -n "$total" ]; then
        local packaged=sample
        if [ "$2" = dev ]; then packaged=field-dev; fi
        simlab prompts "$packaged" --seed 0 --limit "$limit" --out "$1" >&2
        return
    fi
    mkdir -p "$out/prompts"
    for dataset in $datasets; do
        part="$out/prompts/$dataset-$2.jsonl"
        [ -e "$part" ] || simlab prompts "$dataset" --split "$2" --seed 0 --limit "$limit" --out "$part" >&2
        cat "$part"
    done > "$1.part"
    mv "$1.part" "$1"
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

step "the machine"
{ nvidia-smi || true; python -c 'import platform, torch; print(platform.platform(), "torch", torch.__version__, torch.cuda.is_available())'; simlab version; } | tee "$out/machine.txt"

step "prompts"
if [ -n "$prompts" ]; then
    head -n "${LIMIT:-100}" "$prompts" > "$out/prompts.jsonl"
    head -n "${LIMIT:-100}" "$dev_prompts" > "$out/dev_prompts.jsonl"
else
    prompt_file "$out/dev_prompts.jsonl" dev
    prompt_file "$out/prompts.jsonl" test
fi
wc -l "$out/prompts.jsonl" "$out/dev_prompts.jsonl"

step "what recording will take"
if [ -n "$total" ]; then
    echo "left out: each step says it"
elif [ ! -e "$out/trace/manifest.json" ]; then
    # shellcheck disable=SC2086 # options, to be split
    simlab record --target "$target" --draft "$draft" --device "$device" --dtype "$dtype" --max-new-tokens "$tokens" \
        --prompts "$out/prompts.jsonl" --out "$out/trace" $record_options --dry-run | tee "$out/dry_run.txt"
fi

if [ -z "$total" ]; then gpu_tests; fi

for execution in $executions; do
    if is_left_out bench; then break; fi
    step "beside the released runner, $execution (the packaged pair)"
    if python -c 'import dflash' 2> /dev/null; then
        python "$here/tests/bench/bench_dflash.py" --device "$device" --dtype "$dtype" --execution "$execution" | tee "$out/dflash_$execution.txt"
    else
        echo "left out: PyPI dflash is not installed (pip install --no-deps dflash==0.1.0)"
    fi
done

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
    took=40
    if [ "$execution" = cuda_graphs ]; then took=80; fi # 25 of them to compile, which is done once
    # shellcheck disable=SC2046,SC2086 # options, to be split
    within "profile_$execution" $took simlab profile --target "$target" --draft "$draft" --device "$device" --dtype "$dtype" --execution "$execution" \
        --out "$out/cost_$execution.json" ${PROFILE_OPTIONS:-} $(again "$out/cost_$execution.json")
done
costs=()
for execution in $executions; do
    if ready "$out/cost_$execution.json"; then costs+=(--cost "$out/cost_$execution.json"); fi
done

step "traces"
record "$out/dev" "$out/dev_prompts.jsonl"
record "$out/trace" "$out/prompts.jsonl"
for temperature in ${TEMPERATURES:-}; do record "$out/trace_t$temperature" "$out/prompts.jsonl" --temperature "$temperature"; done

step "does the winning budget change between the prices?"
if ready "$out/trace/manifest.json"; then
    within replay 10 simlab replay --trace "$out/trace" "${costs[@]}" -p ddtree:budget=4/8/16/32/64 | tee "$out/budgets.txt"
fi

for execution in $executions; do
    step "the search, $execution"
    if ! ready "$out/dev/manifest.json" "$out/trace/manifest.json" "$out/cost_$execution.json"; then continue; fi
    # shellcheck disable=SC2086 # options, to be split
    within "optimize_$execution" 30 simlab optimize --dev-trace "$out/dev" --trace "$out/trace" --cost "$out/cost_$execution.json" \
        --out "$out/optimize_$execution.json" --results "$out/finalists_$execution.parquet" --no-progress \
        ${OPTIMIZE_OPTIONS:-} | tee "$out/optimize_$execution.txt"

    step "the confirmation, $execution"
    if ! ready "$out/optimize_$execution.json"; then continue; fi
    # shellcheck disable=SC2046,SC2086 # options, to be split
    within "confirm_$execution" 90 simlab confirm --from "$out/optimize_$execution.json" -p ddtree:budget=16/64 -p caddtree:budget="$most" \
        $with_ngram -p price:budget="$most" --trace "$out/trace" --cost "$out/cost_$execution.json" \
        --device "$device" --dtype "$dtype" --execution "$execution" --time-limit "$minutes" --until-interval 0.03 \
        --out "$out/confirm_$execution" ${CONFIRM_OPTIONS:-} $(again "$out/confirm_$execution") | tee "$out/confirm_$execution.txt"

    step "the report, $execution"
    if ! ready "$out/confirm_$execution/results.parquet"; then continue; fi
    # shellcheck disable=SC2086 # options, to be split
    within "report_$execution" 30 simlab report "$out/confirm_$execution" --trace "$out/trace" --cost "$out/cost_$execution.json" \
        --optimum "$out/optimize_$execution.json" --out "$out/report_$execution.html" ${REPORT_OPTIONS:-}
done

if [ -n "${FIELD_MODELS:-}" ]; then
    step "every system, side by side"
    models=()
    if [ "$FIELD_MODELS" != packaged ]; then models=(--models "$FIELD_MODELS"); fi
    # shellcheck disable=SC2086 # options, to be split
    simlab study field "${models[@]}" --device "$device" --dtype "$dtype" --confirm-minutes "$minutes" --out "$out/field" \
        ${FIELD_OPTIONS:-} | tee "$out/field.txt"
fi

if [ -n "$total" ]; then
    gpu_tests
    step "what ran in $SECONDS s"
    cat "$out/steps.txt"
fi

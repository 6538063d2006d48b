#!/usr/bin/env bash
# Live fuzzing: builds the targets (preset fuzz), runs each for SECONDS from its seeds and what earlier runs found, and prints a table.
#
#   tests/fuzz/run.sh SECONDS [TARGET...]
#
# Before the table stands a line "PASSED: ..." or "FAILED: ..." for each target, which tests/run.sh counts.
# FUZZ_BUILD: the build folder (default build/fuzz); FUZZ_JOBS: targets at a time (default 1). What is found stays in FUZZ_BUILD/corpus/TARGET;
# an input that fails is FUZZ_BUILD/findings/TARGET-*, with its log beside. Ends with 1 where there are findings.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

if [[ ! ${1:-} =~ ^[0-9]+$ ]]; then
  echo "usage: tests/fuzz/run.sh SECONDS [TARGET...]" >&2
  exit 2
fi
seconds=$1
shift
build=${FUZZ_BUILD:-build/fuzz}
targets=("$@")
if [[ ${#targets[@]} == 0 ]]; then
  for file in tests/fuzz/*.cpp; do targets+=("$(basename "$file" .cpp)"); done
fi

if [[ ! -e $build/build.ninja ]]; then cmake --preset fuzz -B "$build" > /dev/null || exit 1; fi
cmake --build "$build" -j "$(nproc)" --target "${targets[@]/#/fuzz_}" > "$build/build.log" 2>&1 || {
  tail -40 "$build/build.log"
  exit 1
}

dictionary_of() {
  case $1 in
    gguf_*) echo gguf ;;
    safetensors_header | hf_model) echo hf ;;
    tokenizer_json) echo tokenizer ;;
    jinja_render) echo jinja ;;
    tokenize_text | unicode_norm) echo text ;;
  esac
}

fuzz_one() {
  local target=$1 corpus=$build/corpus/$1 log=$build/findings/$1.log options=() dictionary
  mkdir -p "$corpus" "$build/findings"
  dictionary=$(dictionary_of "$target")
  if [[ -n $dictionary ]]; then options+=("-dict=tests/fuzz/dict/$dictionary.dict"); fi
  "$build/tests/fuzz/fuzz_$target" "-max_total_time=$seconds" -timeout=5 -rss_limit_mb=1024 -malloc_limit_mb=64 -max_len=65536 \
    -use_value_profile=1 -print_funcs=0 -print_final_stats=1 "-artifact_prefix=$build/findings/$target-" "${options[@]}" \
    "$corpus" "tests/fuzz/corpus/$target" > "$log" 2>&1
  echo $? > "$build/findings/$target.rc"
}
export -f fuzz_one dictionary_of
export build seconds
printf '%s\n' "${targets[@]}" | xargs -P "${FUZZ_JOBS:-1}" -I {} bash -c 'fuzz_one "$1"' _ {}

bad=0
table=$(mktemp)
trap 'rm -f "$table"' EXIT
printf '%-20s %12s %8s %7s %8s %7s  %s\n' target executions exec/s cov ft corpus findings > "$table"
for target in "${targets[@]}"; do
  log=$build/findings/$target.log
  last=$(grep -E 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -1)
  field() { sed -nE "s/.*$1:? +([0-9]+).*/\1/p" <<< "$last"; }
  stat() { sed -nE "s/^stat::$1: +([0-9]+)/\1/p" "$log"; }
  findings=none
  if [[ $(cat "$build/findings/$target.rc") != 0 ]]; then
    findings=$(sed -nE 's/.*Test unit written to (.*)/\1/p' "$log" | tr '\n' ' ')
    findings="${findings:-see $log }$(grep -m1 -E 'FUZZ CHECK FAILED|SUMMARY: ' "$log")"
    bad=1
    echo "FAILED: fuzz-live-$target: $findings"
  else
    echo "PASSED: fuzz-live-$target"
  fi
  printf '%-20s %12s %8s %7s %8s %7s  %s\n' "$target" "$(stat number_of_executed_units)" "$(stat average_exec_per_sec)" "$(field cov)" \
    "$(field ft)" "$(field corp)" "$findings" >> "$table"
done
cat "$table"
exit $bad

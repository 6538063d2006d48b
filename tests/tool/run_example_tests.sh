#!/usr/bin/env bash
# Each example as the stand-alone project that it is, against an installed Corbel, built and run. Prints PASSED, FAILED and SKIPPED lines.
#
#   tests/tool/run_example_tests.sh PREFIX FOLDER      PREFIX: where Corbel is installed; FOLDER: for the builds
#
# CXX may be another compiler than the library's. CORBEL_TEST_MODELS: folder of the real models.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ $# != 2 ]]; then
  echo "usage: tests/tool/run_example_tests.sh PREFIX FOLDER" >&2
  exit 2
fi
prefix=$(cd "$1" && pwd) || exit 2
mkdir -p "$2"
folder=$(cd "$2" && pwd)
tiny=tests/data/golden/llama-q4_k_m/model.gguf
smollm2=${CORBEL_TEST_MODELS:-}/SmolLM2-135M-Instruct.Q4_1.gguf
launcher=()
[[ -z ${CORBEL_LAUNCHER:-} ]] || launcher=("-DCMAKE_CXX_COMPILER_LAUNCHER=$CORBEL_LAUNCHER")
num_failed=0

check() { # check NAME COMMAND...
  local name=$1
  shift
  if "$@" > "$folder/log" 2>&1; then
    echo "PASSED: example $name"
  else
    echo "FAILED: example $name"
    tail -n 20 "$folder/log" | sed 's/^/    /'
    num_failed=$((num_failed + 1))
  fi
}
build() {
  cmake -S "examples/$1" -B "$folder/$1" "-DCMAKE_PREFIX_PATH=$prefix" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
    "${launcher[@]}" &&
    cmake --build "$folder/$1" -j "$(nproc)"
}

hello() { timeout 300 "$folder/hello/bin/hello" "$smollm2" > "$folder/answer" && grep -E '([a-z]+ ){5,}' "$folder/answer"; }

for example in hello embed_in_app tool; do check "$example: builds alone" build $example; done
check "embed_in_app" timeout 300 "$folder/embed_in_app/bin/embed_in_app" "$tiny"
check "tool" timeout 60 "$folder/tool/bin/corbel" inspect "$tiny"
if [[ -f $smollm2 ]]; then
  check "embed_in_app with SmolLM2" timeout 300 "$folder/embed_in_app/bin/embed_in_app" "$smollm2"
  check "hello answers" hello
else
  echo "SKIPPED: example hello (no $(basename "$smollm2") in CORBEL_TEST_MODELS)"
fi
[[ $num_failed == 0 ]]

#!/usr/bin/env bash
# All tests: installs what is missing (Debian packages), builds the rows, runs every tier, and ends with one line "N passed, N failed, N skipped".
#
#   tests/run.sh               everything that fits in an hour of CI on two cores
#   tests/run.sh --full        all of it: the whole reference runs, and the digest over compilers, optimisation and mode
#   tests/run.sh --row NAME    one row: gcc-static clang-shared header-only vendored aarch64 asan tsan fuzz compile package
#
# CORBEL_TEST_DATA: folder of reference data that is not part of the tree; CORBEL_TEST_MODELS: folder of the real models (default build/models, fetched
# from PyPI). What is not there is skipped by name and counted. Logs are in build/logs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

all_rows=(gcc-static clang-shared header-only vendored aarch64 asan tsan fuzz compile package)
rows=("${all_rows[@]}")
full=0
while [[ $# -gt 0 ]]; do
  case $1 in
    --full) full=1 ;;
    --row)
      shift
      if [[ " ${all_rows[*]} " != *" ${1:-} "* ]]; then
        echo "tests/run.sh: --row takes one of: ${all_rows[*]}" >&2
        exit 2
      fi
      rows=("$1")
      ;;
    *)
      echo "usage: tests/run.sh [--full] [--row NAME]" >&2
      exit 2
      ;;
  esac
  shift
done
if [[ $full == 1 ]]; then export CORBEL_TEST_FULL=1; fi

logs=$PWD/build/logs
mkdir -p "$logs"
jobs=$(nproc)
passed=0
failed=0
skipped=0
failures=()

wanted() { [[ " ${rows[*]} " == *" $1 "* ]]; }
skip() {
  echo "SKIPPED: $1 ($2)"
  skipped=$((skipped + 1))
}

# check NAME SECONDS COMMAND...: one check of this script's own.
check() {
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  if timeout "$limit" "$@" > "$logs/$name.log" 2>&1; then
    echo "PASSED: $name ($((SECONDS - start)) s)"
    passed=$((passed + 1))
    return 0
  fi
  echo "FAILED: $name ($((SECONDS - start)) s), the end of build/logs/$name.log:"
  tail -40 "$logs/$name.log"
  failed=$((failed + 1))
  failures+=("$name")
  return 1
}

# count_check NAME PROCESS: counts a check that was started in the background.
count_check() {
  if wait "$2"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$1")
  fi
}

# count_skips LOG PATTERN: counts and shows the lines "SKIPPED: ..." of a log, with PATTERN before them or not.
count_skips() {
  local lines
  lines=$(grep -E "^($2)?SKIPPED: " "$1" | sed -E "s/^($2)//")
  [[ -n $lines ]] || return 0
  echo "$lines"
  skipped=$((skipped + $(wc -l <<< "$lines")))
}

# run_script NAME SECONDS COMMAND...: a script that prints "PASSED: ...", "FAILED: ..." and "SKIPPED: ..." lines, each of which counts.
run_script() {
  local name=$1 limit=$2 start=$SECONDS log=$logs/$1.log status=0 ok bad
  shift 2
  timeout "$limit" "$@" > "$log" 2>&1 || status=$?
  ok=$(grep -c '^PASSED: ' "$log")
  bad=$(grep -c '^FAILED: ' "$log")
  if [[ $status != 0 && $bad == 0 ]]; then
    echo "FAILED: $name ended with $status"
    tail -20 "$log"
    bad=1
  fi
  passed=$((passed + ok))
  failed=$((failed + bad))
  count_skips "$log" ''
  if [[ $bad != 0 ]]; then
    grep -A 12 '^FAILED: ' "$log"
    failures+=("$name: $bad of $((ok + bad)) checks, see build/logs/$name.log")
  fi
  echo "$name: $ok checks passed, $bad failed ($((SECONDS - start)) s)"
}

# run_ctest ROW OPTION...: each CTest entry counts as one.
run_ctest() {
  local row=$1 folder=$2 start=$SECONDS log=$logs/$1-ctest.log ok bad
  shift 2
  # With -V the log has what passing tests say they skipped.
  ctest --test-dir "$folder" -V -j "$jobs" "$@" > "$log" 2>&1
  ok=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .* +Passed ' "$log")
  bad=$(grep -E '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .*\*\*\*' "$log" | grep -vc '\*\*\*Skipped')
  if [[ $((ok + bad)) == 0 ]]; then bad=1; fi
  passed=$((passed + ok))
  failed=$((failed + bad))
  count_skips "$log" '[0-9]+: '
  if [[ $bad != 0 ]]; then
    grep -E '^ *[0-9]+/[0-9]+ Test +#[0-9]+: .*\*\*\*' "$log"
    # What Catch2 reports about a failure stands between lines of dots and the next test case.
    grep -E -A 12 'FAILED:|SUMMARY: .*Sanitizer|runtime error|terminate called' "$log" | head -120
    failures+=("$row: $bad of $((ok + bad)) tests, see build/logs/$row-ctest.log")
  fi
  echo "$row: $ok tests passed, $bad failed ($((SECONDS - start)) s)"
}

# --- what the tests need ---------------------------------------------------------------------------------------------

install_packages() {
  local needed=(g++ clang cmake ninja-build pkg-config libfmt-dev libeigen3-dev catch2 nlohmann-json3-dev libcli11-dev libomp-dev python3-pip)
  if wanted fuzz; then needed+=(libclang-rt-dev); fi
  if wanted aarch64; then needed+=(g++-aarch64-linux-gnu qemu-user); fi
  local missing=() package sudo=()
  if ! command -v dpkg-query > /dev/null; then
    echo "no dpkg here: needs ${needed[*]} (names of Debian packages)"
    return 0
  fi
  for package in "${needed[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q "ok installed" || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  echo "installing ${missing[*]}"
  if [[ $(id -u) != 0 ]]; then sudo=(sudo); fi
  "${sudo[@]}" apt-get update -qq > "$logs/apt.log" 2>&1
  if ! DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >> "$logs/apt.log" 2>&1; then
    echo "could not install all of: ${missing[*]}; the end of build/logs/apt.log:"
    tail -5 "$logs/apt.log"
  fi
}

fetch_models() {
  local model
  for model in smollm2 gemma3; do
    if ! timeout 900 examples/get_model.sh "$model" > "$logs/get-$model.log" 2>&1; then
      skip "model $model" "examples/get_model.sh failed, see build/logs/get-$model.log"
    fi
  done
}

install_packages
if [[ -z ${CORBEL_TEST_MODELS:-} ]]; then
  export CORBEL_TEST_MODELS=$PWD/build/models
  if wanted gcc-static; then fetch_models; fi
fi
if [[ -z ${CORBEL_TEST_DATA:-} ]]; then
  echo "CORBEL_TEST_DATA is not set: tests on uncommitted reference data are skipped"
fi
launcher=()
if command -v ccache > /dev/null; then
  export CORBEL_LAUNCHER=ccache
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

# Catch2's main is compiled once for all rows, without sanitizers and warnings.
catch_main=$PWD/build/catch_main.o
if [[ ! $catch_main -nt tests/support/catch_main.cpp ]]; then
  ${CORBEL_LAUNCHER:-} g++ -std=c++20 -O1 -c tests/support/catch_main.cpp -o "$catch_main" || exit 1
fi

# --- rows --------------------------------------------------------------------------------------------------------------

# build_row ROW PRESET FOLDER OPTION...
build_row() {
  local row=$1 preset=$2 folder=$3
  shift 3
  check "$row-configure" 300 cmake --preset "$preset" -B "$folder" "-DCORBEL_CATCH_MAIN=$catch_main" "${launcher[@]}" "$@" &&
    check "$row-build" 3600 cmake --build "$folder" -j "$jobs"
}

committed_models=(tests/data/golden/llama-q4_k_m/model.gguf tests/data/golden/gemma3-text/model.gguf)
models=()
for model in "${committed_models[@]}"; do models+=("$PWD/$model"); done
lines=$PWD/build/consumer-lines.txt

# The consumer's lines hold digests of logits, one for each backend and level: every row must print the same.
same_lines() {
  local now
  now=$("$@" "${models[@]}") || {
    echo "$now"
    return 1
  }
  if [[ ! -s $lines ]]; then echo "$now" > "$lines"; fi
  # Another machine may have fewer levels, but what it prints must be among the lines.
  ! grep -vxFf "$lines" <<< "$now"
}
export -f same_lines
check_lines() {  # check_lines NAME SECONDS COMMAND...: a command that prints the consumer's lines
  local name=$1 limit=$2
  shift 2
  check "$name" "$limit" bash -c "models=(${models[*]@Q}); lines=${lines@Q}; same_lines ${*@Q}"
}
rm -f "$lines"

if wanted gcc-static || wanted package; then
  # The release preset with the tests: build/release is also what the README's commands build.
  build_row gcc-static release build/release -DCORBEL_DEVELOPER=ON -DCORBEL_BUILD_TESTS=ON -DCORBEL_BUILD_EXAMPLES=ON
fi
if wanted gcc-static && [[ -e build/release/tests/corbel_unit_tests ]]; then
  check_lines gcc-static-lines 300 build/release/tests/corbel_consumer_main
  run_ctest gcc-static build/release
  run_script tool 1800 tests/tool/run_tool_tests.sh build/release/bin/corbel
fi

# The other rows neither build nor run what would say the same again and takes long: the whole reference runs on the real models, and:
#   header-only  tests whose every file compiles the whole library anew are a few; the modes share their source. With -O1,
#                which compiles faster and gives the same lines
#   asan, tsan   the checks of the tree, and but for --full the same models again and again; tsan runs what has more than one thread
header_only_tests='golden\.golden$'
threaded_tests='unit\.(context|generate|conversation|model|cpu_linear|cpu_attention)$|golden\.(golden|bit_equality)$|fake_device'
slow_tests='golden\.(reference|memory)$'
sanitized_skip="$slow_tests|^hygiene|golden\.bit_equality$"
if [[ $full == 1 ]]; then sanitized_skip="$slow_tests|^hygiene"; fi

if wanted clang-shared && build_row clang-shared clang build/clang "-DCORBEL_TEST_SKIP=$slow_tests" -DCORBEL_BUILD_TOOLS=OFF \
  -DCORBEL_BUILD_EXAMPLES=OFF; then
  check_lines clang-shared-lines 300 build/clang/tests/corbel_consumer_main
  run_ctest clang-shared build/clang
fi

if wanted header-only && build_row header-only header-only build/header-only "-DCORBEL_TEST_FILTER=$header_only_tests" \
  "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" -DCORBEL_BUILD_TOOLS=OFF -DCORBEL_BUILD_EXAMPLES=OFF; then
  check_lines header-only-lines 300 build/header-only/tests/corbel_consumer_main
  run_ctest header-only build/header-only
fi

# These two compile the whole library in one file each, so they go side by side.
beside=()
if wanted vendored; then
  CXX=clang++ check_lines vendored 900 tests/package/vendored.sh build/vendored &
  beside+=("vendored $!")
fi
if wanted aarch64; then
  if command -v aarch64-linux-gnu-g++ > /dev/null && command -v qemu-aarch64 > /dev/null; then
    check_lines aarch64 2400 tests/package/aarch64.sh build/aarch64 &
    beside+=("aarch64 $!")
  else
    skip aarch64 "no cross compiler or no qemu-user"
  fi
fi
for row in "${beside[@]}"; do count_check $row; done

if wanted asan && build_row asan asan build/asan "-DCORBEL_TEST_SKIP=$sanitized_skip" -DCORBEL_BUILD_TOOLS=OFF -DCORBEL_BUILD_EXAMPLES=OFF; then
  # GCC 12's stack frames for this check are too little aligned for 64-byte vectors (its PR 110027).
  after_return=1
  if grep -qw avx512f /proc/cpuinfo; then after_return=0; fi
  ASAN_OPTIONS=detect_stack_use_after_return=$after_return:strict_string_checks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    run_ctest asan build/asan
fi

if wanted tsan && build_row tsan tsan build/tsan "-DCORBEL_TEST_FILTER=$threaded_tests" "-DCORBEL_TEST_SKIP=$sanitized_skip" \
  -DCORBEL_BUILD_TOOLS=OFF; then
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 run_ctest tsan build/tsan
  TSAN_OPTIONS=halt_on_error=1 check tsan-embed_in_app 900 build/tsan/bin/embed_in_app "${models[0]}"
fi

# The seeds of every fuzz target, then 5 s live each.
if wanted fuzz && check fuzz-configure 300 cmake --preset fuzz -B build/fuzz "${launcher[@]}" &&
  check fuzz-build 1800 cmake --build build/fuzz -j "$jobs"; then
  run_ctest fuzz build/fuzz -L fuzz
  FUZZ_JOBS=$jobs run_script fuzz-live 900 tests/fuzz/run.sh 5
fi

if wanted compile; then
  check compile-gcc 1500 env CXX=g++ tests/compile/headers.sh build/headers-gcc
fi

if wanted package; then
  run_script package 2400 tests/package/run.sh build/release build/package "${models[@]}"
  # Built by another compiler than the library was.
  CXX=clang++ run_script examples 1800 tests/tool/run_example_tests.sh build/package/prefix build/examples
fi

if [[ $full == 1 ]] && wanted vendored; then
  for compiler in g++ clang++; do
    for level in -O0 -O2 "-O3 -march=native"; do
      name=digest-$compiler-$(tr -d ' =' <<< "$level")
      CXX=$compiler CXXFLAGS=$level check_lines "$name-header-only" 1800 tests/package/vendored.sh build/digest-header-only
      CXX=$compiler CXXFLAGS=$level check_lines "$name-compiled" 3600 tests/package/compiled.sh build/digest-compiled
    done
  done
fi

# --- result ------------------------------------------------------------------------------------------------------------

if [[ ${#failures[@]} -gt 0 ]]; then
  echo "failures:"
  printf '  %s\n' "${failures[@]}"
fi
echo "time: $((SECONDS / 60)) min $((SECONDS % 60)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed == 0 ]]

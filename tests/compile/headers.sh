#!/usr/bin/env bash
# Every header compiles alone and twice, header-only and compiled; and in compiled mode none of them brings in fmt, Eigen, OpenMP or the operating system.
# Usage: headers.sh WORK_FOLDER; CXX chooses the compiler.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$1
rm -rf "$work"
mkdir -p "$work"
export CORBEL_ROOT=$root CORBEL_WORK=$work CORBEL_CXX=${CXX:-g++}

# Of a backend only what a user includes; the rest comes in through that.
headers() {
  {
    (cd "$root/include" && find corbel -name '*.hpp')
    (cd "$root/backends/ref/include" && find corbel -name '*_backend.hpp')
    (cd "$root/backends/cpu/include" && find corbel -name '*_backend.hpp' -o -name '*_executor.hpp')
  } | LC_ALL=C sort
}

compile_one() {  # compile_one HEADER MODE
  local header=$1 mode=$2 name
  name=$(tr '/.' '__' <<< "$header")_$mode
  local flags=(-std=c++20 -fsyntax-only -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Werror "-DCORBEL_HEADER_ONLY=$mode"
    "-I$CORBEL_ROOT/include" "-I$CORBEL_ROOT/backends/ref/include" "-I$CORBEL_ROOT/backends/cpu/include")
  if [[ $header == *openmp* ]]; then flags+=(-fopenmp); fi
  printf '#include <%s>\n#include <%s>\n' "$header" "$header" > "$CORBEL_WORK/$name.cpp"
  if ! "$CORBEL_CXX" "${flags[@]}" -MD -MF "$CORBEL_WORK/$name.d" "$CORBEL_WORK/$name.cpp" > "$CORBEL_WORK/$name.log" 2>&1; then
    echo "does not compile alone (CORBEL_HEADER_ONLY=$mode): $header"
    head -8 "$CORBEL_WORK/$name.log"
    return 1
  fi
  # The standard library's own headers bring in some of the system, so only what our files ask for counts. detail/ headers that only .ipp files
  # include may ask.
  local foreign='#include <(fmt/|Eigen/|omp\.h|pthread\.h|sched\.h|signal\.h|fcntl\.h|unistd\.h|dlfcn\.h|sys/)'
  if [[ $mode == 0 && $header != *openmp* && $header != corbel/detail/* ]] &&
    tr ' ' '\n' < "$CORBEL_WORK/$name.d" | grep "^$CORBEL_ROOT/" | xargs grep -E "$foreign"; then
    echo "brings in what a public header must not in compiled mode: $header"
    return 1
  fi
}
export -f compile_one

headers > "$work/list.txt"
for mode in 1 0; do
  sed "s/\$/ $mode/" "$work/list.txt"
done | xargs -P "$(nproc)" -L 1 bash -c 'compile_one "$0" "$1"'
status=$?
echo "$(wc -l < "$work/list.txt") headers, each in two modes"
exit $status

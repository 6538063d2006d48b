#!/usr/bin/env bash
# Vendoring: one copied include tree, plain -I, no CMake, no exceptions, no RTTI, two translation units. Prints the consumer's lines.
# Usage: vendored.sh WORK_FOLDER MODEL...; CXX and CXXFLAGS choose compiler and optimisation.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$1
shift
cxx=${CXX:-clang++}
rm -rf "$work"
mkdir -p "$work/vendor"
for tree in include backends/ref/include backends/cpu/include; do
  cp -r "$root/$tree/." "$work/vendor/"
done
flags=(-std=c++20 ${CXXFLAGS:--O2} -fno-exceptions -fno-rtti -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Werror "-I$work/vendor")
# GCC 12 at -O3 sees overflows inside fmt's and the standard library's own headers (std::string + literal), where there are none.
if [[ $("$cxx" --version) != *clang* ]]; then flags+=(-Wno-error=stringop-overflow -Wno-error=restrict); fi
objects=()
pids=()
for source in consumer main; do
  ${CORBEL_LAUNCHER:-} "$cxx" "${flags[@]}" -c "$root/tests/package/$source.cpp" -o "$work/$source.o" &
  pids+=($!)
  objects+=("$work/$source.o")
done
for pid in "${pids[@]}"; do wait "$pid"; done
"$cxx" "${objects[@]}" -lfmt -pthread -o "$work/consumer"
"$root/tests/hygiene/symbols.sh" "$work/consumer.o" >&2
"$work/consumer" "$@"

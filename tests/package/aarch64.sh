#!/usr/bin/env bash
# Cross-compiles the headers for aarch64 and runs the tiny goldens under qemu-user; then prints the consumer's lines. There is no fmt for the other
# machine, so it is header-only too.
# Usage: aarch64.sh WORK_FOLDER MODEL...
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$1
shift
cxx=${CXX:-aarch64-linux-gnu-g++}
rm -rf "$work"
mkdir -p "$work/host/include"
# Header-only packages of the build machine, without the rest of its include folder.
for package in fmt catch2 nlohmann; do ln -s "/usr/include/$package" "$work/host/include/$package"; done
flags=(-std=c++20 -DFMT_HEADER_ONLY=1 "-DCORBEL_TEST_SOURCE_DIR=\"$root/tests\"" "-I$root/include" "-I$root/backends/ref/include"
  "-I$root/backends/cpu/include" "-I$root/tests" -isystem "$work/host/include")
compile() { ${CORBEL_LAUNCHER:-} "$cxx" "${flags[@]}" $2 -c "$root/tests/$1.cpp" -o "$work/$(basename "$1").o"; }
# The digests come from optimised code, which may fuse and reorder; the goldens from what compiles fastest.
# (GCC 12 spends most of its time for this machine in its instruction combiner, unless held to pairs.)
compile package/consumer "-O1 --param=max-combine-insns=2" &
consumer=$!
compile support/catch_main -O0
compile package/main -O0
compile golden/golden_test -O0
wait "$consumer"
"$cxx" -static "$work/catch_main.o" "$work/golden_test.o" -pthread -o "$work/golden"
"$cxx" -static "$work/consumer.o" "$work/main.o" -pthread -o "$work/consumer"
env -u CORBEL_TEST_DATA -u CORBEL_TEST_MODELS qemu-aarch64 "$work/golden" "golden:*" >&2
qemu-aarch64 "$work/consumer" "$@"

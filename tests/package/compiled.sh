#!/usr/bin/env bash
# Builds the library with CMake and the consumer against it, with the compiler CXX and the optimisation CXXFLAGS. Prints the consumer's lines.
# Usage: compiled.sh WORK_FOLDER MODEL...
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$1
shift
rm -rf "$work"
{
  cmake -S "$root/tests/package/add_subdirectory" -B "$work" -G Ninja "-DCORBEL_SOURCE_DIR=$root" -DCMAKE_BUILD_TYPE=None \
    "-DCMAKE_CXX_COMPILER=${CXX:-g++}" "-DCMAKE_CXX_FLAGS=${CXXFLAGS:--O2}" ${CORBEL_LAUNCHER:+"-DCMAKE_CXX_COMPILER_LAUNCHER=$CORBEL_LAUNCHER"}
  cmake --build "$work"
} >&2
"$work/consumer" "$@"

#!/usr/bin/env bash
# The ways into a program, from an installed build of the library. Each check prints "PASSED: name" or "FAILED: name"; the exit code counts failures.
# Usage: run.sh BUILD_FOLDER WORK_FOLDER MODEL...; the build must be configured with the install rules.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$1
work=$2
shift 2
models=("$@")
rm -rf "$work"
mkdir -p "$work"
work=$(cd "$work" && pwd)  # CMake reads relative prefixes from the consumer's folder
prefix=$work/prefix
failures=0

check() {  # check NAME COMMAND...
  local name=$1
  shift
  if "$@" > "$work/$name.log" 2>&1; then
    echo "PASSED: package.$name"
  else
    echo "FAILED: package.$name"
    tail -30 "$work/$name.log"
    failures=$((failures + 1))
  fi
}

configure_and_build() {  # configure_and_build SOURCE FOLDER OPTION...
  local source=$1 folder=$2
  shift 2
  cmake -S "$source" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2" "$@" && cmake --build "$folder"
}

same_lines() {  # same_lines PROGRAM: it prints what the first consumer printed
  "$1" "${models[@]}" > "$work/now.txt" || return 1
  if [[ ! -e $work/lines.txt ]]; then cp "$work/now.txt" "$work/lines.txt"; fi
  diff "$work/lines.txt" "$work/now.txt"
}

install_moved() {  # installed in one place and used from another: nothing may remember the first
  cmake --install "$build" --prefix "$work/first" --component development &&
    cmake --install "$build" --prefix "$work/first" --component runtime &&
    mv "$work/first" "$prefix" &&
    ! grep -rI "$root" "$prefix/lib" &&
    test -e "$prefix/share/doc/Corbel/LICENSE"
}

find_package() {
  CXX=g++ configure_and_build "$root/tests/package/find_package" "$work/found" -DCMAKE_PREFIX_PATH="$prefix" &&
    same_lines "$work/found/consumer"
}

find_package_other_compiler() {
  CXX=clang++ configure_and_build "$root/tests/package/find_package" "$work/found_clang" -DCMAKE_PREFIX_PATH="$prefix" &&
    same_lines "$work/found_clang/consumer"
}

find_package_openmp() {
  CXX=g++ configure_and_build "$root/tests/package/find_package" "$work/openmp" -DCMAKE_PREFIX_PATH="$prefix" -DCONSUMER_OPENMP=ON &&
    "$work/openmp/consumer_openmp"
}

missing_component() {  # told clearly, not found later
  mkdir -p "$work/missing" &&
    echo 'cmake_minimum_required(VERSION 3.22)
project(Missing CXX)
find_package(Corbel 0.1 REQUIRED COMPONENTS cuda)' > "$work/missing/CMakeLists.txt" &&
    ! cmake -S "$work/missing" -B "$work/missing/build" -DCMAKE_PREFIX_PATH="$prefix" > "$work/missing/out.txt" 2>&1 &&
    grep -q "cuda" "$work/missing/out.txt"
}

wrong_version() {  # 0.2 may differ, so 0.1 does not stand for it
  mkdir -p "$work/wrong" &&
    echo 'cmake_minimum_required(VERSION 3.22)
project(Wrong CXX)
find_package(Corbel 0.2 REQUIRED)' > "$work/wrong/CMakeLists.txt" &&
    ! cmake -S "$work/wrong" -B "$work/wrong/build" -DCMAKE_PREFIX_PATH="$prefix"
}

pkg_config() {
  local flags
  flags=$(PKG_CONFIG_PATH="$prefix/lib/pkgconfig:$prefix/lib/x86_64-linux-gnu/pkgconfig" pkg-config --cflags --libs corbel) || return 1
  # pkg-config's words are meant to be split.
  g++ -std=c++20 -O2 "$root/tests/package/consumer.cpp" "$root/tests/package/main.cpp" $flags -o "$work/pkg_config_consumer" &&
    LD_LIBRARY_PATH="$prefix/lib:$prefix/lib/x86_64-linux-gnu" same_lines "$work/pkg_config_consumer"
}

add_subdirectory() {  # the whole library once more, so at the level that compiles fastest: it must say the same
  configure_and_build "$root/tests/package/add_subdirectory" "$work/sub" -DCORBEL_SOURCE_DIR="$root" -DCMAKE_CXX_FLAGS_RELEASE=-O0 \
    ${CORBEL_LAUNCHER:+-DCMAKE_CXX_COMPILER_LAUNCHER=$CORBEL_LAUNCHER} && same_lines "$work/sub/consumer"
}

two_versions() { CXX=g++ "$root/tests/package/two_versions/run.sh" "$work/two_versions" "${models[0]}"; }

live_at_exit() {
  local flags
  flags=$(PKG_CONFIG_PATH="$prefix/lib/pkgconfig:$prefix/lib/x86_64-linux-gnu/pkgconfig" pkg-config --cflags --libs corbel) || return 1
  g++ -std=c++20 -O1 "$root/tests/package/live_at_exit.cpp" $flags -o "$work/live_at_exit" || return 1
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    LD_LIBRARY_PATH="$prefix/lib:$prefix/lib/x86_64-linux-gnu" timeout 60 "$work/live_at_exit" "${models[0]}" || return 1
  done
}

check install install_moved
check find_package find_package
check find_package_other_compiler find_package_other_compiler
check find_package_openmp find_package_openmp
check missing_component missing_component
check wrong_version wrong_version
check pkg_config pkg_config
check live_at_exit live_at_exit
check add_subdirectory add_subdirectory
check two_versions two_versions
cat "$work/lines.txt" 2> /dev/null
exit $failures

#!/usr/bin/env bash
# Builds a shared object around this version and one around a copy of the tree with another number, and runs both in one process.
# Usage: run.sh WORK_FOLDER MODEL
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
work=$1
model=$2
cxx=${CXX:-g++}
rm -rf "$work"
mkdir -p "$work"
version=$(awk '/^#define CORBEL_VERSION_/ { printf "%s%s", dot, $3; dot = "." }' "$root/include/corbel/version.hpp")
# Tables inside the standard library's headers are symbols that keep a shared object in the process for ever, unless they stay inside it.
echo '{ global: plugin_*; local: *; };' > "$work/exports"
pids=()
for name in this other; do
  mkdir -p "$work/$name"
  for tree in include backends/ref/include backends/cpu/include; do cp -r "$root/$tree/." "$work/$name/"; done
  if [[ $name == other ]]; then
    sed -i 's/\(#define CORBEL_VERSION_PATCH\) .*/\1 99/' "$work/other/corbel/version.hpp"
  fi
  for source in consumer two_versions/plugin; do
    ${CORBEL_LAUNCHER:-} "$cxx" -std=c++20 -O1 -fPIC -fvisibility=hidden "-I$work/$name" -c "$root/tests/package/$source.cpp" \
      -o "$work/$name/$(basename "$source").o" &
    pids+=($!)
  done
done
for pid in "${pids[@]}"; do wait "$pid"; done
for name in this other; do
  "$cxx" -shared "$work/$name/consumer.o" "$work/$name/plugin.o" -lfmt -pthread -Wl,--version-script="$work/exports" -o "$work/$name.so"
done
"$cxx" -std=c++20 -O1 "$root/tests/package/two_versions/host.cpp" -ldl -pthread -o "$work/host"
"$work/host" "$model" "$work/this.so" "$version" "$work/other.so" "${version%.*}.99"

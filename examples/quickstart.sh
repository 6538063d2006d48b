#!/usr/bin/env bash
# From a fresh Debian machine to an answer: installs what is missing, builds the program corbel, fetches a small model, asks it.
#
#   examples/quickstart.sh "Why is the sky blue?"
set -euo pipefail

if [[ $# -ne 1 ]]; then
  echo 'usage: examples/quickstart.sh "PROMPT"' >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A Debian package that is needed, and the command or header that shows that it is there.
missing=()
command -v g++ >/dev/null || missing+=(g++)
command -v cmake >/dev/null || missing+=(cmake)
command -v ninja >/dev/null || missing+=(ninja-build)
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
[[ -e /usr/include/fmt/format.h || -e /usr/local/include/fmt/format.h ]] || missing+=(libfmt-dev)
[[ -e /usr/include/CLI/CLI.hpp || -e /usr/local/include/CLI/CLI.hpp ]] || missing+=(libcli11-dev)
if [[ ${#missing[@]} -gt 0 ]]; then
  if ! command -v apt-get >/dev/null; then
    echo "quickstart.sh: please install: ${missing[*]} (names of Debian packages)" >&2
    exit 1
  fi
  sudo=()
  [[ $(id -u) == 0 ]] || sudo=(sudo)
  echo "== installing ${missing[*]}" >&2
  "${sudo[@]}" apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

echo "== building" >&2
cmake --preset release >&2
cmake --build --preset release --target corbel_tool >&2

echo "== fetching the model" >&2
model=$(examples/get_model.sh smollm2 | tail -n 1)

echo "== asking" >&2
build/release/bin/corbel chat "$model" --prompt "$1"

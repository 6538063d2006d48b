#!/usr/bin/env bash
# Fails where an object, archive or shared library of Corbel needs a symbol that could end, or speak for, the host's process.
# Usage: symbols.sh FILE...
set -euo pipefail

banned=(
  abort exit _exit _Exit quick_exit __assert_fail raise kill
  printf fprintf vprintf vfprintf __printf_chk __fprintf_chk __vfprintf_chk puts fputs putchar perror stdout stderr
  _ZSt4cout _ZSt4cerr _ZSt4clog _ZSt5wcout _ZSt5wcerr
  getenv secure_getenv setenv putenv unsetenv chdir fchdir
  setlocale localeconv newlocale uselocale strtod strtof strtold atof
  signal sigaction
)

# Undefined symbols by exact name, without the version that nm adds.
undefined() { nm -u "$1" 2>/dev/null | awk 'NF >= 2 && $(NF-1) ~ /^[Uw]$/ { sub(/@.*/, "", $NF); print $NF }' | sort -u; }
# std::regex lives in headers, so its internals are defined, not undefined.
regex() { nm "$1" 2>/dev/null | grep -E 'basic_regex|regex_traits' || true; }

status=0
for file in "$@"; do
  # A file whose undefined symbols cannot be read would pass for the wrong reason.
  symbols=$(undefined "$file")
  if [[ -z $symbols ]]; then
    echo "$file: no undefined symbols found: is this an object file?"
    status=1
  fi
  for name in "${banned[@]}"; do
    if grep -qxF -- "$name" <<< "$symbols"; then
      echo "$file: needs $name"
      nm -A -u "$file" 2>/dev/null | grep -E " $name(@|\$)" | head -5
      status=1
    fi
  done
  if [[ -n $(regex "$file") ]]; then
    echo "$file: contains parts of std::regex"
    status=1
  fi
done
exit $status

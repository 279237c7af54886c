#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What object files and libraries contain.
#
#   hygiene.sh objects NM READELF FILE...       kernel objects leave nothing that the linker could share
#   hygiene.sh shared NM READELF FILE PREFIX    what a shared library exports and needs
#   hygiene.sh needs READELF FILE               a program or library needs libc, libm and Quern alone
#   hygiene.sh archive NM FILE PREFIX OTHER     a renamed archive, which must not clash with one called OTHER
#   hygiene.sh table SRC KERNELS_INC FOLDER...  kernel files of these backends are the table, and the table them
#   hygiene.sh size BYTES FILE...               files together are at most so large
set -u
LC_ALL=C
export LC_ALL
bad=0

complain() {
  echo "$1" >&2
  bad=1
}

# An object compiled for a newer CPU may hold one global symbol, its table, and nothing weak, unique or
# common; code that runs when the library is loaded would run on every CPU.  CUDA's hold one for each type;
# what the kernels of an ISA share, functions called after it.
check_object() {
  stem=$(basename "$3" .o)
  case $stem in
    *.cu)
      stem=${stem%.cu}
      global="[RD] _ZN5quern4rows[0-9]*${stem%_*}_*_${stem##*_}E"
      most=9 ;;
    finish_copy_*)
      stem=${stem%.cpp}
      global="T _ZN5quern[0-9]*_${stem#finish_copy_}*E*"
      most=3 ;;
    *)
      stem=${stem%.cpp}
      global="[RD] _ZN5quern4rows${#stem}${stem}E"
      most=1 ;;
  esac
  symbols=$("$1" --defined-only --no-sort "$3") || { complain "$3: $1 failed"; return; }
  globals=0
  while read -r _ type symbol; do
    case $type in
      [a-hj-tx-z]) ;;
      *)
        # shellcheck disable=SC2254 # a pattern
        case "$type $symbol" in
          $global) globals=$((globals + 1)) ;;
          *) complain "$3: symbol $symbol of type $type, must be local" ;;
        esac ;;
    esac
  done <<END
$symbols
END
  { [ $globals -ge 1 ] && [ $globals -le $most ]; } || complain "$3: $globals symbols '$global', must be 1 to $most"
  sections=$("$2" --sections --wide "$3") || { complain "$3: $2 failed"; return; }
  found=$(echo "$sections" | grep -oE '\.(init_array|ctors|preinit_array|text\.startup)[^ ]*')
  [ -z "$found" ] || complain "$3: section $found, must not run code when it is loaded"
}

check_needs() {
  dynamic=$("$1" --dynamic --wide "$2") || complain "$2: $1 failed"
  for library in $(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $library in
      libc.so* | libm.so* | ld-linux* | libquern.so*) ;;
      *) complain "$2 needs $library" ;;
    esac
  done
}

check_shared() {
  symbols=$("$1" --dynamic --defined-only "$3") || complain "$3: $1 failed"
  [ -n "$symbols" ] || complain "$3 exports nothing"
  for symbol in $(echo "$symbols" | sed 's/.* //'); do
    case $symbol in
      "$4"_*) ;;
      *) complain "$3 exports $symbol, must begin with $4_" ;;
    esac
  done
  found=$("$1" --dynamic --undefined-only "$3" | grep -E ' (_Z|__cxa_[^f]|__gxx)')
  [ -z "$found" ] || complain "$3 needs the C++ runtime: $found"
  check_needs "$2" "$3"
  echo "$dynamic" | grep -q '(SONAME)' || complain "$3 has no SONAME"
  echo "$dynamic" | grep -q 'TEXTREL' && complain "$3 has text relocations"
}

check_archive() {
  symbols=$("$1" --defined-only --extern-only "$2" | sed -n 's/.* [A-Za-z] //p') || complain "$2: $1 failed"
  echo "$symbols" | grep -q "^$3_" || complain "$2 defines nothing that begins with $3_"
  for symbol in $(echo "$symbols" | grep -i "$4"); do complain "$2 defines $symbol, must not contain $4"; done
}

check_table() {
  src=$1
  table=$2
  shift 2
  files=$(for folder; do
    ending=cpp
    [ "$folder" = cuda ] && ending=cu
    for file in "$src/$folder"/*.$ending; do
      name=$(basename "$file" .$ending)
      [ "${name#finish_copy_}" != "$name" ] || echo "QUERN_FILE($name, $folder)"
    done
  done | sort)
  rows=$(sort "$table")
  [ "$files" = "$rows" ] || complain "files and table differ:
files:
$files
table:
$rows"
}

mode=$1
shift
case $mode in
  objects)
    nm=$1
    readelf=$2
    shift 2
    [ $# -gt 0 ] || complain "no kernel objects to look at"
    for file; do check_object "$nm" "$readelf" "$file"; done ;;
  needs) check_needs "$@" ;;
  shared) check_shared "$@" ;;
  archive) check_archive "$@" ;;
  table) check_table "$@" ;;
  size)
    most=$1
    shift
    size=$(cat "$@" | wc -c)
    echo "$# files of $size bytes, at most $most allowed"
    { [ "$size" -gt 0 ] && [ "$size" -le "$most" ]; } || complain "too large, or nothing" ;;
  *) complain "hygiene.sh: no mode called '$mode'" ;;
esac
exit $bad

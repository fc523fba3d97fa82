#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds somebody else's project against Regard, in one of the ways there are, and runs it; a ctest test each.
#   run.sh install       BUILD             installs the library (and model, explain and program, where built) into BUILD/consumers/prefix
#   run.sh find_package  BUILD             find_package, static or shared as BUILD is; writes BUILD/consumers/bits.txt
#   run.sh pkg_config    BUILD             the C interface from C99 by pkg-config
#   run.sh embed_build   BUILD             add_subdirectory under -Ofast -flto -march=native
#   run.sh embed         BUILD             runs that: the same bits
#   run.sh readme        BUILD             the lines of C++ in README.md, on the numbers of document 002
#   run.sh header        BUILD HEADER      a public header alone, as C++20 and C++23 (c_api.h: as C99), two compilers
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
mode=$1
build=$(cd "$2" && pwd)
scratch=$build/consumers
prefix=$scratch/prefix
mkdir -p "$scratch"
libdir=$prefix/lib
if [ -d "$prefix" ]; then libdir=$(dirname "$(find "$prefix" -name pkgconfig -type d)"); fi
shared=no
if compgen -G "$libdir/libregard.so*" >/dev/null; then shared=yes; fi
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)

# configure_and_run NAME [CMAKE ARGUMENT…]: the project in the folder NAME, from nothing; prints what it prints.
configure_and_run() {
  local name=$1
  shift
  rm -rf "${scratch:?}/$name"
  cmake -S "$here/$name" -B "$scratch/$name" -G Ninja -DCMAKE_CXX_COMPILER=g++ "$@" >&2
  ninja -C "$scratch/$name" >&2
  "$scratch/$name/consumer"
}

case $mode in
  install)
    rm -rf "$prefix"
    cmake --install "$build" --prefix "$prefix" --component library
    if grep -qx 'REGARD_EXPLAIN:BOOL=ON' "$build/CMakeCache.txt"; then
      cmake --install "$build" --prefix "$prefix" --component model
      cmake --install "$build" --prefix "$prefix" --component explain
    fi
    if [ -f "$build/cli/regard.1" ]; then
      cmake --install "$build" --prefix "$prefix" --component program
      for written in man/man1/regard.1 bash-completion/completions/regard zsh/site-functions/_regard \
        fish/vendor_completions.d/regard.fish; do
        test -s "$prefix/share/$written"
      done
    fi
    ;;
  find_package)
    components=
    if compgen -G "$libdir/libregard_explain*" >/dev/null; then components=explain; fi
    configure_and_run find_package -DCMAKE_PREFIX_PATH="$prefix" -DCOMPONENTS=$components >"$scratch/bits.txt"
    cat "$scratch/bits.txt"
    if [ "$components" = explain ]; then "$scratch/find_package/explain_consumer"; fi
    needed=$(readelf -d "$scratch/find_package/consumer" | grep -c 'NEEDED.*libregard\.so\.[0-9]*\.[0-9]*\]' || true)
    if [ "$shared" = yes ]; then test "$needed" -eq 1; else test "$needed" -eq 0; fi
    ;;
  pkg_config)
    export PKG_CONFIG_PATH=$libdir/pkgconfig
    flags=(--cflags --libs)
    if [ "$shared" = no ]; then flags+=(--static); fi
    read -ra found < <(pkg-config "${flags[@]}" regard)
    gcc -std=c99 -pedantic "${warnings[@]}" "$here/pkg_config/main.c" "${found[@]}" -o "$scratch/pkg_config"
    LD_LIBRARY_PATH=$libdir "$scratch/pkg_config" | tee "$scratch/pkg_config.txt"
    grep -qx "$(pkg-config --modversion regard)" "$scratch/pkg_config.txt"
    ;;
  embed_build)
    cmake -S "$here/embed" -B "$scratch/embed" -G Ninja -DCMAKE_CXX_COMPILER=g++ -DREGARD_SOURCE="$root" \
      "-DREGARD_INSTRUCTION_SETS=generic;avx2" \
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE='-Ofast -flto -march=native' >"$scratch/embed.log"
    ninja -C "$scratch/embed" -j 2 --quiet
    ;;
  embed)
    "$scratch/embed/consumer" >"$scratch/embed.txt"
    diff "$scratch/bits.txt" "$scratch/embed.txt"
    test "$(wc -l <"$scratch/embed.txt")" -eq 6
    ;;
  readme)
    # The first block of C++ in the README.
    awk '/^```/ {inside = ($0 == "```cpp" && !blocks++); next} inside' "$root/README.md" >"$scratch/readme.inc"
    lines=$(wc -l <"$scratch/readme.inc")
    test "$lines" -ge 5 && test "$lines" -le 12
    configure_and_run readme -DCMAKE_PREFIX_PATH="$prefix" -DREADME="$scratch"
    ;;
  header)
    header=$3
    mkdir -p "$scratch/headers"
    for language in c++20 c++23 c99; do
      if [ "$language" = c99 ] && [ "$header" != c_api.h ]; then continue; fi
      compilers=(g++ clang++-19) suffix=cpp
      if [ "$language" = c99 ]; then compilers=(gcc clang-19) suffix=c; fi
      source=$scratch/headers/${header%.h}.$suffix
      printf '#include "regard/%s"\n#include "regard/%s"\n' "$header" "$header" >"$source"
      for compiler in "${compilers[@]}"; do
        "$compiler" -std="$language" -fsyntax-only "${warnings[@]}" -I "$root/include" "$source"
      done
    done
    ;;
  *)
    echo "run.sh: unknown mode $mode" >&2
    exit 2
    ;;
esac

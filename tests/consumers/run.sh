#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds a project against Regard in one of the supported ways and runs it; each mode is a ctest test.
#   run.sh install       BUILD             installs the library, its components and the program, as far as they are built,
#                                          into BUILD/consumers/prefix
#   run.sh find_package  BUILD             find_package, static or shared as BUILD is; writes BUILD/consumers/bits.txt
#   run.sh pkg_config    BUILD             the C interface from C99, with pkg-config
#   run.sh embed_build   BUILD             add_subdirectory under -Ofast -flto -march=native
#   run.sh embed         BUILD             runs the result of embed_build: the same bits
#   run.sh readme        BUILD             the C++ code of README.md, with the numbers of lesson one-function
#   run.sh deb           BUILD             the .deb that cpack writes: its contents, its dependencies, its program
#   run.sh configure     BUILD             configures Regard with missing packages or contradictory options
#   run.sh header        BUILD HEADER      compiles a public header alone (c_api.h: also as C99)
#   run.sh headers       BUILD             compiles all public headers together
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

# configure_and_run NAME [CMAKE ARGUMENT…]: configures, builds and runs the project in the folder NAME from scratch.
configure_and_run() {
  local name=$1
  shift
  rm -rf "${scratch:?}/$name"
  cmake -S "$here/$name" -B "$scratch/$name" -G Ninja -DCMAKE_CXX_COMPILER=g++ "$@" >&2
  ninja -C "$scratch/$name" >&2
  "$scratch/$name/consumer"
}

# explains_lack COMPONENT TEXT: find_package fails because the component is missing, and its message contains TEXT.
explains_lack() {
  rm -rf "$scratch/lack"
  mkdir -p "$scratch/lack"
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(lack LANGUAGES CXX)\nfind_package(regard REQUIRED COMPONENTS %s)\n' \
    "$1" >"$scratch/lack/CMakeLists.txt"
  if cmake -S "$scratch/lack" -B "$scratch/lack/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/lack.log" 2>&1; then return 1; fi
  tr -s ' \n' ' ' <"$scratch/lack.log" | grep -qF "$2"
}

# compiles COMPILER LANGUAGE SOURCE: without a warning.
compiles() {
  ${CMAKE_CXX_COMPILER_LAUNCHER:-} "$1" "-std=$2" "${warnings[@]}" -I "$root/include" -c "$3" -o "$3.o"
}

case $mode in
  install)
    rm -rf "$prefix"
    cmake --install "$build" --prefix "$prefix" --component library
    # Headers that need another component are installed with it: everything declared in the library's headers is defined.
    headers=$prefix/include/regard
    test -f "$headers/attention.h" && test ! -e "$headers/io"
    explains_lack io "is not installed in $prefix; configure Regard with REGARD_IO=ON"
    if compgen -G "$build/src/explain/libregard_explain*" >/dev/null; then
      for component in io model train explain distributed; do
        if [ $component != io ]; then
          explains_lack $component "the component $component is not installed in $prefix; configure Regard with REGARD_${component^^}=ON"
        fi
        test ! -e "$headers/$component"
        cmake --install "$build" --prefix "$prefix" --component $component
        test -d "$headers/$component"
      done
      diff <(cd "$root/include/regard" && find . | sort) <(cd "$headers" && find . | sort)
    fi
    explains_lack nonsense 'there is no component nonsense; expected io, model, train, explain, distributed or mpi'
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
    if compgen -G "$libdir/libregard_explain*" >/dev/null; then components='io;model;explain'; fi
    configure_and_run find_package -DCMAKE_PREFIX_PATH="$prefix" "-DCOMPONENTS=$components" >"$scratch/bits.txt"
    cat "$scratch/bits.txt"
    if [ -n "$components" ]; then "$scratch/find_package/io_consumer" && "$scratch/find_package/explain_consumer" && "$scratch/find_package/distributed_consumer"; fi
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
      "-DREGARD_INSTRUCTION_SETS=generic;avx2" -DCMAKE_UNITY_BUILD=ON \
      -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE='-Ofast -flto -march=native' >"$scratch/embed.log"
    ninja -C "$scratch/embed" -j 2 --quiet
    ;;
  embed)
    "$scratch/embed/consumer" >"$scratch/embed.txt"
    diff "$scratch/bits.txt" "$scratch/embed.txt"
    test "$(wc -l <"$scratch/embed.txt")" -eq 6
    ;;
  readme)
    # The first C++ block of the README.
    awk '/^```/ {inside = ($0 == "```cpp" && !blocks++); next} inside' "$root/README.md" >"$scratch/readme.inc"
    lines=$(wc -l <"$scratch/readme.inc")
    test "$lines" -ge 5 && test "$lines" -le 12
    configure_and_run readme -DCMAKE_PREFIX_PATH="$prefix" -DREADME="$scratch"
    ;;
  deb)
    rm -rf "$scratch/deb"
    cpack --config "$build/CPackConfig.cmake" -B "$scratch/deb" >"$scratch/deb.log"
    package=$(compgen -G "$scratch/deb/regard_*.deb")
    dpkg-deb --extract "$package" "$scratch/deb/unpacked"
    "$scratch/deb/unpacked/usr/bin/regard" --version | grep -qx "regard $(dpkg-deb --field "$package" Version)"
    for file in include/regard/attention.h include/regard/explain/lesson.h share/man/man1/regard.1; do
      test -s "$scratch/deb/unpacked/usr/$file"
    done
    # The packages of the libraries that the program needs, and no other.
    readelf -d "$scratch/deb/unpacked/usr/bin/regard" | grep -oP 'NEEDED.*\[\K[^]]+' | while read -r library; do
      dpkg-query --search "*/$(uname -m)-linux-gnu/$library" | cut -d: -f1 | head -n 1
    done | sort -u >"$scratch/deb/needed"
    dpkg-deb --field "$package" Depends | tr ',' '\n' | sed 's/^ *//; s/ .*//' | sort -u >"$scratch/deb/depends"
    diff "$scratch/deb/needed" "$scratch/deb/depends"
    ;;
  configure)
    # configures EXPECTED-STATUS TEXT [ARGUMENT…]: with these CMake arguments, configuring prints TEXT.
    configures() {
      local expected=$1 text=$2 status=0
      shift 2
      rm -rf "$scratch/configure"
      cmake -S "$root" -B "$scratch/configure" -G Ninja -DCMAKE_CXX_COMPILER=g++ "$@" >"$scratch/configure.log" 2>&1 || status=$?
      tr -s ' \n' ' ' <"$scratch/configure.log" | grep -qF -- "$text"
      test "$status" -eq "$expected"
    }
    only_a_compiler=()
    for package in fmt nlohmann_json CLI11 PNG ZLIB GTest benchmark; do
      only_a_compiler+=("-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON")
    done
    only_a_compiler+=(-DUTF8PROC_LIBRARY=UTF8PROC_LIBRARY-NOTFOUND -DCMAKE_LIBRARY_PATH= -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF)
    packages='libfmt-dev nlohmann-json3-dev libutf8proc-dev'
    configures 0 "-- Left out: regard::io (REGARD_IO), which needs these Debian packages: $packages -- Left out: \
regard::model (REGARD_MODEL), which needs these Debian packages: $packages -- Left out: regard::train (REGARD_TRAIN), which needs these Debian packages: $packages -- Left out: \
regard::explain (REGARD_EXPLAIN), which needs these Debian packages: $packages -- Left out: the program (REGARD_PROGRAM), which needs these Debian packages: $packages libcli11-dev libpng-dev zlib1g-dev" "${only_a_compiler[@]}"
    cmake --build "$scratch/configure" --target help >"$scratch/configure.targets"
    grep -qw regard "$scratch/configure.targets"
    if grep -qE 'regard_(io|model|train|explain|program)' "$scratch/configure.targets"; then exit 1; fi
    configures 1 'regard::io, which another part that is ON needs, needs these Debian packages: libfmt-dev; install them.' \
      -DREGARD_PROGRAM=ON -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON
    configures 1 'REGARD_TESTS=ON needs these Debian packages: libgtest-dev; install them or set REGARD_TESTS=OFF.' \
      -DREGARD_TESTS=ON -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON
    configures 0 '-- Left out: regard::train (REGARD_TRAIN), which needs REGARD_MODEL=ON -- Left out: regard::explain (REGARD_EXPLAIN), which needs REGARD_TRAIN=ON -- Left out: the program' \
      -DREGARD_MODEL=OFF
    configures 1 'REGARD_EXPLAIN=ON needs REGARD_TRAIN=ON; set REGARD_TRAIN=ON or REGARD_EXPLAIN=OFF.' \
      -DREGARD_TRAIN=OFF -DREGARD_EXPLAIN=ON
    mkdir -p "$scratch/without_nanobind"
    echo 'raise ImportError' >"$scratch/without_nanobind/nanobind.py"
    PYTHONPATH=$scratch/without_nanobind \
      configures 1 'REGARD_PYTHON_PACKAGE=ON needs nanobind in /usr/bin/python3; build by `pip install .`' \
      -DREGARD_PYTHON_PACKAGE=ON -DREGARD_PROGRAM=OFF -DPython_EXECUTABLE=/usr/bin/python3
    configures 1 'REGARD_FUZZ=ON needs clang, which brings libFuzzer; this compiler is GNU;' -DREGARD_FUZZ=ON
    ;;
  header)
    # What a header forgets to include depends on the standard library, which both compilers share: one compiler here,
    # both with C++20 and C++23 in ./check slow, and for all headers together.
    header=$3
    mkdir -p "$scratch/headers"
    source=$scratch/headers/${header//\//_}
    printf '#include "regard/%s"\n#include "regard/%s"\n' "$header" "$header" | tee "$source.c" >"$source.cpp"
    compiles g++ c++20 "$source.cpp"
    if [ "${REGARD_EXHAUSTIVE:-}" = 1 ]; then
      compiles g++ c++23 "$source.cpp"
      compiles clang++-19 c++20 "$source.cpp"
      compiles clang++-19 c++23 "$source.cpp"
    fi
    if [ "$header" = c_api.h ]; then
      compiles gcc c99 "$source.c"
      compiles clang-19 c99 "$source.c"
    fi
    ;;
  headers)
    (cd "$root/include" && find regard -name '*.h' ! -path regard/distributed/mpi.h | LC_ALL=C sort | sed 's/.*/#include "&"/') >"$scratch/headers.cpp"
    compiles g++ c++23 "$scratch/headers.cpp"
    compiles clang++-19 c++20 "$scratch/headers.cpp"
    ;;
  *)
    echo "run.sh: unknown mode $mode" >&2
    exit 2
    ;;
esac

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the core of live pages from a copy of the sources, in another folder and without a compiler cache, and compares
# its bytes with those of an existing build: build_again.sh BUILD FOLDER
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
built=$(realpath "$1/wasm") folder=$(realpath -m "$2")

rm -rf "$folder"
mkdir -p "$folder/copy"
cd "$root"
git ls-files -z cmake include src web/core | xargs -0 cp --parents -t "$folder/copy"
version=$(sed -n 's/^REGARD_VERSION:STRING=//p' "$built/CMakeCache.txt")
export CMAKE_C_COMPILER_LAUNCHER='' CMAKE_CXX_COMPILER_LAUNCHER=''
cmake -S "$folder/copy/web/core" -B "$folder/build" -G Ninja --toolchain "$folder/copy/cmake/wasm.cmake" \
  -DCMAKE_BUILD_TYPE=Release -DREGARD_UNICODE_TABLES="$built/unicode" -DREGARD_VERSION="$version"
cmake --build "$folder/build" --target core
cmp "$folder/build/core.wasm" "$built/core.wasm"

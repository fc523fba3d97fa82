# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# Installs the Python and npm packages of the tests: python_environment, create_environments, python_package, typescript.

# python_environment REQUIREMENTS [MEGABYTES]: prints the python of an environment with these requirements. It is created
# once for each requirements file, which names every package that is installed, if MEGABYTES are free; the file `complete`
# is written last. If another process is creating it, this one waits.
python_environment() {
  local environment
  environment=${XDG_CACHE_HOME:-$HOME/.cache}/regard-dev/$(sha256sum "$1" | cut -c1-16)
  mkdir -p "$(dirname "$environment")"
  { flock 8 && { [ -f "$environment/complete" ] || create_environment "$environment" "$@"; }; } 8>"$environment.lock" || return 1
  printf '%s' "$environment/bin/python"
}

create_environment() {
  local environment=$1 requirements=$2 needed=${3:-0} libraries free
  rm -rf "$environment"
  free=$(df --output=avail -BM "$(dirname "$environment")" | tail -n 1 | tr -dc 0-9)
  if [ "$free" -lt "$needed" ]; then
    echo "FAILED: $(dirname "$environment") has $free MB free; installing $requirements needs $needed MB" >&2
    return 1
  fi
  if ! { /usr/bin/python3 -m venv "$environment" && "$environment/bin/python" -m pip install --no-input \
    --disable-pip-version-check --no-deps --require-hashes -r "$requirements"; } >>"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    return 1
  fi
  for libraries in "$environment"/lib/python3*/site-packages/torch/lib; do
    if [ -d "$libraries" ] && ! /usr/bin/python3 .ci/nvidia_stand_ins.py "$libraries" >>"$log" 2>&1; then
      tail -n 20 "$log" >&2
      return 1
    fi
  done
  touch "$environment/complete"
}

frameworks_environment() {
  python_environment tests/requirements-frameworks.txt 4300
}

# create_environments: creates what the chosen stages need. A stage that needs it tries again what failed here.
create_environments() {
  local requirements
  case " ${stages[*]} " in *" python "* | *" mpi "*) python_environment tests/requirements.txt ;; esac
  case " ${stages[*]} " in *" frameworks "*) frameworks_environment ;; esac
  case " ${stages[*]} " in *" page "* | *" wasm "*) python_environment tests/requirements-page.txt ;; esac
  case " ${stages[*]} " in
    *" mpi "*)
      for requirements in tests/distributed/requirements-*.txt; do python_environment "$requirements"; done
      ;;
  esac
} >/dev/null 2>&1

# python_package PYTHON: prints a python that has the package regard of this tree and the packages of PYTHON. The package
# is built by pip as users build it, but with the libraries of the release build; once per run, whose process is noted.
python_package() {
  local environment=$work/python
  local others=$environment/lib/python3.11/site-packages/tests.pth
  local print_folder='import sysconfig; print(sysconfig.get_path("purelib"))'
  if [ "$(cat "$environment/built_by" 2>/dev/null)" = $$ ]; then
    "$1" -c "$print_folder" >"$others" && printf '%s' "$environment/bin/python"
    return
  fi
  if ! { /usr/bin/python3 -m venv --clear "$environment" && "$1" -c "$print_folder" >"$others" &&
    PATH=$(dirname "$1"):$PATH "$environment/bin/python" -m pip install --no-input --disable-pip-version-check --no-index \
      --no-build-isolation --no-deps --config-settings=build-dir="$work/package" \
      --config-settings=cmake.define.REGARD_BUILT="$work/release" --config-settings=cmake.define.REGARD_WERROR=ON \
      --config-settings=cmake.define.CMAKE_CXX_COMPILER=g++ "$root"; } >>"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    return 1
  fi
  echo $$ >"$environment/built_by"
  printf '%s' "$environment/bin/python"
}

# typescript: prints the path of tsc, which checks the types in the comments of web/*.js. It is installed next to the
# Python environments.
typescript() {
  local modules
  modules=${XDG_CACHE_HOME:-$HOME/.cache}/regard-dev/$(sha256sum web/package-lock.json | cut -c1-16)
  if [ ! -f "$modules/complete" ]; then
    rm -rf "$modules"
    mkdir -p "$modules"
    cp web/package.json web/package-lock.json "$modules"
    if ! npm ci --prefix "$modules" --no-audit --no-fund --ignore-scripts >>"$log" 2>&1 </dev/null; then
      tail -n 20 "$log" >&2
      return 1
    fi
    touch "$modules/complete"
  fi
  printf '%s' "$modules/node_modules/typescript/bin/tsc"
}

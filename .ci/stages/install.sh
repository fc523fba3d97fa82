# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# Installs the packages that the chosen stages need: Debian's now, those of Python while other stages compile.

packages=(g++ cmake ninja-build ccache git python3 python3-venv pkgconf libcli11-dev libfmt-dev nlohmann-json3-dev
  libutf8proc-dev zlib1g-dev libpng-dev libgtest-dev libbenchmark-dev clang-19 clang-format-19 libclang-rt-19-dev
  lld-19 wasi-libc libc++-19-dev-wasm32 libc++abi-19-dev-wasm32 libclang-rt-19-dev-wasm32 libopenmpi-dev
  openmpi-bin doxygen shellcheck dpkg-dev file)
case " ${stages[*]} " in *" slow "*) packages+=(clang-tidy-19 firefox-esr g++-aarch64-linux-gnu qemu-user-static iproute2) ;; esac
case " ${stages[*]} " in *" python "* | *" frameworks "* | *" mpi "*) packages+=(python3-dev) ;; esac
case " ${stages[*]} " in *" python "*) packages+=(zsh fish mandoc) ;; esac
case " ${stages[*]} " in *" wasm "*) packages+=(chromium-headless-shell) ;; esac
case " ${stages[*]} " in *" page "*) packages+=(chromium-headless-shell fonts-dejavu-core fonts-noto-cjk fonts-noto-color-emoji) ;; esac
install_packages "${packages[@]}" || exit 1

# A group of its own, so that no installation outlives ./check.
set -m
create_environments 9>&- &
set +m
creating=$!
trap 'kill -- -$creating 2>/dev/null' EXIT

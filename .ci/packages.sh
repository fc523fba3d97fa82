# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# install_packages NAME…: ensures that these Debian packages are installed; sourced by ./demo and ./check.
# Installs the packages that dpkg-query does not find, as root or through sudo without a password. If it cannot or must
# not install (no root, another system, REGARD_NO_INSTALL=1), it prints what to do and returns 1. The packages are listed
# in docs/guide/installing.md.

install_packages() {
  local name missing=() system=""
  for name in "$@"; do
    case "$(dpkg-query -W -f '${Status}' "$name" 2>/dev/null)" in
      "install ok installed" | "hold ok installed") ;;
      *) missing+=("$name") ;;
    esac
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  [ -r /etc/os-release ] && system=$(. /etc/os-release && printf '%s' "${ID:-}")
  case "$system" in
    debian | ubuntu) ;;
    *)
      printf 'regard: this system is not Debian or Ubuntu; install the equivalents of these Debian packages: %s\n' "${missing[*]}" >&2
      return 1
      ;;
  esac

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo -n); fi
  if [ "${REGARD_NO_INSTALL:-0}" = 1 ] || { [ ${#as_root[@]} -gt 0 ] && ! sudo -n true 2>/dev/null; }; then
    printf 'regard: missing packages; run:  sudo apt-get install --no-install-recommends %s\n' "${missing[*]}" >&2
    return 1
  fi

  printf 'Installing %s\n' "${missing[*]}" >&2
  # sudo clears the environment, and apt reads only the lower-case names.
  local settings=(DEBIAN_FRONTEND=noninteractive)
  for name in http_proxy https_proxy ftp_proxy no_proxy; do
    local upper=${name^^}
    local value=${!name:-${!upper:-}}
    if [ -n "$value" ]; then settings+=("$name=$value"); fi
  done
  local apt=("${as_root[@]}" env "${settings[@]}" apt-get -q -y
    -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
  {
    "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"
  } </dev/null >&2 || {
    printf 'regard: the installation failed; run:  sudo apt-get install --no-install-recommends %s\n' "${missing[*]}" >&2
    return 1
  }
}

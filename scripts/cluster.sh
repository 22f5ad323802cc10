#!/usr/bin/env bash
# Builds a release and runs a cluster in one process until Ctrl-C; takes the options of
# `heliograph dev`, for example: scripts/cluster.sh --nodes 1 --port 0
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cargo build --release --locked -q --manifest-path "$root/Cargo.toml"
exec "${CARGO_TARGET_DIR:-$root/target}/release/heliograph" dev "$@"

#!/usr/bin/env bash
# Prints the first figures of a release build, Apache Kafka beside it in the same run.
# Exit code 1 below half of a bar; what is below 80 % of one is marked SHORT. Takes a few minutes.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
scripts/setup.sh
cargo build --release --locked
export HELIOGRAPH_BIN="${CARGO_TARGET_DIR:-$root/target}/release/heliograph"
exec .venv/bin/python tests/interop/bench.py

#!/usr/bin/env bash
# Starts a real Apache Kafka, and lets the demo mirror a topic out of it, cut the link and
# fail over.
# Its only argument is how many Kafka nodes to start (1). Everything is gone at the end.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
scripts/setup.sh
cargo build --release --locked -q
export HELIOGRAPH_BIN="${CARGO_TARGET_DIR:-$root/target}/release/heliograph"
exec .venv/bin/python tests/interop/mirror_demo.py "$@"

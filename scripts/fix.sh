#!/usr/bin/env bash
# Rewrites what a tool can rewrite: the format, and what clippy can mend by itself. The gate
# (scripts/check.sh) only reads; this alone writes. Golden files: INSTA_UPDATE=always cargo test.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo fmt --all
cargo clippy --workspace --all-targets --all-features --fix --allow-dirty --allow-staged -q
cargo fmt --all

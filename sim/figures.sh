#!/usr/bin/env bash
# All figures anew: sweeps both tiers, writes tables and plots to target/sim, and the block of docs/guarantees.md.
#
# sim/figures.sh [PROTOCOL_SEEDS [NODE_SEEDS]]
set -euo pipefail
cd "$(dirname "$0")/.."

out=target/sim
mkdir -p "$out"
cargo build --release -p tidegate-sim --bin tidegate-sim
sim="${CARGO_TARGET_DIR:-target}/release/tidegate-sim"
"$sim" sweep --tier protocol --seeds "${1:-10000}" --json >"$out/protocol.json"
"$sim" sweep --tier node --seeds "${2:-200}" --json >"$out/node.json"
"$sim" report "$out/protocol.json" "$out/node.json" --out "$out" --docs docs/guarantees.md

"""Starts a real Kafka, runs `heliograph demo --source` against it, ends with the demo's exit code.

Owns nothing but the order: the harness owns the Kafka, the demo owns every check.
"""

import subprocess
import sys

import harness


def main():
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    print(f"starting a Kafka of {nodes} node(s)", flush=True)
    with harness.Kafka(nodes=nodes) as source:
        command = [harness.heliograph_binary(), "demo", "--source", source.bootstrap]
        return subprocess.run([str(part) for part in command]).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

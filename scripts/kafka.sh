#!/usr/bin/env bash
# Apache Kafka from Maven, for tests and benchmarks only.
#
#   scripts/kafka.sh fetch            brings the jars into .kafka/libs/<version>, once
#   scripts/kafka.sh run CLASS ARGS   runs a class, e.g. org.apache.kafka.tools.TopicCommand
#
# Nothing here starts a broker: tests/interop/harness.py does, and owns the processes it starts.
set -euo pipefail

version=4.4.0
log4j=2.25.5
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
libs="$root/.kafka/libs/$version"

have_tools() {
  command -v java >/dev/null && command -v javac >/dev/null && command -v mvn >/dev/null
}

install_tools() {
  have_tools && return
  echo "kafka.sh: installing a JDK and Maven"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    default-jdk-headless maven >/dev/null
}

write_pom() {
  artifact() {
    printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId>' "$1" "$2"
    printf '<version>%s</version></dependency>\n' "$3"
  }
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0">'
    echo '<modelVersion>4.0.0</modelVersion>'
    echo '<groupId>heliograph</groupId><artifactId>kafka</artifactId><version>1</version>'
    echo '<packaging>pom</packaging><dependencies>'
    artifact org.apache.kafka kafka_2.13 "$version"
    artifact org.apache.kafka kafka-tools "$version"
    artifact org.apache.kafka connect-runtime "$version"
    artifact org.apache.logging.log4j log4j-slf4j-impl "$log4j"
    artifact org.apache.logging.log4j log4j-1.2-api "$log4j"
    echo '</dependencies></project>'
  } >"$1"
}

fetch() {
  install_tools
  [ -e "$libs/.complete" ] && return
  local staging="$root/.kafka/staging.$$"
  rm -rf "$staging" "$libs"
  mkdir -p "$staging" "$(dirname "$libs")"
  write_pom "$staging/pom.xml"
  for attempt in 1 2 3; do
    if mvn -q -B -Dstyle.color=never -f "$staging/pom.xml" dependency:copy-dependencies \
      -DoutputDirectory="$staging/libs" -DincludeScope=runtime; then
      mv "$staging/libs" "$libs"
      rm -rf "$staging"
      touch "$libs/.complete"
      echo "kafka.sh: Kafka $version is in $libs ($(find "$libs" -name '*.jar' | wc -l) jars)"
      return
    fi
    echo "kafka.sh: attempt $attempt at Maven failed" >&2
  done
  echo "kafka.sh: could not bring Kafka $version by Maven; see the messages above" >&2
  exit 1
}

case "${1:-}" in
  fetch) fetch ;;
  run)
    shift
    [ -e "$libs/.complete" ] || fetch
    exec java -Xmx256m -cp "$libs/*" "$@"
    ;;
  *)
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 1
    ;;
esac

#!/usr/bin/env bash
# Runs `bazel build ARGS…` with visible progress: Bazel's own on a terminal, elsewhere one line every ten seconds.
set -uo pipefail

if [[ -t 2 ]]; then
  exec bazel build --show_progress --ui_event_filters=-info "$@"
fi

log=$(mktemp)
waited=0
trap 'rm -f "$log"' EXIT
# With --curses Bazel reports each action, also into a file.
bazel build --show_progress --curses=yes --color=no --ui_event_filters=-info "$@" >"$log" 2>&1 &
pid=$!
trap 'kill -INT "$pid" 2>/dev/null' INT TERM
while kill -0 "$pid" 2>/dev/null; do
  if ((++waited % 10 == 0)); then
    actions=$(tail -c 4000 "$log" | grep -aoE '\[[0-9,]+ / [0-9,]+\]' | tail -n 1)
    echo "building: ${actions:-loading packages}, ${SECONDS} s" >&2
  fi
  sleep 1
done
wait "$pid"
status=$?
# All but the progress: messages of Bazel and the compiler.
if [[ $status -ne 0 ]]; then
  sed 's/\x1b\[[0-9;]*[A-Za-z]//g; s/\r//g' "$log" | grep -avE '^(\[[0-9,]+ / [0-9,]+\]|Loading:|Analyzing:|INFO:| {4,}(Compiling|Linking)|$)' >&2
else
  echo "built in ${SECONDS} s" >&2
fi
exit "$status"

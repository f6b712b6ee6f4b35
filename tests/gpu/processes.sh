# shellcheck shell=bash
# Part of run.sh: processes with time limits.

# Exit status of in_own_process at the time limit.
readonly TIMED_OUT=124

# pause SECONDS, without a process
pause() { read -rt "$1" <> <(:) || true; }

# within COMMAND…: ends the command before its part is ended, so that the part reports a program that hangs
within() {
  program_limit=$(seconds_left)
  timeout -k 5 "$program_limit" "$@"
}

# seconds_left → nine tenths of the time until the part must end, at least one second
seconds_left() {
  local left=$(((part_ends - SECONDS) * 9 / 10))
  echo $((left > 0 ? left : 1))
}

# why STATUS LOG → why a command that was run by `within` failed: the time limit or the log's last line
why() {
  case $1 in
    124 | 137) echo "timed out after $program_limit s" ;;
    127) echo "no such program" ;;
    *) echo "exit status $1: $(sed '/^[[:space:]]*$/d' "$2" | tail -n 1 | cut -c 1-300)" ;;
  esac
}

# in_own_process LOG SECONDS FUNCTION: runs the function in $work, its output to LOG and stdout; returns its status, or
# TIMED_OUT, also if run.sh is interrupted
in_own_process() {
  local output logger process deadline=$((SECONDS + $2)) status=0
  # Without the environment, so that end_processes leaves it alone.
  exec {output}> >(exec env -i tee "$1")
  logger=$!
  (cd "$work" && "$3") >&"$output" 2>&1 {output}>&- &
  process=$!
  exec {output}>&-
  while kill -0 "$process" 2>/dev/null && ((SECONDS < deadline && interrupted == 0)); do pause 0.1; done
  if kill -9 "$process" 2>/dev/null; then
    wait "$process" 2>/dev/null
    status=$TIMED_OUT
  else
    wait "$process" || status=$?
  fi
  end_processes
  wait "$logger"
  return "$status"
}

# → pids of the processes that were started by parts: $work is in the environment of all
processes() {
  local file
  for file in $(env -i grep -lasF "$work" /proc/[0-9]*/environ); do
    file=${file#/proc/}
    echo "${file%/environ}"
  done
}

# Ends all processes that parts have started, such as those of a part that timed out.
end_processes() {
  local signal turn running
  for signal in TERM KILL; do
    mapfile -t running < <(processes)
    ((${#running[@]} > 0)) || return 0
    kill -s "$signal" "${running[@]}" 2>/dev/null
    for turn in {1..50}; do
      [[ -n $(processes) ]] || return 0
      pause 0.1
    done
  done
}

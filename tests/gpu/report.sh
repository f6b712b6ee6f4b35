# shellcheck shell=bash
# Part of run.sh: what parts report, and the files that are made of it.

# Exit status of a part that calls skip.
readonly SKIPPED=77

# ---- called by parts

# record NAME JSON: adds a result of this part to results.json
record() { printf '%s\n' "$2" >"$folder/found/$1.json"; }

# problem TEXT: reports a failure of this part, and returns 1
problem() {
  local text=${1//[[:cntrl:]]/ }
  echo "failed: $text"
  echo "$text" >>"$folder/problems"
  return 1
}

# skip REASON: the result of a part that cannot run on this machine
skip() {
  echo "$1" >"$folder/skipped"
  return $SKIPPED
}

# ---- JSON

# json_value FILE KEY → the first value of the key, a number or text
json_value() {
  grep -o "\"$2\": *[^,}]*" "$1" | head -n 1 | sed 's/^[^:]*: *//; s/^"//; s/" *$//'
}

json_text() {
  local text=${1//\\/\\\\}
  text=${text//$'\t'/ }
  printf '"%s"' "${text//\"/\\\"}"
}

# found_in FOLDER → the object of all files NAME.json in the folder
found_in() {
  local file separator=
  printf '{'
  for file in "$1"/*.json; do
    [[ -s $file ]] || continue
    printf '%s%s: %s' "$separator" "$(json_text "$(basename "$file" .json)")" "$(<"$file")"
    separator=', '
  done
  printf '}'
}

# ---- the report

states=()  # state of each part that was run
results=() # their entries in results.json
table=$(printf '%-11s %5s  %-8s %s' part time state reason)

# summary_of FILE → its first line, and the number of others
summary_of() {
  local others
  others=$(($(wc -l <"$1") - 1))
  head -n 1 "$1" | tr -d '\n'
  ((others == 0)) || printf ' (and %d more)' "$others"
}

# report_part NAME STATE REASON SECONDS
report_part() {
  states+=("$2")
  table+=$(printf '\n%-11s %3d s  %-8s %s' "$1" "$4" "$2" "$3")
  results+=("$(json_text "$1"): {\"state\": \"$2\", \"reason\": $(json_text "$3"), \"seconds\": $4, \"found\": $(found_in "$out/$1/found")}")
}

any_failed() { [[ " ${states[*]} " == *" failed "* ]]; }

# keep_logs FROM TO: moves a part's directories, without access tokens, sockets and large files
keep_logs() {
  find "$1" \( -name 'token*' -o -type s -o -type f -size +4M \) -prune -exec rm -rf {} +
  mv "$1" "$2"
}

# Writes results.json, summary.txt and the archive.
finish_report() {
  (
    IFS=,
    printf '{"device": %s, "driver": %s, "date": "%s", "parts": {%s}}\n' "$(json_text "$device")" \
      "$(json_text "$driver")" "$(date -u +%F)" "${results[*]}"
  ) >"$out/results.json"
  echo "$table" | tee "$out/summary.txt"
  tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")" && echo "$out.tar.gz"
}

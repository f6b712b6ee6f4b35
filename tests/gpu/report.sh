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
  grep -oE "\"$2\": *(\"([^\"\\\\]|\\\\.)*\"|[^,}]*)" "$1" | head -n 1 | sed -E 's/^[^:]*: *//; s/^"//; s/" *$//; s/\\(.)/\1/g'
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

# summary_of FILE → its first line, and the number of others
summary_of() {
  local others
  others=$(($(wc -l <"$1") - 1))
  head -n 1 "$1" | tr -d '\n'
  ((others == 0)) || printf ' (and %d more)' "$others"
}

# report_part NAME STATE REASON SECONDS: writes the part's entry of results.json
report_part() {
  printf '{"state": "%s", "reason": %s, "seconds": %d, "device": %s, "driver": %s, "date": "%s", "found": %s}\n' "$2" \
    "$(json_text "$3")" "$4" "$(json_text "$device")" "$(json_text "$driver")" "$(date -u +%F)" \
    "$(found_in "$out/$1/found")" >"$out/$1/result.json"
}

# reported → the parts with an entry, in order
reported() {
  local part
  for part in "${ALL_PARTS[@]}"; do [[ ! -s $out/$part/result.json ]] || echo "$part"; done
}

# state_of PART → passed, failed, skipped, or nothing if it was not run
state_of() { [[ ! -s $out/$1/result.json ]] || json_value "$out/$1/result.json" state; }

# had_no_time PART: succeeds if the part has not been run, or not to its end
had_no_time() {
  case $(state_of "$1") in
    "") return 0 ;;
    skipped) [[ $(json_value "$out/$1/result.json" reason) =~ ^(no time|interrupted)$ ]] ;;
    *) return 1 ;;
  esac
}

any_failed() {
  local part
  for part in "${parts[@]}"; do [[ $(state_of "$part") != failed ]] || return 0; done
  return 1
}

# Restores the results of an earlier call from the archive if its folder is gone.
continue_results() {
  if [[ -z $(reported) && -s $out.tar.gz ]]; then tar -xzf "$out.tar.gz" -C "$(dirname "$out")"; fi
  [[ -n $(reported) ]] || { echo "run.sh: neither $out nor $out.tar.gz has results to continue" >&2; exit 66; }
}

# keep_logs FROM TO: moves a part's directories, without access tokens, sockets and large files
keep_logs() {
  find "$1" \( -name 'token*' -o -type s -o -type f -size +4M \) -prune -exec rm -rf {} +
  mv "$1" "$2"
}

# Writes results.json, summary.txt and the archive.
write_report() {
  local part separator='' without_time=''
  {
    printf '%-11s %5s  %-8s %s\n' part time state reason
    for part in $(reported); do
      printf '%-11s %3d s  %-8s %s\n' "$part" "$(json_value "$out/$part/result.json" seconds)" "$(state_of "$part")" \
        "$(json_value "$out/$part/result.json" reason)"
    done
    for part in "${ALL_PARTS[@]}"; do had_no_time "$part" && without_time+=" $part"; done
    [[ -z $without_time ]] || echo "no time for:$without_time; run.sh --rest continues with these parts"
  } >"$out/summary.txt"
  {
    printf '{"parts": {'
    for part in $(reported); do
      printf '%s\n%s: %s' "$separator" "$(json_text "$part")" "$(<"$out/$part/result.json")"
      separator=,
    done
    printf '\n}}\n'
  } >"$out/results.json"
  archive_scrubbed
}

# shellcheck shell=bash
# Part of run.sh: an archive of the results that does not identify the machine or its user.

# Names of this machine and its user, one per line, the longest form of a name first.
machine_names=$({
  uname -n
  timeout 2 hostname -f
  cat /etc/hostname
  id -un
  printf '%s\n' "${USER:-}" "${LOGNAME:-}" "$(basename "${HOME:-/}")"
} 2>/dev/null | sed '/\./{p;s/\..*//;}' | grep -vxE '|/|root|localhost|localdomain|muster' | sort -ru)
readonly machine_names

# make_scrubber → sed's program that replaces names, also of another machine where NCCL's lines begin with them, addresses,
# UUIDs, serial numbers, and paths outside the system's folders
make_scrubber() {
  local edge='(^|[^[:alnum:]_])' end='($|[^[:alnum:]_])' hex='[0-9a-fA-F]' group='[0-9a-fA-F]{1,4}' word
  # Twice, because a match ends at the character with which the next one begins.
  for _ in 1 2; do
    while read -r word; do
      [[ -z $word ]] || echo "s/$edge$(sed 's/[][\\.*^$+?(){}|/]/\\&/g' <<<"$word")$end/\\1NAME\\2/g"
    done <<<"$machine_names"
    echo "s/$edge[0-9]{1,3}(\.[0-9]{1,3}){3}$end/\\1ADDRESS\\3/g"
    echo "s/(^|[^[:alnum:]_:])$group(:$group){4,7}$end/\\1ADDRESS\\3/g"
    echo "s/(^|[^[:alnum:]_:])($group(:$group)*)?::($group(:$group)*)?($|[^[:alnum:]_:])/\\1ADDRESS\\6/g"
  done
  cat <<EOF
s/^[[:alnum:]._-]+(:[0-9]+:[0-9]+ (\[[0-9]+\] )?NCCL )/NAME\\1/
s/$hex{8}(-$hex{4}){3}-$hex{12}/UUID/g
s/([Ss]erial[^:=]*[:=] *"?)[[:alnum:]-]+/\\1SERIAL/g
s/[[:alnum:]._%+-]+@[[:alnum:]-]+(\.[[:alnum:]-]+)+/EMAIL/g
s#://[^[:space:]"]+#://ADDRESS#g
s#(^|[^[:alnum:]_./)])(/(usr|lib|lib64|proc|sys|dev)(/[][[:alnum:]_.+@%~-]*)*)#\\1\\x01\\2#g
s#(^|[^[:alnum:]_./)\\x01])(/[^][:space:]/"',;:|<>(){}]+)(/[^][:space:]"',;:|<>(){}]*)+#\\1PATH#g
s#\\x01##g
EOF
}
scrubber=$(make_scrubber)
readonly scrubber

# Writes the text files of $out, scrubbed, to $out.tar.gz.
archive_scrubbed() {
  local file copy=$work/scrubbed name=${out##*/}
  while IFS= read -r -d '' file; do
    # Files of earlier parts have not changed since the last archive.
    [[ $out/$file -nt $copy/$name/$file ]] || continue
    mkdir -p "$copy/$name/${file%/*}"
    sed -E "$scrubber" "$out/$file" >"$copy/$name/$file" || return
  done < <(cd "$out" && grep -rIlZ '' .)
  # No archive with a name that the expressions above have missed.
  if [[ -n $machine_names ]] && grep -rqwF "$machine_names" "$copy"; then
    echo "run.sh: $out.tar.gz is not written: names of this machine remain in" "$(grep -rlwF "$machine_names" "$copy" | head -n 3)" >&2
    return 1
  fi
  tar -czf "$out.tar.gz.new" -C "$copy" "$name" && mv "$out.tar.gz.new" "$out.tar.gz"
}

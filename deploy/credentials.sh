#!/usr/bin/env bash
# Makes the certificates, tokens and settings of a cluster: per machine a folder whose files belong in its /etc/muster.
#
#   credentials.sh FOLDER COORDINATOR[,NAME_OR_ADDRESS…] NODE…
#
# COORDINATOR and the names and addresses after it are those by which workers and users call the coordinator; the workers
# use the first. NODE is the host name of a node. Writes
#
#   FOLDER/ca.key, ca.pem    the cluster's certificate authority; keep ca.key to yourself
#   FOLDER/coordinator/      for the coordinator's machine
#   FOLDER/nodes/NODE/       for each node
#   FOLDER/admin/            for you: MUSTER_CONFIG=FOLDER/admin/config
#
# Called again, it keeps the authority, the tokens and the settings, adds nodes, and renews the certificates, which are
# valid for a year.
set -euo pipefail
(($# >= 3)) || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
IFS=, read -ra names <<<"$2"
coordinator=${names[0]}
shift 2
umask 077

key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
[[ -e $folder/ca.key ]] || openssl req -x509 "${key[@]}" -days 3650 -subj "/CN=Muster CA" \
  -keyout "$folder/ca.key" -out "$folder/ca.pem" 2>/dev/null

# issue FOLDER NAME NAME_OR_ADDRESS…: a certificate NAME.pem with its key, and the authority's.
issue() {
  local out=$1 name=$2 subjects='' subject
  shift 2
  for subject in "$@"; do
    if [[ $subject =~ ^[0-9.]+$|: ]]; then subjects+=,IP:$subject; else subjects+=,DNS:$subject; fi
  done
  mkdir -p "$out"
  openssl req -new "${key[@]}" -subj "/CN=$1" -keyout "$out/$name.key" -out "$out/$name.csr" 2>/dev/null
  openssl x509 -req -in "$out/$name.csr" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" -CAcreateserial -days 365 \
    -extfile <(echo "subjectAltName=${subjects#,}") -out "$out/$name.pem" 2>/dev/null
  rm "$out/$name.csr"
  cp "$folder/ca.pem" "$out/ca.pem"
}

issue "$folder/coordinator" coordinator "${names[@]}"
if [[ ! -e $folder/coordinator/tokens ]]; then
  printf 'admin %s admin\nworker %s nodes\n' "$(openssl rand -hex 32)" "$(openssl rand -hex 32)" \
    >"$folder/coordinator/tokens"
fi
[[ -e $folder/coordinator/coordinator ]] || cat >"$folder/coordinator/coordinator" <<END
listen=0.0.0.0:7070
data-dir=/var/lib/muster/coordinator
tokens=/etc/muster/tokens
tls-cert=/etc/muster/coordinator.pem
tls-key=/etc/muster/coordinator.key
tls-ca=/etc/muster/ca.pem
END

for node in "$@"; do
  out=$folder/nodes/$node
  issue "$out" node "$node"
  awk '$1 == "worker" { print $2; exit }' "$folder/coordinator/tokens" >"$out/worker.token"
  [[ -e $out/worker ]] || cat >"$out/worker" <<END
coordinator=$coordinator:7070
name=$node
data-dir=/var/lib/muster-worker
token-file=/etc/muster/worker.token
tls-ca=/etc/muster/ca.pem
tls-cert=/etc/muster/node.pem
tls-key=/etc/muster/node.key
END
done

issue "$folder/admin" admin admin
awk '$1 == "admin" { print $2; exit }' "$folder/coordinator/tokens" >"$folder/admin/token"
[[ -e $folder/admin/config ]] || cat >"$folder/admin/config" <<END
coordinator=$coordinator:7070
token-file=$folder/admin/token
tls-ca=$folder/admin/ca.pem
tls-cert=$folder/admin/admin.pem
tls-key=$folder/admin/admin.key
END
echo "written: $folder/coordinator, $folder/nodes/{$(IFS=,; echo "$*")}, $folder/admin"

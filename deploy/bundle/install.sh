#!/usr/bin/env bash
# Installs Muster from the unpacked bundle that contains this script.
#
#   install.sh                      the programs, in /opt/muster with links in /usr/local/bin; for users other than root
#                                   in ~/.local/muster with links in ~/.local/bin
#   install.sh coordinator          and the coordinator as a service of systemd
#   install.sh worker [HOST:PORT]   and the worker as a service, for the coordinator at HOST:PORT (127.0.0.1:7070)
#
# With a newer bundle it upgrades: jobs continue. Existing files in /etc/muster are kept.
set -euo pipefail

fail() { echo "install.sh: $*" >&2; exit 1; }

source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
service=${1:-}
coordinator=${2:-127.0.0.1:7070}
case "$service" in
'' | coordinator | worker) ;;
*) fail "'$service' is neither coordinator nor worker" ;;
esac
if [[ $(id -u) -eq 0 ]]; then
  prefix=/opt/muster links=/usr/local/bin
else
  [[ -z $service ]] || fail "only root can install a service; without root, start ~/.local/bin/muster-$service yourself"
  prefix=$HOME/.local/muster links=$HOME/.local/bin
fi

# The new programs replace the old ones at once; programs that run keep their files.
if [[ $source != "$prefix" ]]; then
  mkdir -p "$(dirname "$prefix")" "$links"
  rm -rf "$prefix.new" "$prefix.old"
  cp -a "$source" "$prefix.new"
  if [[ $(id -u) -eq 0 ]]; then chown -R root:root "$prefix.new"; fi
  if [[ -e $prefix ]]; then mv "$prefix" "$prefix.old"; fi
  mv "$prefix.new" "$prefix"
  rm -rf "$prefix.old"
fi
for program in muster muster-coordinator muster-worker; do
  ln -sf "$prefix/bin/$program" "$links/$program"
done
echo "installed $("$links/muster" version | head -n 1) in $prefix, with links in $links"
[[ -n $service ]] || exit 0

getent passwd muster >/dev/null ||
  useradd --system --user-group --home-dir /var/lib/muster --no-create-home --shell /usr/sbin/nologin muster
mkdir -p /etc/muster
case "$service" in
coordinator) settings="data-dir=/var/lib/muster/coordinator" ;;
worker) settings="coordinator=$coordinator"$'\n'"data-dir=/var/lib/muster-worker" ;;
esac
[[ -e /etc/muster/$service ]] || echo "$settings" >"/etc/muster/$service"
install -m 0644 "$prefix/share/systemd/muster-$service.service" /etc/systemd/system
[[ -d /run/systemd/system ]] || { echo "systemd does not run here: start $links/muster-$service yourself"; exit 0; }
systemctl daemon-reload
if ! systemctl is-active --quiet "muster-$service"; then
  systemctl enable --now "muster-$service"
elif [[ $service == worker ]]; then
  systemctl reload muster-worker  # hands over: the ranks continue
else
  systemctl restart muster-coordinator
fi
echo "muster-$service runs with the settings in /etc/muster/$service"

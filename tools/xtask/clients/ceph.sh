#!/bin/sh
# A cluster of Ceph on one host, all of whose messages go over verbs: a monitor, an object store in memory (no manager), and clients that store
# objects, read them back and compare. Called with the host's address and a free port; everything is below a folder that is removed at the end.
set -eu
address=$1 port=$2
folder=$(mktemp -d)
stop() {
    for file in "$folder"/*.pid; do
        [ -e "$file" ] || continue
        pid=$(cat "$file")
        kill "$pid"
        for _ in $(seq 100); do
            kill -0 "$pid" 2>/dev/null || continue 2
            sleep 0.1
        done
        kill -9 "$pid"
    done
    rm -rf "$folder"
}
trap stop EXIT
cd "$folder"
mkdir mon osd
id=$(cat /proc/sys/kernel/random/uuid)
monitor="[v2:$address:$port,v1:$address:$((port + 1))]"
cat >ceph.conf <<END
[global]
fsid = $id
mon host = $monitor
public addr = $address
cluster addr = $address
ms type = async+rdma
ms async rdma device name = verbena0
auth cluster required = none
auth service required = none
auth client required = none
keyring = $folder/keyring
mon data = $folder/mon
osd data = $folder/osd
mon data avail warn = 1
mon data avail crit = 0
log file = $folder/\$name.log
pid file = $folder/\$name.pid
admin socket = $folder/\$name.asok
run dir = $folder
osd objectstore = memstore
memstore device bytes = 1073741824
osd pool default size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
END
export CEPH_CONF="$folder/ceph.conf"
ceph() { timeout 60 /usr/bin/ceph "$@"; }
rados() { timeout 60 /usr/bin/rados -p objects "$@"; }
{
    ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *'
    ceph-authtool keyring --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *'
    monmaptool --create --addv a "$monitor" --fsid "$id" monmap
    ceph-mon --mkfs -i a --monmap monmap --keyring keyring
    ceph-mon -i a
    ceph osd create
    ceph-osd -i 0 --mkfs --osd-uuid "$(cat /proc/sys/kernel/random/uuid)"
    ceph osd crush add osd.0 1 host=host root=default
    ceph-osd -i 0
    ceph osd pool create objects 8
} >commands.log 2>&1 || { cat commands.log; exit 1; }

for size in 1 4096 1000000 4194304; do
    head -c "$size" /dev/urandom >"object-$size"
    rados put "object-$size" "object-$size"
    rados get "object-$size" back
    cmp "object-$size" back
done
rados bench 2 write -b 65536 -t 8 --no-cleanup | grep Bandwidth
rados bench 2 seq -t 8 | grep Bandwidth
# What the object store sent and received over its queue pairs.
ceph daemon osd.0 perf dump >counters
sent=$(sed -n 's/.*"tx_bytes": \([0-9]*\).*/\1/p' counters | awk '{ sum += $1 } END { print sum + 0 }')
received=$(sed -n 's/.*"rx_bytes": \([0-9]*\).*/\1/p' counters | awk '{ sum += $1 } END { print sum + 0 }')
echo "osd.0 sent $sent and received $received bytes over RDMA"
[ "$sent" -gt 5000000 ] && [ "$received" -gt 5000000 ]
echo "all good"

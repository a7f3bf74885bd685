#!/bin/sh
# Our NBD server against nbdkit's memory plugin and qemu-nbd, and our vhost-user-blk
# against qemu-storage-daemon's, in one run: IOPS and the server's CPU time per I/O.
# 4 KiB, half reads, anywhere in 1 GiB. Servers are measured in turn, several times; a figure is
# the median of its rounds, a ratio that of the ratios within each round.
# Usage: benches/serve.sh [SECONDS [ROUNDS]]; BLKLAB names the program. RECORD=DIR gets the tables
# as CSV, of which `blklab-docs evidence servers` makes a page.
set -eu

seconds=${1:-2}
rounds=${2:-3}
blklab=${BLKLAB:-target/release/blklab}
place=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null || :; wait 2>/dev/null || :; rm -rf "$place"' EXIT

have() { command -v "$1" >/dev/null 2>&1; }

# serve NAME COMMAND...: starts a server and waits for its socket.
serve() {
    name=$1
    shift
    "$@" >/dev/null 2>"$place/$name.log" &
    eval "pid_$name=$!"
    pids="$pids $!"
    tries=0
    until [ -S "$place/$name.sock" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { cat "$place/$name.log"; exit 1; }
        sleep 0.1
    done
}

# User and system time of a server, in ticks.
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }

with_load() { # uri depth jobs
    "$blklab" load "$1" --depth "$2" --connections "$3" --seconds "$seconds" |
        sed -n 's/.*IOPS=\([0-9]*\),.*/\1/p'
}

with_fio() { # uri depth jobs
    fio --name=b --ioengine=nbd --uri="$1" --rw=randrw --bs=4k --iodepth="$2" \
        --numjobs="$3" --size=1G --norandommap --randrepeat=0 --time_based \
        --runtime="$seconds" --group_reporting --minimal 2>/dev/null |
        awk -F';' 'NF > 50 {print $8; print $49}'
}

# uri NAME: where clients find a server.
uri() {
    case $1 in
        v_*) echo "vhost-user:$place/$1.sock" ;;
        *) echo "nbd+unix:///?socket=$place/$1.sock" ;;
    esac
}

# measure CLIENT NAME DEPTH JOBS: "IOPS us-of-CPU-per-I/O percent-busy"
measure() {
    eval "pid=\$pid_$2"
    uri=$(uri "$2")
    before=$(ticks "$pid")
    iops=$("with_$1" "$uri" "$3" "$4" | awk '{sum += $1} END {print sum}')
    after=$(ticks "$pid")
    echo "$iops $before $after $seconds $(getconf CLK_TCK)" | awk '{
        cpu = ($3 - $2) / $5
        printf "%d %.2f %d\n", $1, cpu * 1e6 / ($1 * $4), 100 * cpu / $4
    }'
}

serve none "$blklab" serve --socket "$place/none.sock" --memory 1G
serve mqd "$blklab" serve --socket "$place/mqd.sock" --memory 1G --scheduler mq-deadline
servers="none mqd"
if have nbdkit; then
    serve nbdkit nbdkit -f -U "$place/nbdkit.sock" memory 1G
    servers="nbdkit $servers"
fi
if have qemu-nbd && [ -d /dev/shm ]; then
    image="$place/image"
    truncate -s 1G "$image"
    serve qemu qemu-nbd -f raw -k "$place/qemu.sock" -e 16 -t "$image"
    servers="$servers qemu"
fi
clients=load
have fio && clients="$clients fio"

# The disks of virtual machines.
serve v_none "$blklab" serve --vhost-user "$place/v_none.sock" --memory 1G
serve v_mqd "$blklab" serve --vhost-user "$place/v_mqd.sock" --memory 1G --scheduler mq-deadline
serve v_poll "$blklab" serve --vhost-user "$place/v_poll.sock" --memory 1G \
    --scheduler mq-deadline --busy-poll 50
machines="v_none v_mqd v_poll"
if have qemu-storage-daemon && [ -d /dev/shm ]; then
    disk=$(mktemp /dev/shm/blklab-bench.XXXXXX)
    trap 'kill $pids 2>/dev/null || :; wait 2>/dev/null || :; rm -rf "$place" "$disk"' EXIT
    truncate -s 1G "$disk"
    serve v_qemu qemu-storage-daemon \
        --blockdev driver=file,node-name=disk,filename="$disk" \
        --export "type=vhost-user-blk,id=disk,node-name=disk,writable=on,num-queues=4,addr.type=unix,addr.path=$place/v_qemu.sock"
    machines="v_qemu $machines"
fi

# The median of the rounds of each server: lines of "ROUND SERVER IOPS CPU BUSY" to rows.
medians() { # SHAPE FIRST
    awk -v shape="$1" -v first="$2" '
        function median(of, n,    i, j, t) {
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && of[j - 1] > of[j]; j--) {
                    t = of[j]; of[j] = of[j - 1]; of[j - 1] = t
                }
            return of[int((n + 1) / 2)]
        }
        # Of all rounds, column C of a server, over that of the first where one is named.
        function of_rounds(server, c, beside,    n, r, v) {
            for (r = 1; r <= rounds; r++)
                v[++n] = beside ? seen[r, server, c] / seen[r, beside, c] : seen[r, server, c]
            return median(v, n)
        }
        {
            if (!known[$2]++) order[++servers] = $2
            rounds = $1
            for (c = 3; c <= 5; c++) seen[$1, $2, c] = $c
        }
        END {
            for (s = 1; s <= servers; s++)
                printf "%s,%s,%d,%.2f,%d,%.2f,%.2f\n", shape, order[s],
                    of_rounds(order[s], 3), of_rounds(order[s], 4), of_rounds(order[s], 5),
                    of_rounds(order[s], 3, first), of_rounds(order[s], 4, first)
        }'
}

# Writes all of an export, so that no server is measured making memory, or answering from holes.
fill() { # uri
    for span in 2 8 32 128; do
        written=$("$blklab" load "$1" --bs 1M --depth 4 --reads 0 --sequential --seconds "$span" |
            sed -n 's/^write: IOPS=\([0-9]*\),.*/\1/p')
        [ $((written * span)) -lt 1100 ] || return 0
    done
    echo "cannot fill $1"
    exit 1
}

# compare TABLE CLIENT SERVER...: a table; ratios are to the first server.
compare() {
    table=$place/$1.csv
    client=$2
    shift 2
    for server in "$@"; do
        fill "$(uri "$server")"
    done
    echo "depth x jobs,server,IOPS,CPU us/IO,server busy %,IOPS / $1,CPU / $1" >"$table"
    for shape in "1 1" "64 1" "64 4"; do
        for round in $(seq "$rounds"); do
            for server in "$@"; do
                echo "$round $server $(measure "$client" "$server" ${shape% *} ${shape#* })"
            done
        done | medians "$(echo "$shape" | tr ' ' x)" "$1" >>"$table"
    done
    echo
    echo "client: $client"
    sed 's/,/ | /g; s/.*/| & |/; 1s/$/\n|---|---|---:|---:|---:|---:|---:|/' "$table"
    [ -z "${RECORD:-}" ] || cp "$table" "$RECORD"
}

for client in $clients; do
    compare "nbd-$client" "$client" $servers
done
compare vhost-user load $machines

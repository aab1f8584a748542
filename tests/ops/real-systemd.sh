#!/bin/sh
# Runs the test with a real systemd user manager on a machine that was not booted with systemd, such as a
# container: in a mount and pid namespace of its own. Needs root, systemd and dbus.
set -eu
cd "$(dirname "$0")/../.."
cargo test --test ops --no-run
exec unshare --mount --pid --fork --mount-proc sh -eu -c '
    mount -t tmpfs tmpfs /run
    mkdir -p /run/systemd/system /run/user/0
    chmod 700 /run/user/0
    export XDG_RUNTIME_DIR=/run/user/0 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus
    export HOME=/root USER=root
    for manager in /usr/lib/systemd/systemd /lib/systemd/systemd; do
        [ -x "$manager" ] && break
    done
    "$manager" --user --log-target=null &
    pid=$!
    n=0
    until systemctl --user show-environment >/dev/null 2>&1; do
        n=$((n + 1))
        [ "$n" -lt 100 ] || { echo "the manager does not answer" >&2; exit 1; }
        sleep 0.1
    done
    code=0
    WORKSPOOL_REAL=1 cargo test --test ops -- --ignored real_systemd --nocapture || code=$?
    kill "$pid"
    exit "$code"
'

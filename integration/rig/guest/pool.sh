# A target daemon on side B, a pool on side A, its replica on side B. The variables of a run say how: provider (iwarp or ibverbs), pool (devdax, fsdax, disk or
# memory), method (auto, gpspm, apm, flush), platform (text of a platform file), bounce (size).

# part SIDE: the one part of the pool on a side, as a line of a pool set.
part() {
	case $pool in
	devdax) echo "AUTO $(devdax "$1")" ;;
	fsdax | disk) echo "32M /mnt/$1/pool" ;;
	memory) echo "32M /dev/shm/pool.$1" ;;
	esac
}
durability() { if [ "$pool" = memory ]; then echo memory; else echo media; fi; }

# rdma_keys SIDE: which RDMA device the configuration names.
rdma_keys() {
	echo "provider = \"$provider\""
	[ "$provider" = iwarp ] || echo "device = \"$(rdma_name "$1")\""
}

# start_target: configures and starts the daemon on side B.
start_target() {
	mkdir -p /var/lib/pmemfs/pools /run/pmemfs
	printf 'PMEMPOOLSET\n%s\n' "$(part B)" > /var/lib/pmemfs/pools/data.set
	[ "$pool" != devdax ] || pmemfs rmpool --force /var/lib/pmemfs/pools/data.set # what an earlier run left
	[ -z "${platform:-}" ] || echo "$platform" > /etc/pmemfs/platform.toml
	cat > /etc/pmemfs/target.toml <<-END
		pool_dir = "/var/lib/pmemfs/pools"
		durability = "$(durability)"
		listen = "$(address B):7470"
		fabric = "$(address B):7471"
		$([ -z "${platform:-}" ] || echo 'platform = "/etc/pmemfs/platform.toml"')
		$([ -z "${bounce:-}" ] || echo "bounce = \"$bounce\"")
		$(rdma_keys B)
	END
	run_target
}

# run_target: starts the daemon. Its process is $target.
run_target() {
	background target on B pmemfs-target --config /etc/pmemfs/target.toml
	target=$!
	within 20 target_listens
}
target_listens() {
	kill -0 "$target" 2> /dev/null || fail "pmemfs-target has ended"
	on B ss -Hltn "sport = :7470" | grep -q LISTEN
}

# make_pool: configures side A and makes the pool. Further lines for the top of the configuration are arguments.
make_pool() {
	printf 'PMEMPOOLSET\n%s\nREPLICA %s data.set\n' "$(part A)" "$(address B)" > /etc/pmemfs/data.set
	{
		echo 'pool = "/etc/pmemfs/data.set"'
		echo "durability = \"$(durability)\""
		for line_; do echo "$line_"; done
		echo "[target.\"$(address B)\"]"
		[ -z "${method:-}" ] || echo "method = \"$method\""
		rdma_keys A
	} > /etc/pmemfs/pmemfs.toml
	on A pmemfs mkpool --force /etc/pmemfs/pmemfs.toml
}

# mount_pool: mounts it on /mnt/pool.
mount_pool() {
	mkdir -p /mnt/pool
	on A pmemfs mount --log-file /tmp/mount.log /etc/pmemfs/pmemfs.toml /mnt/pool
}

# status_has PATTERN: what pmemfs status says of /mnt/pool. Its exit code, health, is not looked at.
status_has() {
	pmemfs status /mnt/pool > /tmp/status.log 2>&1 || true
	grep -q -- "$1" /tmp/status.log
}

# uses_method: the target must say that it is used with $method over $provider.
uses_method() {
	status_has "^target .*: InSync, durability $(durability), $(echo "$method" | tr a-z A-Z) over $provider at" || fail "not $method over $provider: $(cat /tmp/status.log)"
}

# daemon_of MOUNTPOINT: process of its daemon.
daemon_of() { pmemfs status --json "$1" | tr ',{' '\n\n' | sed -n 's/^ *"pid": *\([0-9]*\).*/\1/p' | head -n 1; }

# umount_pool: after a failure; the daemon says by its exit code that not everything reached the target.
umount_pool() { pmemfs umount /mnt/pool || [ $? = 32 ]; }

# kill_mount: SIGKILL for the initiator's daemon, and the dead mount goes.
kill_mount() {
	daemon_=$(daemon_of /mnt/pool)
	[ "${daemon_:-0}" -gt 1 ] || fail "pmemfs status names no daemon"
	kill -9 "$daemon_"
	within 20 gone "$daemon_"
	umount -l /mnt/pool
}
gone() { ! readlink "/proc/$1/exe" > /dev/null; }

# promote_and_mount: promotes the replica on side B and mounts it there on /mnt/replica.
promote_and_mount() {
	on B pmemfs promote --config /etc/pmemfs/target.toml data.set
	mkdir -p /mnt/replica
	printf 'pool = "/var/lib/pmemfs/pools/data.set"\ndurability = "%s"\n' "$(durability)" > /etc/pmemfs/replica.toml
	on B pmemfs mount --log-file /tmp/replica.log /etc/pmemfs/replica.toml /mnt/replica
}

# umount_and_check: unmounts the replica; fsck must find nothing.
umount_and_check() {
	pmemfs umount /mnt/replica
	pmemfs fsck /etc/pmemfs/replica.toml
}

# append_until COUNT FILE ACKED: starts the append loop on FILE and waits until so many records are acknowledged. Its process is $appending.
append_until() {
	background append workload append "$2" "$3"
	appending=$!
	within 90 acknowledged "$1" "$3"
}
acknowledged() {
	kill -0 "$appending" 2> /dev/null || fail "the append loop has ended"
	[ -e "$2" ] && [ "$(wc -l < "$2")" -ge "$1" ]
}

# append_fails: the loop must end with an error, within a minute.
append_fails() {
	within 60 gone "$appending"
	if wait "$appending"; then fail "the append loop ended without an error"; fi
}

# sqlite_make FILE, sqlite_check FILE: a database of 40 rows, each in a transaction of its own; it must be sound and have them all.
sqlite_make() {
	{
		echo "pragma journal_mode=WAL; pragma synchronous=FULL; create table t(id integer primary key, v text);"
		for i_ in 1 2 3 4 5 6 7 8 9 10; do
			for j_ in 1 2 3 4; do echo "insert into t(v) values('row $i_ $j_');"; done
		done
	} | sqlite3 "$1" > /dev/null
}
sqlite_check() {
	said_=$(sqlite3 "$1" "pragma integrity_check; select count(*) from t;" | tr '\n' ' ')
	[ "$said_" = "ok 40 " ] || fail "sqlite says: $said_"
}

# fail_over: work on the mounted pool, all of it acknowledged; its initiator is killed in the middle of an append loop. The replica is promoted and mounted, and has everything.
fail_over() {
	sqlite_make /mnt/pool/data.db
	workload msync /mnt/pool/mapped first
	append_until 100 /mnt/pool/records /tmp/acked
	kill_mount
	append_fails
	promote_and_mount
	workload check-append /mnt/replica/records /tmp/acked
	workload check-msync /mnt/replica/mapped first
	sqlite_check /mnt/replica/data.db
}

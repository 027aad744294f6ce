# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # for the suites
# ranks.bash - checkpoints of several source ranks, and engines of as many
# workers, for the suites about them.
#
#	load ranks

load fleet

# tensors DIR SEED NAME:DTYPE:SHAPE...
tensors() {
	local dir=$1 seed=$2

	shift 2
	python3 "$SRC/tests/fixtures/mktensors.py" --seed "$seed" "$dir" "$@"
}

# workers NAME COUNT [OPTION]...: an engine of so many workers, each with a
# weir-engine and a store of its own: NAME.0, NAME.1 ...
workers() {
	local name=$1 count=$2 w

	shift 2
	for ((w = 0; w < count; w++)); do
		worker "$name" $w "$@"
	done
}

# worker NAME W [OPTION]...
worker() {
	local name=$1 at="$1.$2"

	shift 2
	: >"$T/$at.ready"
	start "$at" bash -c 'ready=$1; shift; exec "$@" 3>"$ready"' _ \
		"$T/$at.ready" weir-engine --name "$name" \
		--store "$T/$at" --listen "ipc://$T/$at.sock" \
		--ready-fd 3 "$@"
	wait_for test -s "$T/$at.ready"
}

# fleet_of COUNT NAME...: so many workers each.
fleet_of() {
	local count=$1 name w

	shift
	{
		echo "model: test"
		echo "engines:"
		for name; do
			echo "  - name: $name"
			echo "    workers:"
			for ((w = 0; w < count; w++)); do
				echo "      - endpoint: ipc://$T/$name.$w.sock"
			done
		done
	} >"$T/fleet.yaml"
}

# ranks DIR COUNT SEED: checkpoints DIR.0, DIR.1 ... of equal names and
# unequal sizes; their --source options are in ${sources[@]}.
ranks() {
	local sizes=(512KiB 256KiB 1MiB 128KiB) r

	sources=()
	for ((r = 0; r < $2; r++)); do
		checkpoint "$T/$1.$r" --size "${sizes[r]}" --layers 2 \
			--shards $((1 + r % 2)) --seed $(($3 + r))
		sources+=(--source "$T/$1.$r")
	done
}

# ranked_push [OPTION]...: of ${sources[@]}
ranked_push() {
	weir-push "${sources[@]}" --fleet "$T/fleet.yaml" \
		--registry "$T/registry" "$@"
}

# all_hold SOURCE COUNT NAME...: each worker has its rank's files.
all_hold() {
	local source=$1 count=$2 name w

	shift 2
	for name; do
		for ((w = 0; w < count; w++)); do
			holds "$name.$w" "$T/$source.$w" || return 1
		done
	done
}

# Two ranks, r.0 and r.1, of two tensors in each bucket of 1536 bytes: that
# many of rank 0, though each is smaller in one.
pairs() {
	local t zero=() one=()

	for t in 0 1 2 3 4 5 6 7; do
		zero+=("t$t:U8:$((t % 2 ? 1024 : 512))")
		one+=("t$t:U8:$((t % 2 ? 256 : 1024))")
	done
	tensors "$T/r.0" 1 "${zero[@]}"
	tensors "$T/r.1" 2 "${one[@]}"
	sources=(--source "$T/r.0" --source "$T/r.1")
}

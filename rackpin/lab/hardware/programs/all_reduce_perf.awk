# The same rows as rackpin/lab/hardware/nccl.py computes.
function fail(text) { print text > "/dev/stderr"; code = 1; stopped = 1; exit 1 }
function bytes(text,   unit, digits) {
	unit = toupper(substr(text, length(text)))
	digits = text
	if (unit ~ /[A-Z]/) digits = substr(text, 1, length(text) - 1)
	else unit = ""
	if (!(unit in units) || digits !~ /^[0-9]*\.?[0-9]*$/ || digits !~ /[0-9]/) return -1
	return int(digits * units[unit])
}
function time_text(t,   places) {
	if (new) places = t < 10000 ? 2 : t < 100000 ? 1 : 0
	else places = t < 100 ? 2 : t < 10000 ? 1 : 0
	return sprintf("%7." places "f", t)
}
function measure(size, ripple,   factor, top) {
	factor = 2 * (ranks - 1) / ranks
	top = factor ? peak / factor : conf["one_rank"]
	took = conf["latency"] + (size + conf["half"] * size / (size + conf["half"])) / (top * 1000)
	took *= ripple
	alg = size / (took * 1000)
	bus = alg * factor
}
# The log of this process, its numbers put in: NCCL_DEBUG_FILE knows %h (host) and %p (process).
function write_log(   file, line, card, used, first) {
	file = ENVIRON["NCCL_DEBUG_FILE"]
	gsub(/%h/, ENVIRON["HOST"], file)
	gsub(/%p/, ENVIRON["PROCESS"], file)
	used = wish["gpus"] * wish["threads"]
	first = rank * used
	while ((getline line < (at "/log." way)) > 0) {
		match(line, / \[[0-9]+\] /)
		if (substr(line, RSTART + 2, RLENGTH - 4) + 0 >= used) continue
		gsub(/@PID@/, ENVIRON["PROCESS"], line)
		gsub(/@RANKS@/, ranks, line)
		for (card = 0; card < conf["cards"]; card++) {
			gsub("@R" card "@", first + card, line)
			gsub("@N" card "@", (first + card + used) % ranks, line)
		}
		print line > file
	}
	close(file)
}
BEGIN {
	usage = "USAGE: all_reduce_perf -b -e -i -f -g -t -n -w -m -c -d -o"
	at = ENVIRON["AT"]
	while ((getline line < (at "/conf")) > 0) {
		tab = index(line, "\t")
		value = substr(line, tab + 1)
		key = substr(line, 1, tab - 1)
		conf[key] = key != "cuda" && value ~ /^[0-9]+(\.[0-9]+)?$/ ? value + 0 : value
	}
	while ((getline line < (at "/options")) > 0) { split(line, part, "\t"); option[part[1]] = part[2] }
	while ((getline line < (at "/units")) > 0) { split(line, part, "\t"); units[part[1]] = part[2] }
	while ((getline line < (at "/types")) > 0) { split(line, part, "\t"); types[part[1]] = part[2] }
	while ((getline line < (at "/defaults")) > 0) { split(line, part, "\t"); wish[part[1]] = part[2] }
	new = conf["version"] != "2.13.9"
	split(ENVIRON["ARGS"], words, "\n")
	count = ENVIRON["COUNT"] + 0 # also empty ones at the end, which the shell drops
	for (i = 1; i <= count; i++) {
		word = words[i]
		if (substr(word, 1, 2) == "--") {
			cut = index(word, "=")
			name = cut ? substr(word, 1, cut - 1) : word
			value = cut ? substr(word, cut + 1) : ""
		} else {
			cut = 0
			name = substr(word, 1, 2)
			value = substr(word, 3)
		}
		if (value == "" && !cut) {
			if (i == count) fail(usage)
			value = words[++i]
		}
		if (!(name in option)) fail(usage)
		one = option[name]
		if (one == "") continue
		if (one == "begin" || one == "end" || one == "step") {
			value = bytes(value)
			if (value < 0) fail(usage)
		} else if (one != "datatype" && one != "op") {
			if (value !~ /^[0-9]+$/) fail(usage)
			value += 0
		}
		wish[one] = value
	}
	if (!(wish["datatype"] in types)) fail(usage)
	for (one in wish) if (wish[one] ~ /^[0-9]+$/) wish[one] += 0
	if (wish["gpus"] * wish["threads"] == 0) fail(usage)
	if (wish["warmup"] == "") wish["warmup"] = new ? 1 : 5

	size_of = ENVIRON["OMPI_COMM_WORLD_SIZE"] ? ENVIRON["OMPI_COMM_WORLD_SIZE"] : 1
	local_size = ENVIRON["OMPI_COMM_WORLD_LOCAL_SIZE"] ? ENVIRON["OMPI_COMM_WORLD_LOCAL_SIZE"] : 1
	rank = ENVIRON["OMPI_COMM_WORLD_RANK"] ? ENVIRON["OMPI_COMM_WORLD_RANK"] : 0
	each = local_size * wish["gpus"] * wish["threads"]
	hosts = int(size_of / local_size)
	if (hosts < 1) hosts = 1
	known = split(ENVIRON["RACKPIN_LAB_HOSTS"], host, ",")
	for (i = known + 1; i <= hosts; i++) host[i] = "node" (i - 1)
	if (!known) host[int(rank / local_size) + 1] = conf["name"]
	others = split(ENVIRON["PEERS"], peer, "\n")
	for (i = 1; i <= others; i++) {
		if (split(peer[i], part, "\t") < 5) continue
		host[int(part[1] / local_size) + 1] = part[5]
		if (part[2] + 0 < conf["network"]) conf["network"] = part[2] + 0
		if (part[3] + 0 > conf["wrong"]) conf["wrong"] = part[3] + 0
		if (part[4] != "") { peer_why = part[4]; peer_name = part[5] }
	}
	ranks = each * hosts
	off = ENVIRON["NCCL_P2P_DISABLE"] == "1" && ENVIRON["NCCL_SHM_DISABLE"] == "1"
	way = hosts > 1 ? "network" : off ? "loop" : "local"
	if (ENVIRON["NCCL_DEBUG"] == "INFO" && ENVIRON["NCCL_DEBUG_FILE"] != "") write_log()
	if (rank > 0) exit 0

	if (new) {
		head = "# nccl-tests version " conf["version"] " nccl-headers=" conf["library"]
		print head " nccl-library=" conf["library"]
		print "# Collective test starting: all_reduce_perf"
	}
	step = wish["factor"] > 1 ? wish["factor"] "(factor)" : sprintf("%.0f(bytes)", wish["step"])
	printf "# nThread %d nGpus %d minBytes %.0f maxBytes %.0f step: %s", wish["threads"],
		wish["gpus"], wish["begin"], wish["end"], step
	printf " warmup iters: %d iters: %d agg iters: %d validation: %d graph: 0%s\n",
		wish["warmup"], wish["iters"], wish["agg"], wish["check"], (new ? " unalign: 0" : "")
	print "#\n# Using devices"

	while ((getline line < (at "/ranks")) > 0) {
		split(line, part, "\t")
		if (part[1] <= each) { nvls = part[2]; ring = part[3]; why = part[4] }
	}
	fails = conf["name"]
	if (why == "" && peer_why != "") { why = peer_why; fails = peer_name }
	if (why != "") {
		printf "%s: Test CUDA failure %s '%s'\n", fails,
			(new ? "util.cu:674" : "common.cu:894"), why
		printf " .. %s pid %d: Test failure %s\n", fails, ENVIRON["PROCESS"],
			(new ? "common.cu:1454" : "common.cu:844")
		exit 2
	}
	cards = 0
	while ((getline line < (at "/devices")) > 0) {
		split(line, part, "\t")
		where[cards] = new ? part[1] : part[2]
		cards++
	}
	for (h = 1; h <= hosts; h++)
		for (i = 0; i < each; i++)
			printf "#  Rank %2d Group  0 Pid %6d on %10s device %2d [%s] %s\n",
				(h - 1) * each + i, ENVIRON["PROCESS"], host[h], i, where[i], conf["card"]
	last = wish["end"]
	limit = wish["check"] ? conf["limit_checked"] : conf["limit"]
	if (last > limit) {
		last = limit
		printf "#\n# Reducing maxBytes to %.0f due to memory limitation\n", last
	}
	if (ENVIRON["NCCL_DEBUG"] != "" && ENVIRON["NCCL_DEBUG_FILE"] == "")
		print "NCCL version " conf["nccl"] "+cuda" conf["cuda"]
	while ((getline line < (at "/columns")) > 0) print line

	peak = ENVIRON["NCCL_NVLS_ENABLE"] == "0" ? ring : nvls
	if (way != "local") peak = conf[way]
	wrong = wish["check"] ? conf["wrong"] : 0
	total = number = 0
	for (size = wish["begin"]; size <= last; size = following) {
		following = wish["factor"] > 1 ? size * wish["factor"] : size + wish["step"]
		printf "%12.0f  %12.0f  %8s  %6s      -1", size, int(size / types[wish["datatype"]]),
			wish["datatype"], wish["op"]
		for (place = 0; place < 2; place++) {
			measure(size, 1 + ((number * (place ? 5 : 7) + 3) % 11 - 5) / 2000)
			total += bus
			bad = !wish["check"] ? "N/A" : following > last && !place ? wrong : 0
			printf "  %s  %6.2f  %6.2f  %" (new ? 6 : 5) "s", time_text(took), alg, bus, bad
		}
		print ""
		number++
		if (following <= size) break
	}
	if (!number) wrong = 0
	printf "# Out of bounds values : %d %s\n", wrong, (wrong ? "FAILED" : "OK")
	printf "# Avg bus bandwidth    : %g \n#\n", (number ? total / (2 * number) : 0)
	if (new) print "# Collective test concluded: all_reduce_perf\n#"
	exit (wrong ? 1 : 0)
}

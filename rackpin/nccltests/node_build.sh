# Builds nccl-tests in $place against the NCCL at $nccl; the values above come from the lock.
umask 022
export LC_ALL=C.UTF-8
die() { echo "nccl-tests for the $kind: $1" >&2; exit "${2:-1}"; }

mkdir -p "$root"
# One build a node at a time; one whose connection was lost is waited for.
exec 9>"$root/.lock"
flock -w "$lock_wait" 9 || die "another build held $root/.lock over $lock_wait s" 75

link() { # a new link under another name, renamed over the old: never a moment without
  ln -s "${place##*/}" "$root/.$kind.$$"
  mv -T "$root/.$kind.$$" "$root/$kind"
}
if [ "$(cat "$place/.complete" 2>/dev/null)" = "$digest" ]; then
  link
  echo "complete: $place"
  exit 0
fi
[ -x "$cuda/bin/nvcc" ] || die "$cuda/bin/nvcc is missing; the cuda stage brings it"
[ -e "$nccl/include/nccl.h" ] || die "$nccl/include/nccl.h is missing"
[ -e "$library" ] || die "$library is missing"

work="$root/.work"
rm -rf "$work" "$place"
mkdir -p "$work/source" "$work/nccl/lib"
clean() {
  code=$?
  trap - EXIT
  rm -rf "$work"
  [ "$code" -eq 0 ] || rm -rf "$place"
  exit "$code"
}
trap clean EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

cat >"$work/fetch.py" <<'RACKPIN_END'
@FETCH@
RACKPIN_END
python3 -I "$work/fetch.py" "$url" "$sha256" "$work/source.tar.gz" "$fetch_deadline" </dev/null
tar -C "$work/source" --strip-components=1 --no-same-owner -xzf "$work/source.tar.gz"

# A wheel has no libnccl.so, which the linker asks for.
ln -s "$nccl/include" "$work/nccl/include"
ln -s "$library" "$work/nccl/lib/libnccl.so"
ln -s "$library" "$work/nccl/lib/libnccl.so.2"
# DT_RPATH counts before LD_LIBRARY_PATH: these tests can load no other NCCL.
NVCC_APPEND_FLAGS="-Xlinker --disable-new-dtags -Xlinker -rpath=${library%/*}"
export NVCC_APPEND_FLAGS
jobs=$(nproc)
[ "$jobs" -le 16 ] || jobs=16
set -- -C "$work/source" -j "$jobs" "CUDA_HOME=$cuda" "NCCL_HOME=$work/nccl" "MPI=$mpi" \
  "MPI_HOME=$mpi_home" "BUILDDIR=$work/build"
[ -z "$gencode" ] || set -- "$@" "NVCC_GENCODE=$gencode"
if ! make "$@" </dev/null >"$work/log" 2>&1; then
  tail -n 30 "$work/log" >&2
  die "make failed"
fi

mkdir -p "$place"
for program in "$work"/build/*_perf; do
  [ -x "$program" ] || die "make built no program"
  loads=$(ldd "$program" | sed -n 's/.*libnccl\.so\.2 => \([^ ]*\).*/\1/p')
  [ "$(readlink -f "$loads")" = "$(readlink -f "$library")" ] ||
    die "${program##*/} would load ${loads:-no NCCL} and not $library"
  cp "$program" "$place/"
done
sync -f "$place"
echo "$digest" >"$place/.complete.part"
sync "$place/.complete.part"
mv "$place/.complete.part" "$place/.complete"
link
echo "built: $place"

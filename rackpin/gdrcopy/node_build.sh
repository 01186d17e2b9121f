# Builds gdrcopy for the driver that is installed; the values above come from the lock.
umask 022
export LC_ALL=C.UTF-8
die() { echo "gdrcopy $version: $1" >&2; exit "${2:-1}"; }

mkdir -p "$root"
exec 9>"$root/.lock"
flock -w "$lock_wait" 9 || die "another build held $root/.lock over $lock_wait s" 75

kernel=$(uname -r)
module_source=$usr_src/gdrdrv-$version
[ -e "/lib/modules/$kernel/build/Makefile" ] || die "headers of the running kernel $kernel are missing"
# The module takes the driver's interface, and symbols, from its very source.
driver_source=$(find "$usr_src/$driver-$driver_version/" -name nv-p2p.c -print -quit 2>/dev/null)
driver_source=${driver_source%/*}
[ -n "$driver_source" ] || die "$usr_src/$driver-$driver_version has no source of the driver; the driver stage brings it"
for other in "$usr_src"/gdrdrv-*/dkms.conf; do
  [ -e "$other" ] || continue
  if owner=$(dpkg -S "$other" 2>/dev/null); then
    die "${other%/*} belongs to the package ${owner%%:*}: remove it, or take gdrcopy out of the stack"
  fi
done
for tool in "$compiler" make python3; do
  command -v "$tool" >/dev/null || die "$tool is missing"
done
[ -e /usr/include/dlfcn.h ] || die "headers of the C library are missing: libc6-dev"

work="$root/.work"
rm -rf "$work" "$place"
mkdir -p "$work/source"
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

say_why() { # LOG
  sed -n '/error:\|Error /p' "$1" | head -n 5 >&2
  tail -n 20 "$1" >&2
}
# Its own look for the architecture takes a compiler called gcc, which may not be there.
if ! make -C "$work/source/src" "CC=$compiler" GDRAPI_ARCH=X86 config lib </dev/null >"$work/log" 2>&1; then
  say_why "$work/log"
  die "the library did not build"
fi
library=$(cd "$work/source/src" && ls libgdrapi.so.*.*)
python3 -I -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$work/source/src/$library" 2>"$work/log" ||
  die "the library can't be loaded: $(tail -n 1 "$work/log")"

# Every other version goes first: two of them would be installed over each other.
for old in $(dkms status -m gdrdrv 2>/dev/null | sed -n 's/^gdrdrv[/,] *\([^,:]*\).*/\1/p' | sort -u); do
  dkms remove -m gdrdrv -v "$old" --all >/dev/null </dev/null || die "gdrdrv $old can't be removed from DKMS"
done
rm -rf "$module_source"
mkdir "$module_source"
cp -r "$work/source/src/gdrdrv/." "$work/source/scripts" "$module_source/"
# DKMS would add KERNELRELEASE to a plain make, which is the kernel's own word here. The compiler
# goes by the environment, as the module's scripts run a make of their own.
cat >"$module_source/dkms.conf" <<END
# Written by rackpin, with the module's source beside it.
PACKAGE_NAME="gdrdrv"
PACKAGE_VERSION="$version"
BUILT_MODULE_NAME[0]="gdrdrv"
DEST_MODULE_LOCATION[0]="/kernel/drivers/misc/"
AUTOINSTALL="yes"
MAKE[0]="env MAKEFLAGS=CC=$compiler make CONF_SCRIPT_DIR=scripts KVER=\$kernelver NVIDIA_SRC_DIR=$driver_source"
CLEAN="make clean"
END
if ! dkms install -m gdrdrv -v "$version" -k "$kernel" --force </dev/null >"$work/log" 2>&1; then
  say_why "$work/log"
  log=/var/lib/dkms/gdrdrv/$version/build/make.log
  [ ! -e "$log" ] || say_why "$log"
  die "the module did not build for $kernel"
fi
built=$(modinfo -k "$kernel" -F vermagic gdrdrv) || die "DKMS left no gdrdrv for $kernel"
[ "${built%% *}" = "$kernel" ] || die "gdrdrv is built for ${built%% *}, $kernel runs"

mkdir -p "$place" "$libraries"
cp "$work/source/src/$library" "$place/"
sync -f "$place"
soname=${library%.*}
for name in "$soname" "${soname%.*}"; do # libgdrapi.so.2 and libgdrapi.so: both are asked for
  there=$libraries/$name
  case $(readlink "$there") in
  "$root"/*) ;;
  *) # somebody else's is kept
    if [ -e "$there" ] || [ -L "$there" ]; then
      mkdir -p -m 700 "$backups"
      mv "$there" "$backups/$name.$(date +%s)"
      echo "kept: $there as $backups/$name.*"
    fi
    ;;
  esac
  ln -s "$place/$library" "$libraries/.rackpin.$$"
  mv -T "$libraries/.rackpin.$$" "$there"
done
ldconfig
ldconfig -p | grep -q "$libraries/$soname\$" || die "the loader does not know $libraries/$soname"
echo "$digest" >"$place/.complete.part"
sync "$place/.complete.part"
mv "$place/.complete.part" "$place/.complete"
for old in "$root"/*; do # of drivers before; what has one open keeps it
  [ "$old" = "$place" ] || rm -rf "$old"
done
echo "built: $place"

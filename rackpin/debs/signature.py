"""Signatures of Release files, by gpgv, against keys pinned by fingerprint.

Only what gpgv says was signed is ever read: text around a signed block is refused.
"""

from __future__ import annotations

import base64
import binascii
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from rackpin.debs.model import DebError, Refused

DEADLINE_S = 60
KEY_LIMIT = 1 << 20  # bytes of a key file; a whole distribution's keyring has 60 kB
_BLOCK = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL
)
_BEGIN = b"-----BEGIN PGP SIGNED MESSAGE-----"
_END = b"-----END PGP SIGNATURE-----"
# How gpgv words it, and how we do. The rest of the line is a key id and a user id.
_FAULTS = {
    "BADSIG": "the signature by {key} does not fit the content: it was changed after signing",
    "EXPSIG": "the signature by {key} has expired",
    "EXPKEYSIG": "the key {key} has expired",
    "REVKEYSIG": "the key {key} was revoked",
}


def key_bytes(file: Path) -> bytes:
    """A key file as gpgv reads it, armored or not. Raises :class:`DebError`."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DebError(f"{file}: the key can't be read: {error.strerror}; put it there") from None
    if len(content) > KEY_LIMIT:
        raise DebError(f"{file}: {len(content)} bytes is no key file; give the public key")
    if not content.lstrip().startswith(b"-----BEGIN"):
        return content
    keys = []
    for block in _BLOCK.findall(content):
        # Headers end at the first empty line; a line starting with = is the checksum.
        body = block.replace(b"\r", b"").partition(b"\n\n")[2].split(b"\n")
        try:
            keys.append(base64.b64decode(b"".join(x for x in body if x[:1] != b"="), validate=True))
        except binascii.Error as error:
            raise DebError(f"{file}: not a readable key ({error}); export it again") from None
    if not any(keys):
        raise DebError(f"{file}: holds no public key block; export it with gpg --armor --export")
    return b"".join(keys)


def verify_inline(content: bytes, key: Path, fingerprints: tuple[str, ...], what: str) -> bytes:
    """The text that a pinned key signed in an InRelease file; :class:`Refused` otherwise."""
    stripped = content.strip()
    one = stripped.count(_BEGIN) == 1 and stripped.count(_END) == 1
    if not (one and stripped.startswith(_BEGIN) and stripped.endswith(_END)):
        raise Refused(f"{what}: unsigned, or not one signed text and nothing else; refused")
    return _gpgv(content, None, key, fingerprints, what)


def verify_detached(
    content: bytes, signature: bytes, key: Path, fingerprints: tuple[str, ...], what: str
) -> bytes:
    """``content`` of a Release file if a pinned key made ``signature``; else :class:`Refused`."""
    _gpgv(content, signature, key, fingerprints, what)
    return content


def _gpgv(
    content: bytes, signature: bytes | None, key: Path, fingerprints: tuple[str, ...], what: str
) -> bytes:
    gpgv = shutil.which("gpgv")
    if gpgv is None:
        raise DebError("gpgv: not on this machine; install it (apt-get install gpgv)")
    with tempfile.TemporaryDirectory(prefix="rackpin-gpgv-") as temp:
        work = Path(temp)
        (work / "keyring.gpg").write_bytes(key_bytes(key))
        (work / "content").write_bytes(content)
        command = [gpgv, "--keyring", str(work / "keyring.gpg"), "--status-fd", "1",
                   "--weak-digest", "SHA1", "--weak-digest", "RIPEMD160"]  # fmt: skip
        if signature is None:
            command += ["--output", str(work / "signed"), str(work / "content")]
        else:
            (work / "signature").write_bytes(signature)
            command += [str(work / "signature"), str(work / "content")]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=DEADLINE_S, check=False, cwd=work
            )
        except subprocess.TimeoutExpired:
            raise DebError(f"{what}: gpgv did not end within {DEADLINE_S} s") from None
        # gpgv's exit code also counts signatures by keys that nobody here pinned.
        judge(done.stdout.decode("utf-8", "replace"), key, fingerprints, what)
        signed = work / "signed"
        return signed.read_bytes() if signed.is_file() else b""


def judge(status: str, key: Path, fingerprints: tuple[str, ...], what: str) -> None:
    """Read ``gpgv --status-fd``: nothing to say when a pinned key signed, else :class:`Refused`."""
    good = False
    others: list[str] = []
    faults: list[str] = []
    state = ""
    for line in status.splitlines():
        word, *rest = line.removeprefix("[GNUPG:] ").split(" ")
        if word in ("GOODSIG", *_FAULTS):
            state = word
            if word in _FAULTS:
                faults.append(_FAULTS[word].format(key=" ".join(rest)))
        elif word == "VALIDSIG":
            if {rest[0], rest[-1]} & set(fingerprints):
                good |= state == "GOODSIG"
            else:
                others.append(rest[-1])
        elif word == "ERRSIG":
            others.append(rest[6] if len(rest) > 6 and rest[6] != "-" else rest[0])
    if good and not any("does not fit" in fault for fault in faults):
        return
    pinned = ", ".join(fingerprints)
    if faults:
        raise Refused(f"{what}: refused: {'; '.join(faults)}; pinned is {pinned} ({key})")
    if not others:
        raise Refused(f"{what}: refused: carries no signature; it must be signed by {pinned}")
    known = any(pin.endswith(other) for other in others for pin in fingerprints)
    if known:
        raise Refused(
            f"{what}: refused: signed by the pinned key {pinned}, but {key} does not hold that key "
            "or its hash is too weak; put the right public key there"
        )
    raise Refused(
        f"{what}: refused: signed by {', '.join(others)}, but pinned is {pinned}; if the vendor "
        "changed the key, get the new fingerprint from another place than this repository"
    )

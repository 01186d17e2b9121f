"""OpenPGP public keys, as far as apt needs them: fingerprints, and one key out of many.

No signature is checked here; apt does that with the key it is given. Fingerprints follow
RFC 9580 section 5.5.4 (versions 4 and 6) and GnuPG's version 5.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PUBLIC_KEY, PUBLIC_SUBKEY, SECRET_KEY, SECRET_SUBKEY = 6, 14, 5, 7
_BLOCK = re.compile(r"-----BEGIN PGP ([A-Z ]+)-----\r?\n(.*?)\r?\n-----END PGP \1-----", re.DOTALL)
FINGERPRINT = re.compile(r"[0-9A-F]{40}([0-9A-F]{24})?")


class KeyFileError(Exception):
    """A file that is no public key; the text says why, without the file's name."""


@dataclass(frozen=True)
class Certificate:
    """One primary key with its user ids, signatures and subkeys, as the bytes of the file."""

    fingerprint: str  # of the primary key, capitals
    subkeys: tuple[str, ...]
    data: bytes


def normal(fingerprint: str) -> str:
    """A fingerprint without spaces, in capitals; ValueError when it is none."""
    text = "".join(fingerprint.split()).upper().removeprefix("0X")
    if not FINGERPRINT.fullmatch(text):
        raise ValueError(f"{fingerprint!r} has not the 40 (or 64) hex digits of a fingerprint")
    return text


def spaced(fingerprint: str) -> str:
    """Groups of four, as vendors print them."""
    return " ".join(re.findall("....", fingerprint))


def is_of(certificate: Certificate, fingerprint: str) -> bool:
    """Whether this normal fingerprint is the certificate's, or one of its subkeys'."""
    return fingerprint in (certificate.fingerprint, *certificate.subkeys)


def read_keys(path: Path) -> list[Certificate]:
    """All certificates of a keyring file. Raises KeyFileError, and OSError."""
    return certificates(path.read_bytes())


def certificates(data: bytes) -> list[Certificate]:
    """All certificates of an armored or binary keyring."""
    if b"-----BEGIN PGP" in data:
        data = dearmor(data.decode("utf-8", "replace"))
    found: list[Certificate] = []
    fingerprint, start = "", 0
    subkeys: list[str] = []
    for tag, body, begin, end in packets(data):
        if tag in (SECRET_KEY, SECRET_SUBKEY):
            raise KeyFileError("it holds a private key; export only the public one")
        if tag == PUBLIC_KEY:
            if fingerprint:
                found.append(Certificate(fingerprint, tuple(subkeys), data[start:begin]))
            fingerprint, subkeys, start = key_id(body), [], begin
        elif not fingerprint:
            raise KeyFileError("it does not begin with a public key")
        elif tag == PUBLIC_SUBKEY:
            subkeys.append(key_id(body))
        last = end
    if not fingerprint:
        raise KeyFileError("it holds no public key")
    return [*found, Certificate(fingerprint, tuple(subkeys), data[start:last])]


def dearmor(text: str) -> bytes:
    """The bytes of all public key blocks."""
    parts = []
    for kind, inner in _BLOCK.findall(text):
        if kind == "PRIVATE KEY BLOCK":
            raise KeyFileError("it holds a private key; export only the public one")
        if kind != "PUBLIC KEY BLOCK":
            raise KeyFileError(f"it holds a PGP {kind.lower()}, not a public key")
        lines = [line.strip() for line in inner.splitlines()]
        # headers end with an empty line; without any, base64 may begin at once
        body = lines[lines.index("") + 1 :] if "" in lines else lines
        joined = "".join(line for line in body if not re.fullmatch(r"=[A-Za-z0-9+/]{4}", line))
        try:
            parts.append(base64.b64decode(joined, validate=True))
        except binascii.Error as error:
            raise KeyFileError(f"its armor is damaged: {error}") from error
    if not parts:
        raise KeyFileError("its armor is cut: no whole PGP block is in it")
    return b"".join(parts)


def packets(data: bytes) -> Iterator[tuple[int, bytes, int, int]]:
    """Tag, body, and the places in the data where the packet begins and ends."""
    at = 0
    while at < len(data):
        begin, head = at, data[at]
        if not head & 0x80:
            raise KeyFileError("it is neither armored nor binary OpenPGP")
        try:
            if head & 0x40:  # new format
                tag, first = head & 0x3F, data[at + 1]
                if first < 192:
                    length, at = first, at + 2
                elif first < 224:
                    length, at = ((first - 192) << 8) + data[at + 2] + 192, at + 3
                elif first == 255:
                    length, at = int.from_bytes(data[at + 2 : at + 6], "big"), at + 6
                else:
                    raise KeyFileError("it has a packet of unknown length, which no key has")
            else:
                size = (1, 2, 4, 0)[head & 3]
                if not size:
                    raise KeyFileError("it has a packet of unknown length, which no key has")
                tag = (head >> 2) & 0x0F
                length, at = int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size
        except IndexError:
            raise KeyFileError("it is cut") from None
        if at + length > len(data):
            raise KeyFileError("it is cut")
        yield tag, data[at : at + length], begin, at + length
        at += length


def key_id(body: bytes) -> str:
    """The fingerprint of a key packet's body."""
    version = body[0] if body else 0
    if version == 4:
        return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
    if version in (5, 6):
        mark = b"\x9a" if version == 5 else b"\x9b"
        return hashlib.sha256(mark + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise KeyFileError(f"it holds a key of version {version}, which no current apt accepts")


def armor(data: bytes, comment: str) -> str:
    """The bytes as an armored public key block, with a comment in its head."""
    text = base64.b64encode(data).decode()
    lines = [text[i : i + 64] for i in range(0, len(text), 64)]
    crc = base64.b64encode(_crc24(data).to_bytes(3, "big")).decode()
    kind = "PGP PUBLIC KEY BLOCK"
    head = [f"-----BEGIN {kind}-----", f"Comment: {comment}", ""]
    return "\n".join([*head, *lines, f"={crc}", f"-----END {kind}-----", ""])


def _crc24(data: bytes) -> int:
    """RFC 4880 section 6.1; older gpg versions still want it."""
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc & 0xFFFFFF

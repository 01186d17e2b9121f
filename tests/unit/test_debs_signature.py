"""Only a Release signed by a pinned key, and nothing around it, is ever read."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rackpin.debs.model import DebError, Refused
from rackpin.debs.signature import judge, key_bytes, verify_detached, verify_inline
from tests.fixtures_debs import Key, new_key, run, shared_key

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("gpgv")), reason="needs gpg and gpgv"
)
TEXT = "Origin: test\nDate: today\n"
PIN = "A" * 40


@pytest.fixture(scope="module")
def key() -> Key:
    return shared_key()


@pytest.fixture
def key_file(key: Key, tmp_path: Path) -> Path:
    return key.export(tmp_path / "site.asc")


def signed(key: Key, text: str = TEXT) -> bytes:
    return key.gpg("--local-user", key.fingerprint, "--clearsign", stdin=text).encode()


def test_the_signed_text_comes_back(key: Key, key_file: Path) -> None:
    assert verify_inline(signed(key), key_file, (key.fingerprint,), "x").decode() == TEXT


def test_a_binary_key_and_one_of_several_keys_do_as_well(key: Key, tmp_path: Path) -> None:
    other = new_key("other")
    both = tmp_path / "both.asc"
    both.write_bytes(
        other.export(tmp_path / "o.asc").read_bytes() + key.export(tmp_path / "k.asc").read_bytes()
    )
    binary = tmp_path / "both.gpg"
    binary.write_bytes(key_bytes(both))
    assert run("gpg", "--show-keys", "--with-colons", str(binary)).count("pub:") == 2
    for file in (both, binary):
        assert verify_inline(signed(key), file, (key.fingerprint,), "x").decode() == TEXT


def test_another_key_is_refused_with_both_fingerprints(key: Key, key_file: Path) -> None:
    other = new_key("intruder")
    with pytest.raises(Refused) as caught:
        verify_inline(signed(other), key_file, (key.fingerprint,), "http://m/InRelease")
    for word in ("http://m/InRelease", other.fingerprint, key.fingerprint):
        assert word in str(caught.value)


def test_a_key_in_the_file_that_is_not_pinned_is_refused(key: Key, key_file: Path) -> None:
    with pytest.raises(Refused, match=f"signed by {key.fingerprint}, but pinned is {PIN}"):
        verify_inline(signed(key), key_file, (PIN,), "x")


def test_a_key_file_without_the_pinned_key_is_named(key: Key, tmp_path: Path) -> None:
    other = new_key("neighbour").export(tmp_path / "other.asc")
    with pytest.raises(Refused, match=r"other\.asc does not hold that key"):
        verify_inline(signed(key), other, (key.fingerprint,), "x")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace(b"Origin: test", b"Origin: tesu"),
        lambda text: TEXT.encode(),
        lambda text: b"Origin: before\n" + text,
        lambda text: text + b"Origin: after\n",
        lambda text: text + text,
        lambda text: text[: len(text) // 2],
        lambda text: b"",
    ],
    ids=["flipped", "unsigned", "before", "after", "twice", "half", "empty"],
)
def test_anything_else_is_refused(
    key: Key, key_file: Path, spoil: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(Refused, match="InRelease: "):
        verify_inline(spoil(signed(key)), key_file, (key.fingerprint,), "InRelease")


def test_a_flipped_byte_says_that_it_was_changed_after_signing(key: Key, key_file: Path) -> None:
    content = signed(key).replace(b"today", b"todaz")
    with pytest.raises(Refused, match="changed after signing"):
        verify_inline(content, key_file, (key.fingerprint,), "x")


def test_detached(key: Key, key_file: Path, tmp_path: Path) -> None:
    (tmp_path / "Release").write_text(TEXT)
    key.gpg("--output", str(tmp_path / "sig"), "--detach-sign", str(tmp_path / "Release"))
    signature = (tmp_path / "sig").read_bytes()
    pins = (key.fingerprint,)
    assert verify_detached(TEXT.encode(), signature, key_file, pins, "x") == TEXT.encode()
    with pytest.raises(Refused, match="does not fit"):
        verify_detached(TEXT.encode() + b"\n", signature, key_file, pins, "x")


def test_an_expired_key_is_refused_by_name(tmp_path: Path) -> None:
    old = new_key("old", expires="seconds=2")
    content, file = signed(old), old.export(tmp_path / "old.asc")
    time.sleep(3)
    with pytest.raises(Refused, match=r"key .* has expired"):
        verify_inline(content, file, (old.fingerprint,), "x")


def test_a_signing_subkey_may_be_pinned_by_either_fingerprint(tmp_path: Path) -> None:
    main = new_key("main")
    main.gpg("--passphrase", "", "--quick-add-key", main.fingerprint, "ed25519", "sign", "never")
    listing = main.gpg("--with-colons", "--list-keys").splitlines()
    subkey = [line.split(":")[9] for line in listing if line.startswith("fpr:")][1]
    file, content = main.export(tmp_path / "main.asc"), signed(main)
    for pin in (main.fingerprint, subkey):
        assert verify_inline(content, file, (pin,), "x").decode() == TEXT


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n???\n-----END PGP PUBLIC KEY BLOCK-----", "not"),
        (b"-----BEGIN PGP MESSAGE-----\n", "holds no public key"),
        (b"x" * (1 << 20) + b"x", "no key file"),
    ],
)
def test_what_is_no_key_is_said_with_its_file(tmp_path: Path, content: bytes, word: str) -> None:
    file = tmp_path / "bad.asc"
    file.write_bytes(content)
    with pytest.raises(DebError, match=rf"bad\.asc: .*{word}"):
        key_bytes(file)
    with pytest.raises(DebError, match=r"absent\.asc: the key can't be read"):
        key_bytes(tmp_path / "absent.asc")


def test_a_revoked_or_weak_signature_counts_for_nothing() -> None:
    valid = f"[GNUPG:] VALIDSIG {PIN} 2026-01-01 1 0 4 0 1 8 01 {PIN}"
    judge(f"[GNUPG:] GOODSIG AAAA name\n{valid}", Path("k"), (PIN,), "x")
    for word in ("REVKEYSIG", "EXPSIG", "EXPKEYSIG"):
        with pytest.raises(Refused, match=r"revoked|expired"):
            judge(f"[GNUPG:] {word} AAAA name\n{valid}", Path("k"), (PIN,), "x")
    with pytest.raises(Refused, match="carries no signature"):
        judge("", Path("k"), (PIN,), "x")

"""Keys: fingerprints as gpg gives them, one certificate out of many, armor that gpg reads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpin.apt import keys
from tests.conftest import APT_FINGERPRINT, APT_KEY

TWO = APT_KEY.with_name("two-keys.gpg")
OTHER = "2D39575A16292BF3782AE41D53AA249C8682FFD3"
OTHER_SUBKEY = "90913CC3C1541E23AD706D8125570D5C2CCD11D5"


def test_fingerprints_of_armored_and_binary_files() -> None:
    (one,) = keys.read_keys(APT_KEY)
    assert keys.spaced(one.fingerprint) == APT_FINGERPRINT
    first, second = keys.read_keys(TWO)
    assert first == one, "the same bytes, whatever the armor"
    assert (second.fingerprint, second.subkeys) == (OTHER, (OTHER_SUBKEY,))
    assert keys.is_of(second, OTHER_SUBKEY) and not keys.is_of(first, OTHER)


def test_own_armor_holds_one_certificate_and_is_read_again() -> None:
    second = keys.read_keys(TWO)[1]
    text = keys.armor(second.data, "Owned by rackpin (x): y")
    assert text.splitlines()[1] == "Comment: Owned by rackpin (x): y"
    assert keys.certificates(text.encode()) == [second]


@pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg")
def test_gpg_agrees(tmp_path: Path) -> None:
    own = tmp_path / "own.asc"
    own.write_text(keys.armor(keys.read_keys(TWO)[1].data, "Owned by rackpin"))
    for file in (own, TWO):
        listing = subprocess.check_output(
            ["gpg", "--homedir", tmp_path, "--show-keys", "--with-colons", "--with-subkey-f", file],
            text=True,
            timeout=30,
            stderr=subprocess.DEVNULL,
        )
        said = {line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:")}
        read = {f for one in keys.read_keys(file) for f in (one.fingerprint, *one.subkeys)}
        assert read == said


def test_a_fingerprint_is_written_whole() -> None:
    assert keys.normal(APT_FINGERPRINT.lower()) == APT_FINGERPRINT.replace(" ", "")
    for wrong in ("8EE5605F", "", "Z" * 40, APT_FINGERPRINT[:-1]):
        with pytest.raises(ValueError, match="hex digits"):
            keys.normal(wrong)


ARMOR = APT_KEY.read_text()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no public key"),
        ("<html>404</html>", "neither armored nor binary"),
        (ARMOR[: len(ARMOR) // 2], "cut"),
        (ARMOR.replace("PUBLIC KEY BLOCK", "PRIVATE KEY BLOCK"), "private key"),
        (ARMOR.replace("PUBLIC KEY BLOCK", "SIGNATURE"), "PGP signature"),
        (ARMOR.replace("mDME", "mD!E"), "damaged"),
    ],
)
def test_what_is_no_key_is_said(text: str, why: str) -> None:
    with pytest.raises(keys.KeyFileError, match=why):
        keys.certificates(text.encode())


@given(cut=st.integers(0, 700), byte=st.integers(0, 255))
def test_a_damaged_key_is_an_error_or_another_key(cut: int, byte: int) -> None:
    data = bytearray(TWO.read_bytes())
    data[cut] = byte
    try:
        keys.certificates(bytes(data))
        keys.certificates(bytes(data[:cut]))
    except keys.KeyFileError:
        return

"""How weights are stored: by a name such as ``int4``, or by a config's ``quantization_config``."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackpin.plan.data import table
from rackpin.plan.errors import PlanError


@dataclass(frozen=True)
class Quant:
    """One scheme of weights.

    bits: of an element; group and group_bytes: scales along the input; channel_bytes: per output
    row; block: side of a scaled square, 0 none; experts_only: nothing else is quantised;
    keep: modules (name, part of a name, ``re:…`` or a glob) at ``keep_bits``; keep_ends: the
    first and the last layer too; pad and pad_hidden: expert ffn and
    hidden size are padded to multiples of them; published: the
    checkpoint itself is stored so.
    """

    name: str
    bits: int
    plain: bool = False
    group: int = 0
    group_bytes: float = 0.0
    channel_bytes: float = 0.0
    block: int = 0
    experts_only: bool = False
    keep: tuple[str, ...] = ()
    keep_bits: int = 16
    keep_ends: bool = False
    pad: int = 0
    pad_hidden: int = 0
    min_cc: float = 0.0
    published: bool = False

    def nbytes(self, rows: int, columns: int) -> int:
        """Bytes of a weight of ``rows`` outputs and ``columns`` inputs, scales included."""
        return math.ceil(rows * columns * self.bits / 8) + self.scale_bytes(rows, columns)

    def scale_bytes(self, rows: int, columns: int) -> int:
        total = rows * self.channel_bytes
        if self.group:
            total += rows * math.ceil(columns / self.group) * self.group_bytes
        if self.block:
            total += 4 * math.ceil(rows / self.block) * math.ceil(columns / self.block)
        return math.ceil(total)

    def keeps(self, names: Sequence[str]) -> bool:
        """Whether the modules of these names (parts of one fused weight) stay unquantised."""
        return any(_matches(pattern, name) for pattern in self.keep for name in names)


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], name) is not None
        except re.error:
            return False
    if "*" in pattern:
        return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern + ".*")
    # multimodal checkpoints name the language model's layers with a prefix of their own
    return f".{pattern.removeprefix('language_model.')}." in f".{name}."


def named(name: str, keep: tuple[str, ...] = ()) -> Quant:
    """The scheme of a name as people write it. Raises PlanError with the known names."""
    tables = table("quant")
    wish = name.strip().lower().replace("_", "-")
    for known, also in tables["aliases"].items():
        if wish in also:
            wish = known
    row = tables["schemes"].get(wish)
    if row is None:
        names = sorted(
            [*tables["schemes"], *(a for also in tables["aliases"].values() for a in also)]
        )
        raise PlanError(f"--quant {name!r} is not known: name one of {', '.join(names)}")
    return Quant(
        name=wish,
        bits=row["bits"],
        plain=row.get("dtype", False),
        group=row.get("group", 0),
        group_bytes=row.get("group_bytes", 0.0),
        channel_bytes=row.get("channel_bytes", 0.0),
        block=row.get("block", 0),
        experts_only=row.get("only") == "experts",
        keep=keep or tuple(row.get("keep", ())),
        keep_bits=row.get("keep_bits", 16),
        keep_ends=row.get("keep_ends", False) and not keep,
        pad=row.get("pad", 0),
        pad_hidden=row.get("pad_hidden", 0),
        min_cc=row.get("min_cc", 0.0),
    )


def on_card(quant: Quant, cc: float, generation: str) -> Quant:
    """The layout that a card of compute capability ``cc`` (0 unknown) and a version use."""
    row = table("quant")["fallback"].get(quant.name)
    if row is None:
        return quant
    old = 0 < cc < row["below_cc"] or cc >= row["from_cc"]
    if not old and generation not in row["generations"]:
        return quant
    return replace(named(row["to"], quant.keep), published=quant.published)


def from_config(file: str, config: Any) -> Quant:
    """The scheme of a published checkpoint: what `_described` finds, marked so."""
    return replace(_described(file, config), published=True)


def _described(file: str, config: Any) -> Quant:
    """The scheme that a ``quantization_config`` (or ``compression_config``) describes.

    Raises PlanError naming file and key for one that isn't known.
    """
    if not isinstance(config, dict):
        raise PlanError(f"{file}: quantization_config is no object; correct it or use --quant")
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    keep = _kept(config)
    bits = config.get("bits") or config.get("w_bit")
    if method in ("fp8", "deepseek_fp8", "fbgemm_fp8"):
        if config.get("weight_block_size"):
            return named("fp8-block", keep)
        return named("fbgemm-fp8" if "fbgemm" in method else "fp8", keep)
    if method in (
        "gptq",
        "gptq_marlin",
        "awq",
        "awq_marlin",
        "autoround",
        "auto-round",
        "auto_round",
    ):
        base = "awq" if "awq" in method else ("gptq-int8" if bits == 8 else "gptq-int4")
        scheme = named(base, keep)
        size = config.get("group_size") or config.get("q_group_size") or scheme.group
        return _grouped(scheme, file, size, bits)
    if method in ("compressed-tensors", "compressed_tensors", "sparseml"):
        return _compressed(file, config, keep)
    if method.startswith("modelopt") or "quant_algo" in config or "quantization" in config:
        inner = config.get("quantization", config)
        algo = str(inner.get("quant_algo", method)).lower() if isinstance(inner, dict) else method
        return named("nvfp4" if "fp4" in algo else "fp8", keep)
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return named("mxfp4", keep)
    if method in ("bitsandbytes", "bnb"):
        return named("bnb-int8" if config.get("load_in_8bit") else "bnb-nf4", keep)
    if method == "quark" or not method:
        return _compressed(file, config, keep)
    try:
        return named(method, keep)
    except PlanError:
        raise PlanError(
            f"{file}: quantization_config.quant_method {method!r} is not known; name the scheme "
            "with --quant"
        ) from None


def _kept(config: dict[str, Any]) -> tuple[str, ...]:
    for key in (
        "modules_to_not_convert",
        "ignored_layers",
        "ignore",
        "exclude_modules",
        "exclude",
        "llm_int8_skip_modules",
    ):
        listed = config.get(key)
        if isinstance(listed, list):
            return tuple(str(entry) for entry in listed)
    inner = config.get("quantization")
    return _kept(inner) if isinstance(inner, dict) else ()


def _grouped(scheme: Quant, file: str, size: Any, bits: Any) -> Quant:
    if not isinstance(size, int) or (size != -1 and size < 1):
        raise PlanError(f"{file}: quantization_config.group_size {size!r} is no size; correct it")
    wide = bits if isinstance(bits, int) and bits in (2, 3, 4, 8) else scheme.bits
    if size == -1:
        return replace(scheme, bits=wide, group=0, group_bytes=0.0, channel_bytes=2.5)
    return replace(scheme, bits=wide, group=size)


def _compressed(file: str, config: dict[str, Any], keep: tuple[str, ...]) -> Quant:
    """compressed-tensors: the first group that has weights decides."""
    groups = config.get("config_groups")
    wanted = [g for g in groups.values() if isinstance(g, dict)] if isinstance(groups, dict) else []
    for group in wanted:
        weights, inputs = group.get("weights"), group.get("input_activations")
        if not isinstance(weights, dict):
            continue
        bits, kind = weights.get("num_bits"), str(weights.get("type", "int"))
        size, strategy = weights.get("group_size"), str(weights.get("strategy", ""))
        if bits == 4 and kind == "float":
            return named("nvfp4", keep) if size in (16, None) else named("mxfp4", keep)
        if bits == 4:
            if isinstance(inputs, dict) and inputs.get("num_bits") == 8:
                return named("w4a8", keep)
            return _grouped(named("int4", keep), file, size or -1, bits)
        if bits == 8 and kind == "float":
            return named("fp8-block" if strategy == "block" else "fp8-channel", keep)
        if bits == 8:
            return named("int8", keep)
    raise PlanError(
        f"{file}: quantization_config says neither a known quant_method nor weights of 4 or 8 "
        "bits; name the scheme with --quant"
    )

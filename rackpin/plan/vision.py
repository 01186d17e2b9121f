"""Size of a multimodal model's vision tower and projector, from its ``vision_config``."""

from __future__ import annotations

from typing import Any

from rackpin.plan.data import table


def vision_config(config: dict[str, Any]) -> dict[str, Any] | None:
    """The object that describes the vision tower; None for a text model."""
    for key in table("families")["vision_in"]:
        found = config.get(key)
        if isinstance(found, dict):
            return found
    return None


def vision_params(vision: dict[str, Any], model_type: str, hidden: int) -> int:
    """Elements of tower and projector; 0 when the config says too little to tell.

    SigLIP's shapes (biases, learned positions) unless the type has gated ffns without biases.
    """
    width = _number(vision, "hidden_size", "embed_dim", "width")
    depth = _number(vision, "num_hidden_layers", "depth", "layers")
    ratio = vision.get("mlp_ratio", 4)
    ffn = _number(vision, "intermediate_size")
    if not ffn and isinstance(ratio, int | float) and not isinstance(ratio, bool):
        ffn = int(width * min(max(ratio, 0), 64))
    if not width or not depth:
        return 0
    patch = _number(vision, "patch_size", "spatial_patch_size") or 14
    kind = str(vision.get("model_type", ""))
    gated = kind in ("pixtral", "qwen2_5_vl") or model_type == "mistral3"
    if gated:
        layer = 4 * width * width + 3 * width * ffn + 2 * width
    else:
        layer = 4 * (width * width + width) + 2 * width * ffn + width + ffn + 4 * width
    total = depth * layer + 3 * patch * patch * width + width
    image = _number(vision, "image_size")
    if image and not gated:
        total += (image // patch) ** 2 * width + 2 * width
    if model_type.startswith("gemma3"):
        return total + width * hidden + width
    merged = 4 * width
    if model_type == "mistral3":
        return total + merged * width + width * hidden + hidden * hidden + width
    return total + merged * merged + merged * hidden


def _number(vision: dict[str, Any], *names: str) -> int:
    for name in names:
        found = vision.get(name)
        if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 10**6:
            return found
    return 0

"""A vLLM platform plugin: the CPU platform, able to be spread over Ray nodes."""


def register() -> str:
    """Return the dotted name of the platform class, as ``vllm.platform_plugins`` wants it.

    vLLM imports it later: importing it here would ask for the platform while it is being chosen.
    """
    return "rackpin_lab_vllm_cpu.platform.LabCpuPlatform"

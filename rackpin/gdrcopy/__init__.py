"""gdrcopy from its pinned source: the module gdrdrv by DKMS, and the library that NCCL opens."""

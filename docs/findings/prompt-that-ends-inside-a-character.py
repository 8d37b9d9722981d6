"""vLLM 0.32.0: the text of the prompt is sent as part of the answer if the prompt ends inside a character.

    python -m vllm.entrypoints.openai.api_server --model fixtures/models/canary/mediocre --dtype bfloat16 \
        --enforce-eager --max-model-len 2048 --no-enable-prefix-caching --port 8001
    pip install httpx && python prompt-that-ends-inside-a-character.py http://127.0.0.1:8001

Any model with a byte-level tokenizer will do: a prompt is written as ids, and its last id is the first byte of "e with
acute". Ends with 1 if the answer holds the prompt.
"""

import os
import sys

import httpx

KEY = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
client = httpx.Client(headers=KEY, timeout=60)

url = sys.argv[1]
model = client.get(f"{url}/v1/models").json()["data"][0]["id"]


def tokenize(text: str) -> list[int]:
    """The ids of a text, without an end of sequence."""
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    return client.post(f"{url}/tokenize", json=body).json()["tokens"]


SECRET = "The secret word is bricks"
whole = tokenize(SECRET + "\u00e9")
answers = []
for prompt in (whole, whole[:-1]):
    body = {"model": model, "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    answers.append(client.post(f"{url}/v1/completions", json=body).json()["choices"][0]["text"])
print(f"prompt of {len(whole)} ids, whole: {answers[0]!r}")
print(f"its first {len(whole) - 1} ids, inside a character: {answers[1]!r}")
sys.exit(int(SECRET in answers[1]))

"""The SDK as it is made by default; it tries nothing again. Usage: with_anthropic.py BASE"""

import sys

from anthropic import Anthropic

ASKED = {"model": "test", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]}
client = Anthropic(api_key="andante", base_url=sys.argv[1] + "/once", max_retries=0)
for _ in range(3):
    if client.messages.create(**ASKED).content[0].text != "hello":
        sys.exit("another answer")
client = client.with_options(base_url=sys.argv[1] + "/stream")
with client.messages.stream(**ASKED) as stream:
    words = list(stream.text_stream)
if words != ["hel", "lo"]:
    sys.exit(f"streamed {words}")
print("spoke")

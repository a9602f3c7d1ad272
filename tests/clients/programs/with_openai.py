"""The SDK as it is made by default; it tries nothing again. Usage: with_openai.py BASE"""

import sys

from openai import OpenAI

ASKED = {"model": "test", "messages": [{"role": "user", "content": "hello"}]}
client = OpenAI(api_key="andante", base_url=sys.argv[1] + "/once/v1", max_retries=0)
for _ in range(3):
    if client.chat.completions.create(**ASKED).choices[0].message.content != "hello":
        sys.exit("another answer")
client = client.with_options(base_url=sys.argv[1] + "/stream/v1")
words = [chunk.choices[0].delta.content for chunk in client.chat.completions.create(**ASKED, stream=True)]
if words != ["hel", "lo"]:
    sys.exit(f"streamed {words}")
print("spoke")

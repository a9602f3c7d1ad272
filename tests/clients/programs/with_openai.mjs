// The SDK as it is made by default; it tries nothing again. Usage: with_openai.mjs BASE
import { createRequire } from 'node:module'

const { OpenAI } = createRequire(process.env.MORE_NODE_CLIENTS)('openai')
const base = process.argv[2]
const asked = { model: 'test', messages: [{ role: 'user', content: 'hello' }] }

const once = new OpenAI({ apiKey: 'andante', baseURL: `${base}/once/v1`, maxRetries: 0 })
for (let n = 0; n < 3; n++) {
  const answer = await once.chat.completions.create(asked)
  if (answer.choices[0].message.content !== 'hello') throw new Error('another answer')
}
const streaming = new OpenAI({ apiKey: 'andante', baseURL: `${base}/stream/v1`, maxRetries: 0 })
const words = []
for await (const chunk of await streaming.chat.completions.create({ ...asked, stream: true })) {
  words.push(chunk.choices[0].delta.content)
}
if (words.join(' ') !== 'hel lo') throw new Error(`streamed ${words}`)
console.log('spoke')

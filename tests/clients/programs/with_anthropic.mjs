// The SDK as it is made by default; it tries nothing again. Usage: with_anthropic.mjs BASE
import { createRequire } from 'node:module'

const { Anthropic } = createRequire(process.env.MORE_NODE_CLIENTS)('@anthropic-ai/sdk')
const base = process.argv[2]
const asked = { model: 'test', max_tokens: 10, messages: [{ role: 'user', content: 'hello' }] }

const once = new Anthropic({ apiKey: 'andante', baseURL: `${base}/once`, maxRetries: 0 })
for (let n = 0; n < 3; n++) {
  const answer = await once.messages.create(asked)
  if (answer.content[0].text !== 'hello') throw new Error('another answer')
}
const streaming = new Anthropic({ apiKey: 'andante', baseURL: `${base}/stream`, maxRetries: 0 })
const words = []
for await (const event of await streaming.messages.create({ ...asked, stream: true })) {
  if (event.type === 'content_block_delta') words.push(event.delta.text)
}
if (words.join(' ') !== 'hel lo') throw new Error(`streamed ${words}`)
console.log('spoke')

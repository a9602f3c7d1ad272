import { createRequire } from 'node:module'
import { walk } from './steps.mjs'

const { default: got } = createRequire(process.env.NODE_CLIENTS)('got')

await walk(async (method, url, body) => {
  const answer = await got(url, { method, body, retry: { limit: 0 } })
  return { status: answer.statusCode, text: answer.body, protocol: `HTTP/${answer.httpVersion}` }
})

// Usage: with_undici.mjs BASE env | proxy: EnvHttpProxyAgent, or ProxyAgent with the address read from the environment.
import { createRequire } from 'node:module'
import { walk } from './steps.mjs'

// Where tests/clients/install.py put it.
const { EnvHttpProxyAgent, ProxyAgent, request } = createRequire(process.env.NODE_CLIENTS)('undici')
const dispatcher = process.argv[3] === 'env' ? new EnvHttpProxyAgent() : new ProxyAgent(process.env.HTTPS_PROXY)

await walk(async (method, url, body) => {
  const answer = await request(url, { method, body, dispatcher })
  return { status: answer.statusCode, text: await answer.body.text() }
})
await dispatcher.close()

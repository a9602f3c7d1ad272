import { createRequire } from 'node:module'
import { walk } from './steps.mjs'

const axios = createRequire(process.env.NODE_CLIENTS)('axios')
// Text as it comes, not what it looks like.
const client = axios.create({ responseType: 'text', transformResponse: [], headers: { 'content-type': 'text/plain' } })

await walk(async (method, url, data) => {
  const answer = await client.request({ method, url, data })
  return { status: answer.status, text: answer.data }
})

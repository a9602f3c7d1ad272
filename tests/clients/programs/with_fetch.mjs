import { walk } from './steps.mjs'

await walk(async (method, url, body) => {
  const answer = await fetch(url, { method, body })
  return { status: answer.status, text: await answer.text() }
})

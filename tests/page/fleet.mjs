// Two andantes that share a limit: the page says who they are, and when their store is lost.
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import net from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { api, ask, examine, holds, look, opened, proxy, says, texts, until } from './world.mjs'

/** How long an andante goes on without its store, in seconds: short, since the test waits for its end. */
const LEASE = 2

async function freePort() {
  const server = net.createServer()
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}

export async function fleet(browser) {
  const folder = mkdtempSync(join(tmpdir(), 'andante-page-store-'))
  const storePort = await freePort()
  const store = spawn('redis-server', ['--port', storePort, '--bind', '127.0.0.1', '--save', '', '--dir', folder], { stdio: 'ignore' })
  const url = `redis://127.0.0.1:${storePort}`
  holds('the store is new', await until(() => spawnSync(process.env.ANDANTE, ['fleet', 'init', '--store', url, '--lease', `${LEASE}s`]).status === 0))
  const { server, port } = await api()
  const host = 'orders.example.com'
  const members = await Promise.all([1, 2].map(() => proxy({ [host]: ['20/s'] }, `store = '${url}'\nlease = '${LEASE}s'\n`)))
  const loads = members.map(({ listen }) => ask(listen, `${host}:${port}`, '/', 100))
  const { page } = await opened(browser, members[0].admin)
  const section = page.locator('#fleet')
  const fact = (name) => section.locator('dt', { hasText: name }).locator('xpath=../dd')
  holds('the page counts the members', await until(async () => (await texts(fact('members')))[0] === '2', 20_000), await texts(section))
  holds('and says how they stand with the store', await until(() => says(fact(/^store$/), 'limits are shared')), await texts(section))
  await until(async () => (await page.locator('#lanes tbody tr').count()) > 0)
  await look(page, 'fleet')
  await examine(page, 'the page of a fleet')
  await page.goto(`${members[0].admin}#lane=${encodeURIComponent(`${host} ${host}`)}`)
  holds('a lane says what this andante holds of its limit', await until(async () => (await texts(page.locator('#lane td'))).some((text) => /\d+ here, \d+ of them free; [\d.]+ due/.test(text))), await texts(page.locator('#lane')))
  store.kill('SIGKILL')
  const words = page.locator('#verdict-words')
  holds('the status line says that the store is lost', await until(() => says(words, 'The store is lost: nothing leaves'), (LEASE + 20) * 1000), await texts(page.locator('#verdict')))
  await look(page, 'fleet-lost')
  await page.context().close()
  for (const { sessions } of loads) sessions.forEach((session) => session.destroy())
  for (const { child, folder } of members) {
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true })
  }
  rmSync(folder, { recursive: true, force: true })
  server.closeAllConnections()
  server.close()
}

// The charts and the simulator: what they say follows from a known limit by arithmetic.
import { rmSync } from 'node:fs'
import { api, ask, examine, holds, later, look, opened, proxy, says, texts, until } from './world.mjs'

/** Requests per second that the API allows, and requests that are asked for at once: a queue of 50 s. */
const [PACE, REQUESTS] = [8, 400]
/** A sample, in seconds. */
const STEP = 5

/** The number before a unit in a legend: `sent 8/s` is 8. */
const value = (text, name) => Number((text.match(new RegExp(`${name} ([\\d.,]+)`)) ?? [])[1]?.replaceAll(',', ''))

/** Durations of a legend, in seconds. */
const wait = (text, name) => {
  const [, minutes, seconds] = text.match(new RegExp(`${name} (?:(\\d+) min )?([\\d.]+) s`)) ?? []
  return seconds === undefined ? NaN : Number(minutes ?? 0) * 60 + Number(seconds)
}

export async function charts(browser) {
  const { server, port } = await api()
  const [even, pausing, down] = ['orders.example.com', 'search.example.com', 'stock.example.com']
  const andante = await proxy({ [even]: [`${PACE}/s`], [pausing]: ['5/s'], [down]: ['5/s'] })
  const began = performance.now()
  const loads = [ask(andante.listen, `${even}:${port}`, '/', REQUESTS), ask(andante.listen, `${pausing}:${port}`, '/pause', 10)]
  const { page, complaints, elsewhere } = await opened(browser, andante.admin)
  const chart = (title) => page.locator('.chart').filter({ has: page.getByRole('heading', { name: title, exact: true }) })

  await page.goto(`${andante.admin}#lane=${encodeURIComponent(`${even} ${even}`)}`)
  const legend = async (title) => (await texts(chart(title).locator('.legend')))[0] ?? ''
  // Three samples: the first one may have begun before the requests.
  await later(Math.max(0, 3.5 * STEP * 1000 - (performance.now() - began)))
  await until(async () => value(await legend('Sent per second'), 'sent') > 0)
  const sent = await legend('Sent per second')
  holds('the chart has the limit', value(sent, 'limit') === PACE, sent)
  // A sample may begin or end a few tenths of a second late.
  holds('a full queue leaves at the limit', Math.abs(value(sent, 'sent') - PACE) <= 4 / STEP, sent)
  const waits = await legend('How long requests waited')
  const [median, p95, p99] = ['median', 'p95', 'p99'].map((name) => wait(waits, name))
  const elapsed = (performance.now() - began) / 1000
  holds('percentiles are in order', median <= p95 && p95 <= p99, waits)
  // All came at once: who leaves within the last sample has waited since then; a bucket of the histogram ends at 10 s.
  holds('who leaves now has waited since the beginning', median >= 10 && median <= Math.max(30, elapsed), [waits, elapsed])
  const window = page.locator('#lane section').filter({ has: page.getByRole('heading', { name: 'The window as the API sees it' }) })
  const cells = await texts(window.locator('tbody td'))
  const [, used] = cells[1]?.match(/^(\d+) of 8$/) ?? []
  holds('the window has its limit, what is used of it, and room', Number(used) + Number(cells[2]) === PACE, cells)
  // The limit is per second: a request counts for a second and a margin after it was sent.
  holds('and says when it renews', Number((cells[3]?.match(/first in ([\d.]+) s/) ?? [])[1]) <= 2, cells)
  await look(page, 'charts-lane')
  await examine(page, 'a lane with charts')

  await page.goto(`${andante.admin}#`)
  const row = page.locator('.timeline li').filter({ hasText: pausing })
  const told = await until(async () => (await row.locator('svg').count()) && row.locator('svg').getAttribute('aria-label'))
  const [, paused] = told.match(/paused for about (\d+(?:\.\d)?) s/) ?? []
  // A pause of 20 s, that has just ended or goes on: at most one sample more.
  holds('the timeline has the pause', Number(paused) >= 10 && Number(paused) <= 20 + STEP, told)
  holds('and what was refused', told.includes('1 refused'), told)
  const marks = await row.locator('svg rect.refused').count()
  holds('as one mark', marks === 1, marks)
  const spark = await page.locator('#lanes tbody tr').filter({ hasText: even }).locator('svg.spark').getAttribute('aria-label')
  holds('a row has its line', /at most (7\.\d+|8(\.\d+)?)\/s, limit 8\/s/.test(spark), spark)
  const points = async () => ((await chart('Sent per second, all lanes').locator('path.edge').first().getAttribute('d')) ?? '').split(/[ML]/).length - 1
  await until(async () => (await points()) >= 4)
  const before = await points()
  await page.reload()
  holds('a page that is opened anew knows the last minutes', await until(async () => (await points()) >= before), [before, await points()])
  holds('a refusal of the API stays in the status line', await until(async () => /is paused|An API refused requests/.test((await texts(page.locator('#verdict-words')))[0])), await texts(page.locator('#verdict')))

  await plan(page, complaints)
  await look(page, 'charts-overview')
  await examine(page, 'the page with charts')
  // Their clients go away while most of the queue still waits.
  loads.forEach(({ sessions }) => sessions.forEach((session) => session.destroy()))
  const words = page.locator('#verdict-words')
  holds('the status line says that clients left', await until(() => says(words, 'Clients left before their answers'), 3 * STEP * 1000), await texts(page.locator('#verdict')))
  const [told_left] = await texts(page.locator('#verdict-detail'))
  const left = Number((told_left.match(/^([\d,]+) in the last/) ?? [])[1]?.replaceAll(',', ''))
  holds('and how many', left > 50 && left < REQUESTS, told_left)
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  loads.push(ask(andante.listen, `${down}:${port}`, '/', 1))
  holds('and then, that an API cannot be reached', await until(() => says(words, `could not connect to ${down}:${port}`), 20_000), await texts(page.locator('#verdict')))
  await page.setViewportSize({ width: 320, height: 640 })
  await look(page, 'charts-phone')
  await examine(page, 'the page with charts on a phone')
  holds('the console says nothing of the charts', !complaints.length, complaints)
  holds('and nothing is asked of anybody else', !elsewhere.length, elsewhere)
  await page.context().close()
  for (const { sessions } of loads) sessions.forEach((session) => session.destroy())
  andante.child.kill('SIGKILL')
  rmSync(andante.folder, { recursive: true })
}

/** The simulator, by the keyboard, against figures that are worked out by hand. */
async function plan(page, complaints) {
  const form = page.locator('#plan form')
  const result = page.locator('#plan-result')
  const fact = (name) => result.locator('dt', { hasText: name }).locator('xpath=../dd')
  holds('the simulator begins with a limit of a lane', /^\d+\/s$/.test(await form.getByLabel('Limits').inputValue()), await form.getByLabel('Limits').inputValue())
  await form.getByLabel('Limits').fill('10/s')
  await form.getByLabel('Requests').fill('301')
  await page.keyboard.press('Enter')
  // The first leaves at once, each further one 100 ms later.
  holds('301 requests at 10/s take 30 s', await until(async () => (await texts(fact('drained in')))[0] === '30 s'), await texts(result))
  holds('it says what holds them back', (await fact('held back by').textContent()) === '10/s')
  holds('and draws the queue', (await result.locator('svg').first().getAttribute('aria-label')).includes('requests from 301 to 0 within 30 s'))
  await result.getByRole('button', { name: '20/s', exact: true }).click()
  holds('twice the limit takes half the time', await until(async () => (await texts(fact('drained in')))[0] === '15 s'), await texts(result))
  await form.getByLabel('Limits').fill('10/s')
  await form.getByLabel('or flows').fill('batch=1000 live=100@10')
  await form.getByRole('button', { name: 'Simulate' }).click()
  // Of eleven slots ten are those of live: its 100 are through after 110, or about 11 s; all 1,100 after 109.9 s.
  const live = result.locator('tbody tr').filter({ hasText: 'live' }).locator('td').last()
  holds('a heavy flow leaves first', await until(async () => /^1[01](\.\d)? s$/.test((await texts(live))[0] ?? '')), await texts(result))
  holds('and all flows as late as the limit says', (await texts(fact('drained in')))[0] === '110 s', await texts(fact('drained in')))
  await look(page, 'plan')
  await form.getByLabel('Limits').fill('10 per s')
  await page.keyboard.press('Enter')
  holds('a mistake is told, with what to write', await until(async () => (await texts(result))[0]?.includes('10/s')), await texts(result))
  // The browser reports the refusal itself, whenever it gets to it.
  await until(() => complaints.length)
  holds('which the console reports, and nothing else', complaints.splice(0).every((complaint) => complaint.includes('400')))
  await form.getByLabel('Limits').fill('10/s')
  await page.keyboard.press('Enter')
  await until(async () => (await texts(fact('drained in')))[0] === '110 s')
}

// Opens the live page of a real andante in a real browser, and looks at it while a queue of 30,000 drains. Usage:
// page.mjs [--pictures]. Prints what holds, and exits with 1 if something does not.
import { rmSync } from 'node:fs'
import { charts } from './charts.mjs'
import { fleet } from './fleet.mjs'
import { api, ask, chromium, count, examine, holds, later, look, opened, picture, proxy, result, says, seconds, texts, TOKEN, until } from './world.mjs'

const QUEUE = 30_000
const LIMIT = 2_000
/** Seconds for which an API asks for a pause: it is looked at after other things. */
const PAUSE = 30

/** Pauses and resumes the lane that is open, by its buttons. */
async function steered(page, lane, complaints) {
  const dialog = page.getByRole('dialog')
  const pause = lane.locator('.pause')
  const sent = lane.locator('dt', { hasText: 'sent so far' }).locator('xpath=../dd')
  await lane.getByRole('button', { name: 'Pause' }).click()
  holds('a button asks for the token', await dialog.isVisible())
  await examine(page, 'the dialog')
  await dialog.getByLabel('Token').fill('a wrong token')
  await dialog.getByRole('button', { name: 'Do it' }).click()
  const refused = await until(async () => (await dialog.getByRole('alert').textContent()).includes('the token is missing or wrong'))
  holds('a wrong one is refused', refused)
  // The browser reports the refusal itself, whenever it gets to it.
  await until(() => complaints.length)
  holds('which is all that the console says', complaints.splice(0).every((complaint) => complaint.includes('401')))
  await dialog.getByLabel('Token').fill(TOKEN)
  await dialog.getByLabel('For').selectOption('10m')
  await dialog.getByRole('button', { name: 'Do it' }).click()
  holds('the lane is paused', await until(() => says(pause, 'paused by an operator')))
  holds('for as long as was said', await says(pause, ' left:'), await texts(pause))
  holds('and the dialog closed', await until(async () => !(await dialog.isVisible())))
  // What had its slot by then is on its way, and is counted with the next turn of the page.
  await later(1500)
  const before = await sent.textContent()
  await later(2000)
  holds('nothing leaves meanwhile', (await sent.textContent()) === before, [before, await sent.textContent()])
  await lane.getByRole('button', { name: 'Resume' }).click()
  await dialog.getByRole('button', { name: 'Do it' }).click()
  holds('it is resumed', await until(async () => !(await says(pause, 'operator'))))
  holds('and goes on', await until(async () => count(await sent.textContent()) > count(before), 30_000))

  /** Presses a button, fills what it asks for, and says whether it was done. */
  const change = async (name, fill) => {
    await lane.getByRole('button', { name }).click()
    await fill?.()
    await dialog.getByRole('button', { name: 'Do it' }).click()
    const done = await until(async () => !(await dialog.isVisible()))
    holds(`${JSON.stringify(name)} is done`, done, await texts(page.locator('#steer-said')))
    if (!done) await dialog.getByRole('button', { name: 'Cancel' }).click()
  }
  const waiting = lane.locator('dt', { hasText: /^waiting$/ }).locator('xpath=../dd')
  const there = count(await waiting.textContent())
  await change('Limit', () => dialog.getByLabel('Limits').fill('1/s'))
  holds('the limit holds, and it is told for how long', await until(() => says(lane.locator('tr'), 'set by an operator, for')))
  await change('Weights', () => dialog.getByLabel('Weights').fill('live=10, batch=1'))
  await change('Let first', () => dialog.getByLabel('Whose requests').selectOption({ index: 0 }))
  await change('Forget what was learned')
  holds('many still wait', there > 10 && count(await waiting.textContent()) > 10, there)
  await examine(page, 'a lane with a limit for a while')
  await change('Drop', () => dialog.getByLabel('Whose requests').selectOption({ index: 0 }))
  holds('which waits no more', await until(async () => (await waiting.textContent()) === '0'), await waiting.textContent())
}

async function main() {
  const { server, port } = await api(PAUSE)
  const [fast, paused, slow] = ['catalogue.example.com', 'search.example.com', 'mail.example.com']
  const andante = await proxy({ [fast]: [`${LIMIT}/s`], [paused]: ['5/s'], [slow]: ['2/s', '500/min'] })
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] })
  const { page, complaints, elsewhere } = await opened(browser, andante.admin)
  holds('the page follows andante', await until(async () => /(^|, )andante \d/.test(await page.textContent('#state'))))
  holds('it says that nothing has come yet', (await page.textContent('#none')) === 'No request has come yet.')

  holds('nothing is wrong then', await until(() => says(page.locator('#verdict-words'), 'Nothing is wrong')), await texts(page.locator('#verdict')))

  const row = (host) => page.locator('#lanes tbody tr').filter({ has: page.getByRole('link', { name: host, exact: true }) })
  const cell = (host, label) => row(host).locator(`td[data-label="${label}"]`)
  // The pause comes first: the long queue takes longer, and the processor.
  const held = ask(andante.listen, `${paused}:${port}`, '/pause', 20)
  const pause = row(paused).locator('.pause')
  holds('a pause is shown, with its reason', await until(() => says(pause, 'asked for a wait'), 20_000))
  holds('the status line names it', await until(() => says(page.locator('#verdict-words'), `${paused} is paused`)), await texts(page.locator('#verdict')))
  const load = ask(andante.listen, `${fast}:${port}`, '/', QUEUE)
  const tries = ask(andante.listen, `${slow}:${port}`, '/', 600)
  // Before anything that takes its time: the queue drains all the while.
  const most = await until(async () => {
    const [waiting] = await texts(cell(fast, 'Waiting'))
    return count(waiting) > 1000 && count(waiting)
  })
  holds('a badge says how HTTPS to the host is handled', await until(() => says(page.locator('#lanes tbody small.https').first(), 'paced by turns')))
  holds('a long queue is shown', most > 1000, most)
  // Both of one moment.
  const [seen, drained] = await row(fast).evaluate((row) => ['Waiting', 'Drained in'].map((label) => row.querySelector(`td[data-label="${label}"]`).textContent))
  holds('and when it will be drained, as its limit says', Math.abs(seconds(drained) - count(seen) / LIMIT) <= 2.5, [seen, drained])
  await picture(page, 'light')
  await page.emulateMedia({ colorScheme: 'dark' })
  await picture(page, 'dark')
  await page.setViewportSize({ width: 320, height: 640 })
  await picture(page, 'phone')
  await page.emulateMedia({ colorScheme: 'light' })
  await page.setViewportSize({ width: 1280, height: 640 })
  const left = []
  for (const end = performance.now() + (PAUSE + 5) * 1000; performance.now() < end; await later(250)) {
    const [said] = await texts(pause)
    if (!said) break
    if (!Number.isNaN(seconds(said))) left.push(seconds(said))
  }
  const falls = left.every((value, at) => !at || value <= left[at - 1])
  holds('it counts down to its end', left[0] > 3 && left.at(-1) < 2 && falls, left)

  await look(page, 'overview')
  await examine(page, 'the page')
  await page.emulateMedia({ colorScheme: 'dark' })
  const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor)
  holds('it is dark where that is wished', background === 'rgb(21, 24, 27)', background)
  await examine(page, 'the dark page')
  await page.setViewportSize({ width: 320, height: 640 })
  await examine(page, 'the page on a phone')
  await page.emulateMedia({ colorScheme: 'light' })

  // With the keyboard alone.
  await page.setViewportSize({ width: 1280, height: 640 })
  await page.locator('#filter').focus()
  await page.keyboard.type(slow)
  holds('the filter leaves one lane', await until(async () => (await page.locator('#lanes tbody tr').count()) === 1))
  await page.keyboard.press('Tab')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  const title = page.locator('#lane h2')
  holds('a lane is opened by the keyboard', await until(async () => (await title.isVisible()) && (await page.locator('#lane .charts').isVisible())))
  holds('and it is the right one', (await title.textContent()) === slow)
  const lane = page.locator('#lane')
  const inside = await lane.textContent()
  for (const part of ['How long requests waited', 'Answers of this rule by code', 'configured', '2/s', '500/min']) {
    holds(`it has ${JSON.stringify(part)}`, inside.includes(part))
  }
  holds('waiting over time is told in words too', await until(async () => (await lane.locator('svg[aria-label^="Waiting over the last"]').count()) === 1))
  await look(page, 'lane')
  await examine(page, 'an opened lane')
  await page.emulateMedia({ colorScheme: 'dark' })
  await page.setViewportSize({ width: 320, height: 640 })
  await examine(page, 'an opened lane on a phone in the dark')
  await page.emulateMedia({ colorScheme: 'light' })
  await page.setViewportSize({ width: 1280, height: 640 })
  await steered(page, lane, complaints)
  await page.getByRole('link', { name: 'all lanes' }).click()
  await page.locator('#filter').fill('')
  holds('the events tell of the pause', await until(async () => (await page.textContent('#news')).includes(`paused for ${PAUSE} s: the API asked for a wait`)))

  holds('the queue drains to its end', await until(async () => (await cell(fast, 'Waiting').textContent()) === '0', 90_000))
  holds('and every request is answered', await until(() => load.answered === QUEUE, 5000), load.answered)
  holds('those that had to pause, too', await until(() => held.answered === 20), held.answered)
  holds('the console says nothing', !complaints.length, complaints)
  holds('nothing is asked of anybody else', !elsewhere.length, elsewhere)
  const ended = new Promise((resolve) => andante.child.once('exit', () => resolve(true)))
  await page.getByRole('button', { name: 'Drain and stop this andante' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Do it' }).click()
  // Its clients keep their connections, until they are told that these end.
  for (const { sessions } of [load, tries, held]) sessions.forEach((session) => session.close())
  holds('andante drains and ends at a button', await Promise.race([ended, later(40_000)]))

  await charts(browser)
  await fleet(browser)
  await browser.close()
  for (const { sessions } of [load, tries, held]) sessions.forEach((session) => session.destroy())
  andante.child.kill('SIGKILL')
  rmSync(andante.folder, { recursive: true })
  server.closeAllConnections()
  server.close()
}

await main()
console.log(`\n${result.passed} passed, ${result.failed} failed`)
process.exit(result.failed ? 1 : 0)

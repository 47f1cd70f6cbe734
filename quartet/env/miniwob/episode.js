// The harness's side of a MiniWoB++ episode, in the isolated world of the frame on the stage: load the task page into
// this frame, start it, read its state. See stage.js for the frame and judge.js for the page's answers.
(() => {
  const LONGEST_EPISODE_MS = 10_000_000 // The rollout has its own deadline; the page's 10 s are for people.
  const SETTLE_LIMIT_MS = 1000
  const MAX_GOAL = 10_000
  const MAX_REASON = 200
  // The policy must not see time and reward; movement or blinking would make two pictures of the same state differ.
  const TASK_STYLE = `#reward-display, #click-canvas { visibility: hidden }
    * { transition: none !important; animation: none !important; caret-color: transparent !important }`

  quartet.unlisted = '#query, #reward-display, #click-canvas, #sync-task-cover, .ui-resizable-handle, script, style'

  const { port1: port, port2: theirs } = new MessageChannel()
  parent.postMessage('', '*', [theirs])
  const stage = (service) =>
    new Promise((resolve) => { port.onmessage = ({ data }) => resolve(data); port.postMessage(service) })
  quartet.view = () => stage('view')

  const until = async (condition) => {
    while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1))
  }

  async function load() {
    const { watch, html } = await stage('page')
    document.open()
    const script = document.createElement('script')
    script.textContent = watch
    document.append(script) // runs at once, among the page's scripts to come
    script.remove()
    document.write(html)
    document.close()
    await until(() => document.getElementById('sync-task-cover'))
    const style = document.createElement('style')
    style.textContent = TASK_STYLE
    document.head.append(style)
  }

  // Start the episode of `seed` of the family on the stage.
  async function start(seed) {
    await load()
    quartet.ask('start', { seed, longestMs: LONGEST_EPISODE_MS })
    await until(() => quartet.ask('ready'))
    await stage('top') // Focusing an element may have scrolled the page.
    return state()
  }

  // The page's answer, or undefined if it fails: an action may have made it remove its own parts.
  function answer(question) {
    try {
      return quartet.ask(question)
    } catch {
      return undefined
    }
  }

  // {text, unreadable}: the page's text, or the reason why it cannot be read: a form field's name may hide a property.
  async function settled() {
    try {
      return { text: await quartet.settle(() => answer('done') ?? true, SETTLE_LIMIT_MS), unreadable: '' }
    } catch (error) {
      return { text: '', unreadable: quartet.cut(`${error}`, MAX_REASON) }
    }
  }

  // {goal, text, unreadable, done, reward, reason} once the page is stable, or null if it is no task page any more.
  async function state() {
    const shown = await settled()
    const outcome = answer('outcome')
    if (!outcome) return null
    const [goal, reward] = [String(outcome.goal), Number(outcome.reward)]
    if (goal.length > MAX_GOAL) throw new Error(`the goal of the page has ${goal.length} characters`)
    const reason = quartet.cut(String(outcome.reason ?? ''), MAX_REASON)
    return { goal: goal.toWellFormed(), ...shown, done: !!outcome.done, reward, reason }
  }

  Object.assign(quartet, { start, state })
})()

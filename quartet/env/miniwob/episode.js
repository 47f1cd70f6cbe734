// The page's side of a MiniWoB++ episode: put a fresh copy of a task page on the stage, start it, read how it stands.
//
// This window is the stage: it is as large as the picture, and holds one frame as large as the window that the tasks were
// made for. Every episode gets a new frame, hence a new JavaScript world, so nothing leaks from one to the next. That is
// as clean as loading the page, at a third of the cost. The task's own code (core.js) draws the problem and judges.
(() => {
  const LONGEST_EPISODE_MS = 10_000_000 // The rollout has its own deadline; the page's 10 s are for people.
  const SETTLE_LIMIT_MS = 1000
  // Only down can be scrolled: the tasks are as wide as the picture, but pages that focus something would scroll sideways.
  const STAGE = `<style>
    html { scrollbar-width: none } body { margin: 0 } #view { width: 160px; overflow: clip }
    iframe { display: block; border: 0; width: 500px; height: 320px }</style><div id="view"></div>`
  // Time and reward are nobody's business; and what moves or blinks makes two pictures of the same state differ.
  const TASK_STYLE = `#reward-display, #click-canvas { visibility: hidden }
    * { transition: none !important; animation: none !important; caret-color: transparent !important }`

  quartet.unlisted = '#query, #reward-display, #click-canvas, #sync-task-cover, .ui-resizable-handle, script, style'
  const texts = {} // family -> HTML; name of a script or style sheet -> what stands in its place in the HTML

  const until = async (condition) => {
    while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1))
  }

  async function load(html) {
    document.documentElement.innerHTML = STAGE
    const frame = document.createElement('iframe')
    document.getElementById('view').append(frame)
    const page = frame.contentWindow
    const { document: inner } = page
    inner.open()
    quartet.watch(page)
    inner.write(html)
    inner.close()
    await until(() => page.core?.cover_div)
    const style = inner.createElement('style')
    style.textContent = TASK_STYLE
    inner.head.append(style)
    // A slide that takes 400 ms changes nothing but the time a step takes.
    if (page.jQuery) page.jQuery.fx.off = true
    page.focus()
    return page
  }

  const define = (more) => void Object.assign(texts, more)
  const whole = (html) => html.replace(/<!--part (\S+)-->/g, (_, name) => texts[name])

  // Start the episode of `seed` of a family whose texts are defined.
  async function start(family, seed) {
    const page = await load(whole(texts[family]))
    quartet.turnTo(page)
    page.core.EPISODE_MAX_TIME = LONGEST_EPISODE_MS
    page.Math.seedrandom(seed)
    page.core.setDataMode('train')
    page.core.startEpisodeReal()
    await until(() => page.WOB_TASK_READY)
    window.scrollTo(0, 0) // A new document keeps the scroll position of the one before.
    return state()
  }

  // {goal, text, done, reward, reason} once the page has come to rest. `reward` is the raw one, without time decay.
  async function state() {
    const { page } = quartet
    const text = await quartet.settle(() => page.WOB_DONE_GLOBAL, SETTLE_LIMIT_MS)
    const utterance = page.core.getUtterance()
    return {
      goal: utterance.utterance ?? utterance,
      text,
      done: page.WOB_DONE_GLOBAL,
      reward: page.WOB_RAW_REWARD_GLOBAL,
      reason: page.WOB_REWARD_REASON ?? '',
    }
  }

  Object.assign(quartet, { define, start, state })
})()

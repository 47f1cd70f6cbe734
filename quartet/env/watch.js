// A function that runs among the page's own scripts, before all others. It tracks the page's pending timers and frames,
// and
// answers questions of the harness, whose scripts live in an isolated world: `quiet`, and those of `moreAnswers`.
// A question is an event `quartet-NAME`, its answer an event `quartet-answer`; the browser copies details between
// worlds.
(moreAnswers) => {
  const SOON_MS = 500 // A page may react to a key a little later, for example with suggestions.
  const frames = new Set() // pending animation frames of the page
  const timers = new Map() // timers of the page -> when they are due
  const { requestAnimationFrame, setTimeout, CustomEvent } = window
  const dispatch = document.dispatchEvent.bind(document)

  window.requestAnimationFrame = (callback) => {
    const id = requestAnimationFrame((time) => { frames.delete(id); callback(time) })
    frames.add(id)
    return id
  }
  window.setTimeout = (callback, delay = 0, ...rest) => {
    const call = typeof callback === 'function' ? callback : () => window.eval(callback)
    const id = setTimeout(() => { timers.delete(id); call(...rest) }, delay)
    timers.set(id, performance.now() + delay)
    return id
  }
  forgetOn('cancelAnimationFrame', frames)
  forgetOn('clearTimeout', timers)

  function forgetOn(cancel, waiting) {
    const original = window[cancel]
    window[cancel] = (id) => { waiting.delete(id); original(id) }
  }

  function answering(answer, detail) {
    try {
      return { value: answer(detail) }
    } catch (error) {
      return { error: `${error}` }
    }
  }

  const answers = {
    quiet: () => frames.size === 0 && [...timers.values()].every((due) => due > performance.now() + SOON_MS),
    ...moreAnswers,
  }
  for (const [name, answer] of Object.entries(answers)) {
    document.addEventListener(`quartet-${name}`, ({ detail }) =>
      dispatch(new CustomEvent('quartet-answer', { detail: answering(answer, detail) })))
  }
}

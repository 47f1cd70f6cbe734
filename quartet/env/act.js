// Page side of an action: find the element, return the point to click, and wait until the page is stable.
// This file never clicks, types or changes a value: all input consists of the browser's own events.
(() => {
  const GRID = [0.5, 0.3, 0.7, 0.15, 0.85, 0.05, 0.95]

  const found = (reference) => {
    const node = quartet.nodes.get(reference)
    if (!node?.isConnected) return undefined
    const box = quartet.boxOf(node)
    return box.width > 0 && box.height > 0 ? node : undefined
  }

  // -------------------------------------------------------------------------------------------------- where to point

  const ownerOf = (node) => (quartet.isElement(node) ? node : node.parentElement)

  // Return a window point where a click reaches the node and no element above it, preferably the middle.
  function openPoint(node, view) {
    for (const rect of quartet.shaped(node).getClientRects()) {
      for (const [down, along] of GRID.flatMap((down) => GRID.map((along) => [down, along]))) {
        const [x, y] = [rect.left + rect.width * along, rect.top + rect.height * down]
        const point = { x: x + view.left, y: y + view.top }
        const hit = inView(point, view) && document.elementFromPoint(x, y)
        if (hit && ownerOf(node).contains(hit)) return point
      }
    }
    return undefined
  }

  const inView = ({ x, y }, view) => x >= 0 && y >= 0 && x < view.width && y < view.height

  // Return {x, y}, or {error} for the policy.
  async function locate(reference) {
    const node = found(reference)
    if (!node) return { error: `no element [${reference}]` }
    const point = openPoint(node, await quartet.view())
    if (point) return point
    ownerOf(node).scrollIntoView({ block: 'center', inline: 'nearest', behavior: 'instant' })
    return openPoint(node, await quartet.view()) ?? { error: `covered [${reference}]` }
  }

  // ------------------------------------------------------------------------------------------------- fields and choices

  const isField = (node) =>
    quartet.isElement(node) &&
    ((node.matches('input, textarea') && !quartet.TEXTLESS_INPUTS.has(node.type)) || node.isContentEditable)

  // Like `locate`, for an element that takes text.
  function locateField(reference) {
    const node = found(reference)
    if (node && !isField(node)) return { error: `no text field [${reference}]` }
    return locate(reference)
  }

  // After a click on a field: return whether text can be typed, and whether old text must be replaced.
  function field(reference) {
    const node = found(reference)
    const ready = !!node && document.activeElement === node && !node.disabled && !node.readOnly
    return { ready, filled: ready && (node.value ?? node.textContent) !== '' }
  }

  // Return the selected text of the page or of its focused field; nothing of a password.
  function selected() {
    const node = document.activeElement
    if (node?.type === 'password') return ''
    if (typeof node?.selectionStart !== 'number') return `${getSelection()}`
    return node.value.slice(node.selectionStart, node.selectionEnd)
  }

  const optionText = (option) => option.text.replace(/\s+/g, ' ').trim()

  function optionOf(select, text) {
    const wanted = text.replace(/\s+/g, ' ').trim()
    const options = [...select.options].filter((option) => !option.disabled)
    return (
      options.find((option) => optionText(option) === wanted) ??
      options.find((option) => optionText(option).toLowerCase() === wanted.toLowerCase())
    )
  }

  // Return how to choose an option: by pointing at it ({x, y, adds}), or at the closed list with keys ({x, y, keys}).
  async function locateOption(reference, text) {
    const node = found(reference)
    const select = node && ownerOf(node).closest('select')
    if (node && !select) return { error: `no list [${reference}]` }
    const option = node && optionOf(select, text)
    if (node && !option) return { error: `no option ${quartet.cut(text, 40)} in [${reference}]` }
    if (node && quartet.isListbox(select)) return pointAtOption(option, reference)
    const choices = node ? [...select.options].filter((other) => !other.disabled) : []
    const moves = node ? choices.indexOf(option) - choices.indexOf(select.options[select.selectedIndex]) : 0
    const arrows = Array(Math.abs(moves)).fill(moves > 0 ? 'ArrowDown' : 'ArrowUp')
    return { ...(await locate(reference)), keys: [...arrows, 'Enter'] }
  }

  async function pointAtOption(option, reference) {
    option.scrollIntoView({ block: 'nearest', behavior: 'instant' })
    const point = openPoint(option, await quartet.view())
    if (!point) return { error: `covered [${reference}]` }
    return { ...point, adds: option.parentElement.closest('select').multiple, chosen: option.selected }
  }

  // Return whether the list now shows the option.
  function chose(reference, text) {
    const node = found(reference)
    const select = node && ownerOf(node).closest('select')
    return !select || optionOf(select, text)?.selected === true
  }

  // A click on an option of a multiple-choice list adds or removes it, as a tap on a touch screen does.
  const adds = (reference) => {
    const node = quartet.nodes.get(reference)
    return node?.tagName === 'OPTION' && node.closest('select').multiple
  }

  // ---------------------------------------------------------------------------------------------------------------- rest

  const loaded = new Set() // pictures of the page

  // Return the answer of watch.js, which runs among the page's scripts; undefined if it is not loaded.
  function ask(question, detail) {
    let answer
    const take = (event) => { answer = event.detail }
    document.addEventListener('quartet-answer', take)
    document.dispatchEvent(new CustomEvent(`quartet-${question}`, { detail }))
    document.removeEventListener('quartet-answer', take)
    if (answer?.error) throw new Error(`the page failed at ${question}: ${quartet.cut(String(answer.error), 200)}`)
    return answer?.value
  }

  const quiet = () => ask('quiet') ?? true
  const pause = () => new Promise((resolve) => setTimeout(resolve, 1))
  const nextFrame = () => new Promise((resolve) => { requestAnimationFrame(resolve); setTimeout(resolve, 100) })

  // Pictures from style sheets load asynchronously and have no size before.
  function newPictures() {
    const urls = [...document.querySelectorAll('body *')].flatMap((element) => {
      const style = getComputedStyle(element)
      return [...`${style.content} ${style.backgroundImage}`.matchAll(/url\("([^"]+)"\)/g)].map((match) => match[1])
    })
    const images = [...document.images].map((image) => image.src)
    return [...new Set([...urls, ...images])].filter((url) => url && !loaded.has(url))
  }

  async function pictures() {
    const urls = newPictures()
    if (!urls.length) return
    const load = (url) => {
      loaded.add(url)
      const image = new Image()
      image.src = url
      return image.decode().catch(() => undefined) // A broken picture never loads.
    }
    await Promise.all(urls.map(load))
    await nextFrame()
  }

  const geometry = () =>
    [...quartet.nodes.values()].map((node) => {
      const box = quartet.boxOf(node)
      return `${Math.round(box.left)},${Math.round(box.top)},${Math.round(box.width)},${Math.round(box.height)}`
    })

  // Wait until the page expects no change and two observations agree, or until `limitMs`; return the page's text.
  async function settle(finished, limitMs) {
    const started = performance.now()
    let before = ''
    while (!finished() && performance.now() - started < limitMs) {
      await pictures()
      await pause()
      const text = quartet.observe()
      const now = `${text}\n${geometry()}`
      if (now === before && quiet()) return text
      before = now
    }
    return quartet.observe()
  }

  // Origin of this document's coordinates in the window that receives input events, and the size of that window.
  const view = async () => ({ left: 0, top: 0, width: window.innerWidth, height: window.innerHeight })

  Object.assign(quartet, { locate, locateField, field, selected, locateOption, chose, adds, ask, settle, view })
})()

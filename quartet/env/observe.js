// A page as text for a policy: one line per visible element, in document order.
//
//   button next [23]      input Username [5] = "bob" focused      checkbox ag9 [7] checked      text Some words [12]
//
// `quartet.observe()` returns these lines. An element gets its reference at first sight and keeps it; act.js finds
// elements
// by it. `quartet.unlisted` holds selectors of elements hidden from the policy. This script and act.js run in an
// isolated
// world: they share the document with the page's scripts, but no object that these could replace.
(() => {
  const MAX_REF = 199
  const MAX_LABEL = 40
  const MAX_TEXT = 80
  const MAX_READ = 10_000 // Characters read of one text: more than any label needs.
  const FORMATTING = new Set(['B', 'I', 'U', 'EM', 'STRONG', 'SPAN', 'SMALL', 'MARK', 'LABEL', 'FONT', 'SUB', 'SUP', 'BR', 'CODE'])
  const TEXTLESS_INPUTS = new Set(['checkbox', 'radio', 'submit', 'button', 'reset', 'image', 'file', 'range', 'color'])
  const ROLES = new Set(['button', 'link', 'tab', 'checkbox', 'radio', 'option', 'slider', 'menuitem'])
  const CONTROLS = new Set(['input', 'textarea', 'select', 'checkbox', 'radio', 'slider', 'file', 'color'])

  const nodes = new Map() // reference -> node
  const references = new WeakMap() // node -> its newest reference

  const isText = (node) => node.nodeType === Node.TEXT_NODE
  const isElement = (node) => node.nodeType === Node.ELEMENT_NODE

  // An element, or the range of a text node: both have boxes.
  function shaped(node) {
    if (isElement(node)) return node
    const range = node.ownerDocument.createRange()
    range.selectNodeContents(node)
    return range
  }

  const boxOf = (node) => shaped(node).getBoundingClientRect()

  // ------------------------------------------------------------------------------------------------ what is on the page

  // Brackets and double quotes belong to the grammar of actions, so no label may hold them.
  const clean = (text) =>
    (text ?? '').slice(0, MAX_READ).replace(/\s+/g, ' ').trim().replace(/\[/g, '(').replace(/\]/g, ')').replace(/"/g, "'")

  // The first `length` characters, counted as code points: half of a surrogate pair could not be sent.
  function cut(text, length) {
    if (text.length <= length) return text.toWellFormed()
    const characters = Array.from(text.slice(0, 2 * length + 2))
    return characters.length > length ? characters.slice(0, length).join('').trim().toWellFormed() : text.toWellFormed()
  }

  const isRendered = (element) => element.checkVisibility({ visibilityProperty: true })

  function isVisible(element) {
    if (!isRendered(element)) return false
    const box = element.getBoundingClientRect()
    return box.width > 1 && box.height > 1 && box.right > 0 && box.bottom + window.scrollY > 0
  }

  function textIsVisible(node) {
    if (!/\S/.test(node.data) || !isRendered(node.parentElement)) return false
    const box = boxOf(node)
    return box.width > 1 && box.height > 1 && box.right > 0
  }

  const isIcon = (style) => style.content.startsWith('url(') || style.backgroundImage.startsWith('url(')

  // The kind of an element that the policy sees as one item, or '' for a mere container.
  function kindOf(element, style) {
    const tag = element.tagName
    const role = element.getAttribute('role')
    // A role on a container of a real control says nothing about that control.
    if (ROLES.has(role) && !element.querySelector('button, input, select, textarea')) return role
    if (tag === 'INPUT') return inputKind(element.type)
    if (tag === 'BUTTON') return 'button'
    if (tag === 'SELECT' || tag === 'TEXTAREA' || tag === 'CANVAS') return tag.toLowerCase()
    if (element.isContentEditable && !element.parentElement.isContentEditable) return 'textarea'
    if (tag === 'A') return 'link'
    if (tag === 'IMG' || tag === 'svg') return 'image'
    const hasText = /\S/.test(element.textContent)
    if (!hasText) return isIcon(style) ? 'image' : ''
    return style.cursor === 'pointer' && isPlain(element) ? pointerKind(style) : ''
  }

  function inputKind(type) {
    if (type === 'hidden') return ''
    if (type === 'submit' || type === 'button' || type === 'reset' || type === 'image') return 'button'
    if (type === 'range') return 'slider'
    return TEXTLESS_INPUTS.has(type) ? type : 'input'
  }

  // Many pages build links and buttons from plain elements, recognised by their style.
  function pointerKind(style) {
    if (style.textDecorationLine.includes('underline')) return 'link'
    return parseFloat(style.borderTopWidth) > 0 && parseFloat(style.borderLeftWidth) > 0 ? 'button' : ''
  }

  // Text without structure, which reads as one line.
  function isPlain(element) {
    return [...element.children].every((child) => {
      const style = getComputedStyle(child)
      return FORMATTING.has(child.tagName) && style.display === 'inline' && !kindOf(child, style) && isPlain(child)
    })
  }

  // Append the listed things below `node` to `items`: {node, kind, text}.
  function collect(node, items) {
    if (isText(node)) {
      if (textIsVisible(node)) items.push({ node, kind: 'text', text: clean(node.data) })
      return
    }
    if (!isElement(node) || (quartet.unlisted && node.matches(quartet.unlisted))) return
    const style = getComputedStyle(node)
    if (style.display === 'none') return
    const kind = kindOf(node, style)
    const seen = isVisible(node)
    if (kind && seen) {
      items.push({ node, kind, text: '' })
      if (kind === 'select' && isListbox(node)) collectOptions(node, items)
    } else if (!kind && seen && isPlain(node) && /\S/.test(node.textContent)) {
      items.push({ node, kind: 'text', text: clean(node.innerText) })
    } else if (!kind) {
      node.childNodes.forEach((child) => collect(child, items))
    }
  }

  const isListbox = (select) => select.multiple || select.size > 1

  function collectOptions(select, items) {
    for (const option of select.options) items.push({ node: option, kind: 'option', text: '' })
  }

  // ------------------------------------------------------------------------------------------------------------- labels

  // The name of an item. A text that serves as another item's label is added to `used` and not listed again.
  function labelOf(item, items, used) {
    const { node, kind } = item
    if (kind === 'text') return cut(item.text, MAX_TEXT)
    const named = clean(node.getAttribute('aria-label') || referredText(node, 'aria-labelledby'))
    if (named) return cut(named, MAX_LABEL)
    if (!CONTROLS.has(kind)) return cut(ownText(node) || attributeText(node) || iconWord(node), MAX_LABEL)
    return cut(labelElementText(node, items, used) || neighbourText(item, items, used) || attributeText(node), MAX_LABEL)
  }

  function referredText(node, attribute) {
    const ids = (node.getAttribute(attribute) ?? '').split(/\s+/).filter(Boolean)
    return ids.map((id) => document.getElementById(id)?.textContent ?? '').join(' ')
  }

  function ownText(node) {
    if (node.tagName === 'INPUT') return clean(node.value)
    // Icon buttons move their text out of sight; a reader does not see it.
    const hidden = parseFloat(getComputedStyle(node).textIndent) < -100
    return hidden ? '' : clean(node.innerText ?? node.textContent)
  }

  const attributeText = (node) =>
    iconText(node) || clean(node.getAttribute('placeholder') || node.getAttribute('alt') || node.getAttribute('title'))

  // A cross is read as "x", as instructions call it.
  const iconText = (node) => (node.querySelector('[class*="icon-close"]') ? 'x' : '')

  // `open-search` -> "open search"; '' if neither id nor class has a word.
  function iconWord(node) {
    const name = node.id || node.getAttribute('class') || ''
    return clean(name.split(' ')[0].replace(/[-_]+/g, ' ').replace(/\bicons?\b|\d+/g, ''))
  }

  function labelElementText(node, items, used) {
    const labels = [...(node.labels ?? [])]
    const texts = items.filter((item) => item.kind === 'text' && labels.some((label) => touches(label, item.node)))
    texts.forEach((text) => used.add(text))
    return unpunctuated(texts.map((text) => text.text).join(' '))
  }

  const touches = (label, node) => label.contains(node) || node.contains(label)
  const unpunctuated = (text) => text.replace(/[\s:]+$/, '')

  // The text beside a control without a label of its own: before it, or after it if there is none before.
  function neighbourText(item, items, used) {
    const text = textInSameBox(item, items) ?? textInSameRow(item, items)
    if (!text || used.has(text)) return ''
    used.add(text)
    return unpunctuated(text.text)
  }

  // Text in the largest box, up to three levels out, that holds no element besides this one and text.
  function textInSameBox(item, items) {
    let box = item.node.parentElement
    for (let level = 0; level < 3 && box; level++, box = box.parentElement) {
      const inside = items.filter((other) => box.contains(other.node))
      if (inside.some((other) => other !== item && other.kind !== 'text')) return undefined
      const at = inside.indexOf(item)
      if (at > 0) return inside[at - 1]
      if (inside.length === 2 && level === 0) return inside[1]
    }
    return undefined
  }

  function textInSameRow(item, items) {
    const at = items.indexOf(item)
    const ticked = item.kind === 'checkbox' || item.kind === 'radio'
    const beside = ticked ? [items[at + 1], items[at - 1]] : [items[at - 1]]
    return beside.find((other) => other?.kind === 'text' && sameRow(boxOf(other.node), boxOf(item.node)))
  }

  const sameRow = (one, other) => Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 4

  // ----------------------------------------------------------------------------------------------------------- the lines

  const ordinal = (n) => n + (['st', 'nd', 'rd'][(n % 100 > 10 && n % 100 < 14 ? 0 : n % 10) - 1] ?? 'th')

  // Undefined if elements still on the page hold all references.
  function referenceOf(node) {
    const known = references.get(node)
    if (nodes.get(known) === node) return known // A node that left the page may have lost it to a new one.
    let free = nodes.size + 1
    if (free > MAX_REF) free = [...nodes.keys()].find((reference) => !nodes.get(reference).isConnected)
    if (free === undefined) return undefined
    nodes.set(free, node)
    references.set(node, free)
    return free
  }

  function valueOf({ node, kind }) {
    if (kind === 'select') return isListbox(node) ? '' : node.options[node.selectedIndex]?.text
    if (kind === 'input' || kind === 'slider') return node.value
    return kind === 'textarea' ? (node.value ?? node.innerText) : ''
  }

  function statesOf({ node, kind }) {
    if (kind === 'text') return []
    const has = (attribute) => node.getAttribute(attribute) === 'true'
    const marked = (name) => kind === 'link' && !!node.closest(`.${name}`)
    const heading = /^H\d$/.test(node.tagName)
    const states = {
      checked: node.checked || has('aria-checked'),
      expanded: heading && has('aria-expanded'),
      selected: (kind === 'option' && node.selected) || (!heading && has('aria-selected')),
      active: marked('active'),
      clicked: kind === 'image' && node.classList.contains('clicked'),
      disabled: node.disabled || has('aria-disabled') || marked('disabled'),
      focused: document.activeElement === node,
    }
    return Object.keys(states).filter((state) => states[state])
  }

  function line(item, label) {
    const reference = referenceOf(item.node)
    if (reference === undefined) return ''
    const value = cut(clean(valueOf(item)), MAX_TEXT)
    return [item.kind, label, `[${reference}]`, value && `= "${value}"`, ...statesOf(item)].filter(Boolean).join(' ')
  }

  // An icon without a name is decoration if text beside it names it.
  const isDecoration = (item, label) => item.kind === 'image' && !label && /\S/.test(item.node.parentElement.textContent)

  function observe() {
    const items = []
    if (document.body) collect(document.body, items)
    const used = new Set()
    const labels = new Map(items.map((item) => [item, labelOf(item, items, used)]))
    const unlabelled = {}
    const lines = []
    for (const item of items) {
      let label = labels.get(item)
      if (used.has(item) || isDecoration(item, label)) continue
      if (!label) label = ordinal((unlabelled[item.kind] = (unlabelled[item.kind] ?? 0) + 1))
      lines.push(line(item, label))
    }
    return lines.filter(Boolean).join('\n')
  }

  window.quartet = { unlisted: '', TEXTLESS_INPUTS, observe, cut, nodes, boxOf, shaped, isElement, isListbox }
})()

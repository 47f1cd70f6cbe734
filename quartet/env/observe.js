// What a text policy reads of a page: one line per visible element, in document order.
//
//   button next [23]      input Username [5] = "bob" focused      checkbox ag9 [7] checked      text Some words [12]
//
// `quartet.observe()` returns those lines. A reference is given at first sight and stays with its element; act.js finds
// elements by it. `quartet.unlisted` are selectors of what the policy must not read. This script and act.js run in an
// isolated world: they share the document with the page's scripts, but no object that these could replace.
(() => {
  const MAX_REF = 199
  const MAX_LABEL = 40
  const MAX_TEXT = 80
  const MAX_READ = 10_000 // Of what a page holds as one text, whatever its length: more than any label needs.
  const FORMATTING = new Set(['B', 'I', 'U', 'EM', 'STRONG', 'SPAN', 'SMALL', 'MARK', 'LABEL', 'FONT', 'SUB', 'SUP', 'BR', 'CODE'])
  const TEXTLESS_INPUTS = new Set(['checkbox', 'radio', 'submit', 'button', 'reset', 'image', 'file', 'range', 'color'])
  const ROLES = new Set(['button', 'link', 'tab', 'checkbox', 'radio', 'option', 'slider', 'menuitem'])
  const CONTROLS = new Set(['input', 'textarea', 'select', 'checkbox', 'radio', 'slider', 'file', 'color'])

  const nodes = new Map() // reference -> node
  const references = new WeakMap() // node -> reference

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

  // The first `length` characters. A character is a code point: half of a pair of surrogates could not be sent.
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

  // The kind of an element that is one thing to the policy, or '' for a mere container.
  function kindOf(element, style) {
    const tag = element.tagName
    const role = element.getAttribute('role')
    // A role on what holds a real control says nothing about that control.
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

  // Many pages build links and buttons from plain elements; their looks tell.
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

  // The name of an item; texts that serve as another's label are added to `used`, and not listed again.
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
    // Text moved out of sight, as icon buttons do, is not what a reader sees.
    const hidden = parseFloat(getComputedStyle(node).textIndent) < -100
    return hidden ? '' : clean(node.innerText ?? node.textContent)
  }

  const attributeText = (node) =>
    iconText(node) || clean(node.getAttribute('placeholder') || node.getAttribute('alt') || node.getAttribute('title'))

  // A cross is read as "x", as instructions call it.
  const iconText = (node) => (node.querySelector('[class*="icon-close"]') ? 'x' : '')

  // `open-search` -> "open search"; '' when neither id nor class says anything.
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

  // The text beside a control that has no label of its own: before it, or after it where nothing stands before.
  function neighbourText(item, items, used) {
    const text = textInSameBox(item, items) ?? textInSameRow(item, items)
    if (!text || used.has(text)) return ''
    used.add(text)
    return unpunctuated(text.text)
  }

  // In the largest box, up to three levels out, that holds no other element than this one and text.
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

  // Undefined when all references are taken by elements still on the page.
  function referenceOf(node) {
    if (references.has(node)) return references.get(node)
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

  // An icon without a name, beside the words that name it, is only decoration.
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

  window.quartet = { unlisted: '', observe, cut, nodes, boxOf, shaped, isElement, isListbox }
})()

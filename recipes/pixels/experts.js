// Scripted experts for the families of `miniwob-pixels`: they read the document of a page, and return the points of the
// next action, in pixels of the picture: one point for a click, two for a drag.
((family, goal, turn) => {
  const QUERY_HEIGHT = 50 // The pages of geometry take a point's distance from the goal's lower edge as its height.
  const find = (selector) => document.querySelector(selector)
  const middle = (element) => {
    const box = element.getBoundingClientRect()
    return [box.left + box.width / 2, box.top + box.height / 2]
  }
  const drawn = (circle) => [circle.cx.baseVal.value, circle.cy.baseVal.value + QUERY_HEIGHT]
  const circles = (selector) => [...document.querySelectorAll(selector)].map(drawn)
  // The point between two points that is `share` of the way from the first to the second.
  const between = ([x1, y1], [x2, y2], share) => [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share]
  const distance = ([x1, y1], [x2, y2]) => Math.hypot(x2 - x1, y2 - y1)

  const LARGE = 15 // Large figures are 20 pixels wide and high, small ones 10.
  const FIGURES = { rect: 'rectangle', circle: 'circle', polygon: 'triangle' }
  const size = (figure) =>
    figure.tagName === 'text' ? parseFloat(figure.getAttribute('font-size')) : figure.getBBox().width
  const names = (figure) => {
    const text = figure.textContent
    if (figure.tagName === 'text') return [text, /\d/.test(text) ? 'digit' : 'letter', 'item']
    return [FIGURES[figure.tagName], 'shape', 'item']
  }
  // The figures that a description such as `large red digit` is true of.
  const described = (description) => {
    const words = description.split(' ')
    const name = words.pop()
    return [...find('#area_svg').children].filter((figure) =>
      names(figure).includes(name) &&
      words.every((word) => [size(figure) > LARGE ? 'large' : 'small', figure.getAttribute('fill')].includes(word)))
  }
  const onTop = (figure) => document.elementFromPoint(...middle(figure)) === figure

  // The middle of an element, or else of a quarter of it, that no later element covers.
  const uncovered = (element) => {
    const { left, top, width, height } = element.getBoundingClientRect()
    const shares = [[0.5, 0.5], [0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]]
    const places = shares.map(([across, down]) => [left + width * across, top + height * down])
    return places.find((place) => document.elementFromPoint(...place) === element) ?? places[0]
  }

  const experts = {
    'click-test-2': () => [uncovered(find('#subbtn'))],
    'click-color': () => [middle(find(`#area [data-color="${/the (\w+) colored/.exec(goal)[1]}"]`))],
    'grid-coordinate': () => [middle(find(`[id="${/\(.*\)/.exec(goal)[0]}"]`))],
    'identify-shape': () => {
      const [name, kind] = names(find('#area_svg').firstElementChild)
      return [middle(find(`[data-type="${kind === 'shape' ? name : kind}"]`))]
    },
    // The largest figure, and of these the first in reading order, so that equal pictures have equal answers.
    'click-shape': () => {
      const [first] = described(/Click on a (.*)/.exec(goal)[1]).filter(onTop).sort((one, other) => {
        const [[x1, y1], [x2, y2]] = [middle(one), middle(other)]
        return size(other) - size(one) || y1 - y2 || x1 - x2
      })
      return [middle(first)]
    },
    'count-shape': () => {
      const count = described(/How many (.*)s are there/.exec(goal)[1]).length
      return [middle([...document.querySelectorAll('#count-buttons button')].find((one) => one.textContent == count))]
    },
    'circle-center': () => circles('.black-circle'),
    'find-midpoint': () => [between(...circles('.black-circle'), 0.5)],
    // The bisector divides the opposite side in the ratio of the two other sides.
    'bisect-angle': () => {
      const [[vertex], [one, other]] = [circles('.init-blue'), circles('.init-black')]
      const [near, far] = [distance(vertex, one), distance(vertex, other)]
      return [between(one, other, near / (near + far))]
    },
    'drag-box': () => [middle(find('#draggableSmall')), middle(find('#draggableLarge'))],
  }
  const submits = turn > 0 && find('#subbtn')
  return submits ? [middle(submits)] : experts[family]()
})

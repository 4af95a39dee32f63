// Lines between tokens: HTML elements for tokens, one canvas for every line, one above it for those of a chosen token.
import { clip, css, number, once, rgb, same, selection, sized, themeOf, unpack } from "../shared.js"
import {
  cellsFrom,
  cellsOfLine,
  cellsOfMap,
  centreOf,
  chooseLines,
  countSentence,
  curve,
  drawnPart,
  endsSentence,
  hasPair,
  headLabel,
  isOfSentence,
  isRightToLeft,
  LEVELS,
  layered,
  linesOf,
  mostPerQuery,
  nameOf,
  otherSide,
  planAcross,
  planDown,
  sameNumbers,
  sizeOf,
  startOf,
  step,
  strokeOf,
  strongestEnds,
  takeSlots,
  thresholdSteps,
  topSteps,
  usualThreshold,
  within,
} from "./layout.js"

const SIDES = ["query", "key"]
const LONGEST_LABEL = 22
const MOST_WEIGHTS = 16 // written beside tokens
const MOST_SPOKEN = 5
const MOST_THICK = 600 // lines drawn wider the stronger they are
const AT_ONCE = { ".every": 2000, ".chosen": 700 } // lines drawn before each picture: fewer where the pointer waits
const TELL_AFTER = 250 // ms without a further change
const HINT = "Point at a token, or go to it with Tab and the arrow keys, to see its lines alone. A click keeps them."

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".lines")
  root.attnviz ??= new Lines(root)
  root.attnviz.receive(unpack(data))
  return () => root.attnviz.leave()
}

/** Set what an element says only where it changes, so that nothing is laid out or read out again. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text
}

function make(tag, className, parent) {
  const element = document.createElement(tag)
  element.className = className
  parent.append(element)
  return element
}

class Lines {
  constructor(root) {
    this.root = root
    this.find = (where) => root.querySelector(where)
    this.scroll = this.find(".scroll")
    this.sheet = this.find(".sheet")
    this.legend = this.find(".legend")
    this.sides = { query: this.find(".side.query"), key: this.find(".side.key") }
    this.buttons = { query: new Map(), key: new Map() } // of tokens, by position
    this.stops = { query: 0, key: 0 } // where Tab enters a side
    this.tokens = { query: [], key: [] }
    this.known = new Map() // cells of heads whose whole maps are here
    this.hidden = new Set() // heads a person has switched off
    this.slots = new Map()
    this.told = []
    this.painting = {} // what is still to be drawn, by canvas
    this.alone = null // the head under the pointer in the legend
    this.watcher = new ResizeObserver(() => this.redraw())
    this.remember()
    this.listen()
  }

  /** What is done once for as long as what it is made from stays. */
  remember() {
    this.plan = once((...given) => this.makePlan(...given))
    this.isPair = once((query, key) => hasPair(query) && hasPair(key))
    this.usual = once((...cells) => usualThreshold(cells))
    this.choose = once((options, query, key, ...cells) => cells.map((one) => chooseLines(one, options, query, key)))
    this.writeLegend = once(() => this.makeLegend())
    this.writeControls = once(() => this.makeControls())
    this.setSheet = once((plan) => this.sizeSheet(plan))
    this.placeTokens = once((plan) => this.makeTokens(plan))
    this.paintEvery = once((plan, part) => this.paint(".every", plan, part, this.visible))
    this.paintChosen = once((plan, part) => this.paint(".chosen", plan, part, this.chosen))
  }

  // ---- What comes in
  receive({ header, arrays }) {
    this.leave()
    selection.follow(this.root, () => this.redraw())
    this.watcher.observe(this.scroll)
    const theme = themeOf(this.root, header)
    if (this.header?.version === header.version && this.theme.page === theme.page) return
    Object.assign(this, { header, arrays, theme, sent: null })
    this.look = {} // a new identity: what depends on colours is drawn again
    this.adopt(header.options)
    this.useTheme()
    this.redraw()
  }

  leave() {
    selection.leave(this.root)
    this.watcher.disconnect()
  }

  useTheme() {
    for (const colour of ["text", "muted", "line", "accent", "page"]) {
      this.root.style.setProperty(`--${colour}`, this.theme[colour])
    }
    this.root.style.colorScheme = this.theme.isDark ? "dark" : "light"
  }

  /** Take Python's options, unless they only repeat what a person chose here a moment ago. */
  adopt(options) {
    const text = JSON.stringify(options)
    const echo = this.told.indexOf(text)
    if (echo >= 0) this.told.splice(0, echo + 1)
    else if (this.adopted !== text) {
      this.options = options
      this.given = options
    }
    this.adopted = text
  }

  /** Change an option here at once, and tell Python once the hand rests. */
  change(part) {
    this.options = { ...this.options, ...part }
    this.redraw()
    clearTimeout(this.telling)
    this.telling = setTimeout(() => {
      this.told.push(JSON.stringify(this.options))
      selection.tell("lines", this.options)
    }, TELL_AFTER)
  }

  /** Keep the tokens while they say the same: a rerun brings equal ones, and what has the focus should keep it. */
  takeTokens() {
    if (this.trace !== selection.trace) {
      this.trace = selection.trace
      this.known.clear()
      this.hidden = new Set()
    }
    if (this.latest === selection.tokens) return
    this.latest = selection.tokens
    if (same(this.tokens, selection.tokens)) return
    this.tokens = selection.tokens
    this.stops = { query: 0, key: 0 }
    this.sent = null
  }

  /** The shown heads, with their cells where these are here, and of those that are not switched off the lines. */
  takeHeads(pair) {
    this.slots = takeSlots(this.slots, selection.shown.map(nameOf))
    const colours = this.header.heads[this.theme.isDark ? "dark" : "light"]
    this.heads = selection.shown.map((place) => {
      const name = nameOf(place)
      const label = headLabel(place, selection.shown)
      return { name, place, label, cells: this.cellsOf(place), ...strokeOf(this.slots.get(name), colours) }
    })
    const visible = this.heads.filter(({ name, cells }) => cells && !this.hidden.has(name))
    const cells = visible.map((head) => head.cells)
    const lines = this.choose(this.chosenOptions(pair, cells), this.tokens.query, this.tokens.key, ...cells)
    this.visible = visible.map((head, at) => ({ ...head, lines: lines[at] }))
  }

  /** The cells of a head: its strongest keys where Python sent these, else of its whole map; undefined if not here. */
  cellsOf(place) {
    const few = this.sentCells().get(nameOf(place))
    if (few) return few
    const map = selection.map(place.layer, place.head)
    if (!map) return undefined
    const known = this.known.get(nameOf(place))
    if (known && (known.map === map || sameNumbers(known.map, map))) {
      known.map = map // a rerun brings equal numbers: what was made of them stays
      return known.cells
    }
    const cells = cellsOfMap(map, this.tokens.query.length, this.tokens.key.length)
    this.known.set(nameOf(place), { map, cells })
    return cells
  }

  sentCells() {
    const count = { query: this.tokens.query.length, key: this.tokens.key.length }
    const read = (at) => this.arrays.slice(3 * at, 3 * at + 3)
    const fits = ([queries, keys]) => queries.every((at) => at < count.query) && keys.every((at) => at < count.key)
    this.sent ??= new Map(
      this.header.strongest
        .map(([layer, head], at) => [nameOf({ layer, head }), read(at)])
        .filter(([, columns]) => fits(columns)) // else the tokens of another text are still here
        .map(([head, columns]) => [head, cellsFrom(...columns, count.query)]),
    )
    return this.sent
  }

  // ---- What is drawn
  redraw() {
    if (!this.header) return
    this.takeTokens()
    const { query, key } = this.tokens
    this.root.hidden = !query.length || !key.length
    const room = this.scroll.clientWidth
    if (this.root.hidden || !room) return
    this.takeHeads(this.isPair(query, key) ? this.options.pair : "all")
    this.writeLegend(this.look, this.hidden, ...this.heads.flatMap(({ name, label, cells }) => [name, label, !cells]))
    this.writeControls(
      this.options,
      this.given,
      this.look,
      query,
      key,
      ...this.heads.map(({ cells }) => cells),
      ...this.visible.map(({ lines }) => lines),
    )
    const plan = this.plan(query, key, this.options.horizontal, selection.shown.length > 1, room)
    this.setSheet(plan)
    this.part = this.seenPart(plan)
    this.paintEvery(plan, this.part, this.look, ...this.visible.flatMap(({ colour, lines }) => [colour, lines]))
    this.isolate(plan)
  }

  /** The options that choose lines, the same object as long as they say the same. */
  chosenOptions(pair, cells) {
    const { top } = this.options
    const threshold = this.options.threshold ?? this.usual(...cells)
    const options = { threshold, top, pair }
    if (!same(this.choice, options)) this.choice = options
    return this.choice
  }

  makePlan(query, key, horizontal, named, room) {
    const measure = this.measure()
    const widths = { query: query.map(measure), key: key.map(measure) }
    if (!horizontal) return planDown(widths, room, named)
    return planAcross(widths, room, named, { query: isRightToLeft(query), key: isRightToLeft(key) })
  }

  measure() {
    const pen = new OffscreenCanvas(1, 1).getContext("2d")
    const family = getComputedStyle(this.root).fontFamily
    return ({ label, special }) => {
      pen.font = `${special ? 12 : 14}px ${family}`
      return pen.measureText(clip(label, LONGEST_LABEL)).width
    }
  }

  sizeSheet(plan) {
    const { horizontal, bands, depth, length, across, tracks } = plan
    const turned = horizontal && !this.root.classList.contains("across")
    this.root.classList.toggle("across", horizontal)
    this.root.classList.toggle("down", !horizontal)
    this.root.classList.toggle("narrow", plan.narrow)
    this.sheet.style.width = `${horizontal ? length : across}px`
    this.sheet.style.height = `${horizontal ? across : length}px`
    const bounds = { query: [0, bands.query], key: [bands.query + depth, bands.key] }
    for (const side of SIDES) {
      const [start, size] = bounds[side].map((at) => `${at}px`)
      const style = horizontal
        ? { top: start, height: size, left: 0, width: "100%" }
        : { left: start, width: size, top: 0, height: "100%" }
      Object.assign(this.sides[side].style, style)
    }
    for (const side of SIDES) {
      const heading = this.find(`.heading.${side}`)
      heading.style.minWidth = horizontal ? "" : `${bands[side]}px`
      heading.dir = tracks[side].mirrored ? "rtl" : "ltr"
    }
    this.find(".headings").style.maxWidth = `${across}px`
    if (turned && tracks.query.mirrored) this.scroll.scrollLeft = length
  }

  /** The part of the text to draw; it stays while what is seen lies in it, so that most scrolling draws nothing. */
  seenPart(plan) {
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroll
    const [from, size] = plan.horizontal ? [scrollLeft, clientWidth] : [scrollTop, clientHeight]
    const to = Math.min(plan.length, from + size)
    const part = this.part
    if (part?.plan === plan && part.from <= from && part.to >= to) return part
    return { plan, ...drawnPart(from, to, plan.length) }
  }

  /** Draw lines on a canvas that covers a part: many of them in steps, the strongest at once. */
  paint(where, plan, part, heads) {
    const canvas = this.find(where)
    const { horizontal, bands, depth } = plan
    const size = part.to - part.from
    canvas.style.left = `${horizontal ? part.from : bands.query}px`
    canvas.style.top = `${horizontal ? bands.query : part.from}px`
    const pen = sized(canvas, horizontal ? size : depth, horizontal ? depth : size)
    const lines = layered(heads, this.header.ink, plan, part)
    strokes(pen, lines, heads, plan, Math.max(0, lines.count - AT_ONCE[where]), lines.count)
    cancelAnimationFrame(this.painting[where])
    if (lines.count > AT_ONCE[where]) this.paintSlowly(where, canvas, lines, heads, plan)
  }

  /** Draw all lines out of sight, some before each picture so that the page stays quick, then show them together. */
  paintSlowly(where, canvas, lines, heads, plan) {
    const hidden = new OffscreenCanvas(canvas.width, canvas.height)
    const pen = hidden.getContext("2d")
    pen.setTransform(canvas.getContext("2d").getTransform())
    const go = (first) => {
      const end = Math.min(first + AT_ONCE[where], lines.count)
      strokes(pen, lines, heads, plan, first, end)
      if (end < lines.count) this.painting[where] = requestAnimationFrame(() => go(end))
      else show(canvas, hidden)
    }
    this.painting[where] = requestAnimationFrame(() => go(0))
  }

  // ---- One token, or one head, alone
  isolate(plan) {
    const token = [selection.hovered, selection.pinned].find(
      (one) => one && one.at >= 0 && one.at < this.tokens[one.side].length,
    )
    this.chosen = this.chosenLines(token)
    this.find(".every").classList.toggle("behind", this.chosen !== null)
    this.find(".chosen").hidden = this.chosen === null
    if (this.chosen)
      this.paintChosen(
        plan,
        this.part,
        this.look,
        token?.side,
        token?.at,
        this.alone,
        ...this.visible.map(({ lines }) => lines),
      )
    const ends = token ? strongestEnds(this.chosen, token, Infinity) : []
    this.reveal(plan)
    this.showTokens(plan, token, ends)
    const isSaid = token && this.visible.length > 0
    say(this.find(".said"), isSaid ? this.sentence(token) : HINT)
    this.find(".said").classList.toggle("hint", !isSaid)
  }

  chosenLines(token) {
    if (token) return this.visible.map((head) => ({ ...head, lines: linesOf(head.cells, head.lines, token) }))
    const alone = this.visible.filter(({ name }) => name === this.alone)
    return alone.length ? alone : null
  }

  /** What a token attends to, or is attended to by, most: of all weights that are here, also those too small to draw. */
  sentence(token) {
    const heads = this.visible.map((head) => this.everyLine(head, token))
    const ends = strongestEnds(heads, token, MOST_SPOKEN).map((end) => ({
      label: clip(this.tokens[otherSide(token.side)][end.at].label, LONGEST_LABEL),
      weight: number(end.weight),
      head: heads.length > 1 ? this.visible[end.head].label : "",
    }))
    const isWhole = token.side === "query" || heads.every(({ isWhole }) => isWhole)
    const label = clip(this.tokens[token.side][token.at].label, LONGEST_LABEL)
    return endsSentence(label, token.side, ends, isWhole ? null : this.limit)
  }

  /** All weights of a token in a head that are here: of a map too large to be here, Python sends single lines. */
  everyLine({ name, place, cells }, token) {
    const line = selection.line(place.layer, place.head, token)
    return line ? { ...cellsOfLine(line, token), isWhole: true } : { cells, isWhole: this.known.has(name) }
  }

  /** Scroll to a token that was pinned in another view. */
  reveal(plan) {
    const pinned = selection.pinned
    if (same(this.lastPinned, pinned)) return
    this.lastPinned = pinned
    if (pinned && pinned.at >= 0 && pinned.at < this.tokens[pinned.side].length) this.scrollTo(plan, pinned)
  }

  scrollTo({ horizontal, tracks }, { side, at }) {
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.scroll
    const [from, size] = horizontal ? [scrollLeft, clientWidth] : [scrollTop, clientHeight]
    const [centre, half] = [centreOf(tracks[side], at), sizeOf(tracks[side], at) / 2]
    const to = centre - half < from ? centre - half : centre + half > from + size ? centre + half - size : from
    if (to !== from) this.scroll[horizontal ? "scrollLeft" : "scrollTop"] = to
  }

  // ---- Tokens
  showTokens(plan, token, ends) {
    this.placeTokens(plan, this.part, this.tokens, this.stops.query, this.stops.key)
    const weights = new Map(ends.map((end, rank) => [end.at, rank < MOST_WEIGHTS ? this.weightText(plan, end) : ""]))
    for (const side of SIDES) {
      const isFar = token && side !== token.side
      for (const [at, button] of this.buttons[side]) {
        const isChosen = token?.side === side && token.at === at
        button.classList.toggle("chosen", isChosen)
        const isFree = token ? isChosen || (isFar && weights.has(at)) : this.isInPair(side, at)
        button.classList.toggle("quiet", !isFree)
        const isPinned = String(same(selection.pinned, { side, at }))
        if (button.ariaPressed !== isPinned) button.ariaPressed = isPinned // a set attribute is styled anew, if equal too
        this.sayWeight(button, (isFar && weights.get(at)) || "")
      }
    }
  }

  /** Write a weight beside a token, for the eye and for those who hear the token's name. */
  sayWeight(button, text) {
    const [label, weight] = button.children
    if (weight.textContent === text && button.ariaLabel) return
    weight.textContent = text
    const { side, at } = button.attnvizPlace
    button.ariaLabel = `${side} ${at}: ${label.textContent} ${text}`.trim()
  }

  isInPair(side, at) {
    return (
      this.choice.pair === "all" || isOfSentence(this.choice.pair[SIDES.indexOf(side)], this.tokens[side][at].segment)
    )
  }

  /** A weight, and of which head it is: below it where tokens stand side by side, nowhere where there is no room. */
  weightText({ horizontal, narrow }, { weight, head }) {
    if (this.visible.length < 2 || narrow) return number(weight)
    return [number(weight), this.visible[head].label].join(horizontal ? "\n" : " · ")
  }

  makeTokens(plan) {
    for (const side of SIDES) {
      const tokens = this.tokens[side]
      const buttons = this.buttons[side]
      const [first, end] = within(plan.tracks[side], this.part.from, this.part.to)
      const isNear = (at) => (at >= first && at < end) || at === this.stops[side]
      for (const [at, button] of buttons) {
        if (isNear(at) && button.attnvizToken === tokens[at]) continue
        button.remove()
        buttons.delete(at)
      }
      for (let at = first; at < end; at++) this.placeToken(plan, side, at)
      this.placeToken(plan, side, this.stops[side])
    }
  }

  placeToken({ horizontal, tracks }, side, at) {
    const button = this.buttons[side].get(at) ?? this.makeToken(side, at)
    const [start, size] = [`${startOf(tracks[side], at)}px`, `${sizeOf(tracks[side], at)}px`]
    const style = horizontal
      ? { left: start, width: size, top: 0, height: "100%" }
      : { top: start, height: size, left: 0, width: "100%" }
    Object.assign(button.style, style)
    button.tabIndex = at === this.stops[side] ? 0 : -1
  }

  makeToken(side, at) {
    const { label, special } = this.tokens[side][at]
    const button = document.createElement("button")
    button.type = "button"
    button.className = special ? "token special" : "token"
    button.title = label
    button.attnvizToken = this.tokens[side][at]
    button.attnvizPlace = { side, at }
    const text = make("span", "label", button)
    text.dir = "auto"
    text.textContent = clip(label, LONGEST_LABEL)
    button.append(" ") // between two words for those who hear them; flex items show none
    make("span", "number", button)
    this.buttons[side].set(at, button)
    this.insert(side, at, button)
    return button
  }

  /** Put a token where it stands in the text, for those who hear the page in its order. */
  insert(side, at, button) {
    const next = this.buttons[side].get(at + 1)
    const before = this.buttons[side].get(at - 1)
    if (next) next.before(button)
    else if (before) before.after(button)
    else this.sides[side].append(button)
  }

  // ---- Controls
  makeLegend() {
    const names = this.heads.map(({ name, label, colour }) => [name, label, colour])
    if (!same(names, this.legendNames)) {
      this.legendNames = names
      this.legend.replaceChildren(...this.heads.map((head) => this.legendEntry(head)))
    }
    this.heads.forEach(({ name, cells }, at) => {
      const button = this.legend.children[at]
      button.setAttribute("aria-pressed", !this.hidden.has(name))
      button.classList.toggle("absent", !cells)
      button.title = cells ? "" : "Its weights are on their way"
    })
  }

  legendEntry({ name, label, colour, dash }) {
    const button = document.createElement("button")
    button.type = "button"
    button.innerHTML =
      '<svg width="22" height="10" aria-hidden="true"><line x1="1" x2="21" y1="5" y2="5" stroke-width="3"/></svg>'
    button.querySelector("line").setAttribute("stroke", colour)
    button.querySelector("line").setAttribute("stroke-dasharray", dash.join(" "))
    make("span", "", button).textContent = label
    button.onclick = () => {
      this.hidden = new Set(this.hidden)
      if (!this.hidden.delete(name)) this.hidden.add(name)
      this.showAlone(null)
    }
    button.onpointerenter = button.onfocus = () => this.showAlone(name)
    button.onpointerleave = button.onblur = () => this.showAlone(null)
    return button
  }

  showAlone(name) {
    this.alone = name
    this.redraw()
  }

  makeControls() {
    const { top, pair, horizontal } = this.options
    const { threshold } = this.choice
    const isWhole = this.visible.every(({ name }) => !this.sentCells().has(name))
    this.limit = isWhole ? null : Math.max(...this.visible.map(({ cells }) => mostPerQuery(cells)))
    this.thresholds = thresholdSteps(this.given.threshold ?? threshold)
    this.tops = topSteps(this.limit ?? this.tokens.key.length, this.given.top)
    const nearest = this.thresholds.findLastIndex((one) => one <= threshold)
    const reached = this.tops.findIndex((one) => one === null || (top !== null && one >= top))
    this.setSlider("threshold", this.thresholds.length - 1, nearest, String(threshold))
    this.setSlider("top", this.tops.length - 1, reached, String(this.tops[reached] ?? this.limit ?? "all"))
    this.find("select").value = pair
    this.find(".pair").hidden = !this.isPair(this.tokens.query, this.tokens.key)
    this.find(".horizontal").checked = horizontal
    say(this.find(".count"), this.countText())
  }

  setSlider(where, max, value, text) {
    const slider = this.find(`input.${where}`)
    Object.assign(slider, { max, value })
    slider.setAttribute("aria-valuetext", text)
    say(this.find(`.${where}-value`), text)
  }

  countText() {
    if (!this.visible.length)
      return this.heads.some(({ cells }) => !cells) ? "The weights are on their way." : "No head is shown."
    const sum = (count) => this.visible.reduce((total, head) => total + count(head), 0)
    const drawn = sum(({ lines }) => lines.length)
    return countSentence(
      drawn,
      sum(({ cells }) => cells.keys.length),
      this.choice,
      this.limit,
    )
  }

  // ---- What a person does
  listen() {
    this.find("input.threshold").oninput = (event) => this.change({ threshold: this.thresholds[event.target.value] })
    this.find("input.top").oninput = (event) => this.change({ top: this.tops[event.target.value] })
    this.find("select").onchange = (event) => this.change({ pair: event.target.value })
    this.find(".horizontal").onchange = (event) => this.change({ horizontal: event.target.checked })
    this.scroll.onscroll = () => {
      cancelAnimationFrame(this.scrolling)
      this.scrolling = requestAnimationFrame(() => this.redraw())
    }
    this.sheet.onpointerover = ({ target }) => selection.hover(tokenAt(target))
    this.sheet.onpointerleave = () => selection.hover(null)
    this.sheet.onclick = ({ target }) => {
      const token = tokenAt(target)
      if (token) selection.pin(token)
    }
    this.sheet.onkeydown = (event) => this.move(event)
    // focus and blur have no property that hears of elements inside
    this.sheet.addEventListener("focusin", ({ target }) => this.enter(tokenAt(target)))
    this.sheet.addEventListener("focusout", () => selection.hover(null))
  }

  enter(token) {
    if (!token) return
    this.stops = { ...this.stops, [token.side]: token.at }
    selection.hover(token)
    selection.changed()
  }

  move(event) {
    const token = tokenAt(event.target)
    if (!token) return
    if (event.key === "Escape" && selection.pinned) selection.pin(selection.pinned)
    const next = step(this.part.plan, token, event.key)
    if (!next) return
    event.preventDefault()
    this.stops = { ...this.stops, [next.side]: next.at }
    this.scrollTo(this.part.plan, next)
    this.part = this.seenPart(this.part.plan)
    this.placeTokens(this.part.plan, this.part, this.tokens, this.stops.query, this.stops.key)
    this.buttons[next.side].get(next.at).focus({ preventScroll: true })
  }
}

function tokenAt(target) {
  return target.closest?.(".token")?.attnvizPlace ?? null
}

/** Draw the lines from `first` to `end` of those that `layered` has put in order. */
function strokes(pen, { count, starts, ends }, heads, { depth, horizontal }, first, end) {
  for (let bucket = 0; bucket + 1 < starts.length; bucket++) {
    const [from, to] = [Math.max(first, starts[bucket]), Math.min(end, starts[bucket + 1])]
    if (from >= to) continue
    const { colour, dash } = heads[bucket % heads.length]
    const ink = (Math.floor(bucket / heads.length) + 0.5) / LEVELS
    pen.strokeStyle = css(rgb(colour), ink)
    pen.lineWidth = count > MOST_THICK ? 1 : Math.max(1, 0.3 + 2.3 * ink) // browsers draw 1 pixel several times faster
    pen.setLineDash(dash)
    for (let at = from; at < to; at++) stroke(pen, curve(ends[2 * at], ends[2 * at + 1], depth, horizontal))
  }
}

function show(canvas, picture) {
  const pen = canvas.getContext("2d")
  pen.setTransform(1, 0, 0, 1, 0, 0)
  pen.clearRect(0, 0, canvas.width, canvas.height)
  pen.drawImage(picture, 0, 0)
}

function stroke(pen, [x, y, ...points]) {
  pen.beginPath()
  pen.moveTo(x, y)
  pen.bezierCurveTo(...points)
  pen.stroke()
}

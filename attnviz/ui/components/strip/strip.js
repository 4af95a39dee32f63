// The text itself: behind each token, the weight that the chosen token gives to it, or gets from it.
import { css, inkOf, number, same, selection, textOn, themeOf, unpack } from "../shared.js"
import { captionOf, inkedSide, largest, strongest } from "./words.js"

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".strip")
  root.attnviz ??= { tokens: null, side: "query", painted: new Map() }
  const view = root.attnviz
  view.root = root
  if (view.bytes !== data) {
    view.bytes = data
    view.header = unpack(data).header
  }
  view.theme = themeOf(root, view.header)
  view.painted.clear()
  connect(view)
  selection.follow(root, () => draw(view))
  draw(view)
  return () => selection.leave(root)
}

function draw(view) {
  build(view)
  const token = selection.token
  if (token) view.side = token.side
  const line = token && selection.meanLine(token)
  if (token && !line) selection.want(token)
  paint(view, token, line)
  view.root.querySelector(".caption").replaceChildren(...sentence(view, token, line))
  const over = view.root.querySelector("select[name=over]")
  over.value = view.header.over
  const side = view.root.querySelector("select[name=side]")
  side.parentNode.hidden = !selection.same
  side.value = view.side
}

// ---- Tokens as buttons, made once for a text
function build(view) {
  if (view.tokens === selection.tokens) return
  view.tokens = selection.tokens
  view.painted.clear()
  const sides = selection.same ? ["query"] : ["query", "key"]
  view.lists = Object.fromEntries(sides.map((side) => [side, listOf(side, selection.tokens[side])]))
  view.root.querySelector(".texts").replaceChildren(...sides.map((side) => view.lists[side]))
}

function listOf(side, tokens) {
  const list = document.createElement("div")
  list.className = "tokens"
  list.setAttribute("role", "group")
  list.setAttribute("aria-label", selection.same ? "Text" : side === "query" ? "Attends from" : "Attended to")
  if (!selection.same) list.append(headingOf(side))
  list.append(...tokens.map((token, at) => buttonOf(token, at, side)))
  return list
}

function headingOf(side) {
  const heading = document.createElement("span")
  heading.className = "heading"
  heading.textContent = side === "query" ? "from" : "to"
  return heading
}

function buttonOf({ label, special }, at, side) {
  const button = document.createElement("button")
  button.type = "button"
  button.dir = "auto"
  button.textContent = label
  button.className = special ? "special" : ""
  button.tabIndex = at ? -1 : 0
  button.dataset.at = at
  button.dataset.side = side
  return button
}

function buttonsOf(view, side) {
  const list = view.lists[selection.same ? "query" : side]
  return list.querySelectorAll("button")
}

// ---- Ink
function paint(view, token, line) {
  const inked = token && inkedSide(token.side)
  for (const side of Object.keys(view.lists)) {
    const values = line && (selection.same || side === inked) ? line : null
    const most = values ? largest(values) : 1
    const chosen = token && (selection.same || side === token.side) ? token.at : -1
    buttonsOf(view, side).forEach((button, at) => {
      paintOne(view, button, values?.[at], most, at === chosen)
    })
  }
}

function paintOne(view, button, weight, most, chosen) {
  const { theme, header } = view
  const barred = weight !== undefined && Number.isNaN(weight)
  const ink = weight === undefined || barred ? null : inkOf(theme, weight, header.ink, most)
  const pinned = chosen && selection.pinned && !selection.hovered
  const look = `${ink} ${barred} ${chosen} ${pinned}`
  if (view.painted.get(button) === look) return
  view.painted.set(button, look)
  button.style.background = ink ? css(ink) : ""
  button.style.color = ink ? textOn(ink) : ""
  button.classList.toggle("barred", barred)
  button.classList.toggle("chosen", Boolean(chosen))
  button.setAttribute("aria-pressed", String(Boolean(pinned)))
}

// ---- The sentence under the text
function sentence(view, token, line) {
  const { header } = view
  if (!token || !selection.tokens[token.side][token.at]) return [""]
  const { before, after } = captionOf(token.side, headsIn(header))
  const parts = [before, strong(selection.tokens[token.side][token.at].label), after]
  if (!line) return [...parts, " Reading its weights …"]
  const others = selection.tokens[inkedSide(token.side)]
  const best = strongest(line, 3).flatMap(({ at, weight }, place) => {
    return [place ? ", " : " Most: ", strong(others[at].label), ` ${number(weight)}`]
  })
  return best.length ? [...parts, ...best, "."] : parts
}

function headsIn({ oneLayer, over }) {
  const { shown } = selection
  if (shown.length > 1) return `in the mean of ${shown.length} heads (${over})`
  const { layer, head } = shown[0] ?? selection.open
  return oneLayer ? `in head ${head}` : `in layer ${layer}, head ${head}`
}

function strong(text) {
  const element = document.createElement("bdi")
  element.textContent = text
  return element
}

// ---- What a person does
function connect(view) {
  const texts = view.root.querySelector(".texts")
  const tokenOf = (event) => {
    const button = event.target.closest?.("button")
    return button && { side: selection.same ? view.side : button.dataset.side, at: Number(button.dataset.at) }
  }
  const hover = (event) => {
    const token = tokenOf(event)
    if (token) selection.hover(token)
  }
  texts.onmouseover = hover
  texts.onmouseleave = () => selection.hover(null)
  texts.onmousemove = tellWeight
  texts.onkeydown = move
  texts.onclick = (event) => {
    const token = tokenOf(event)
    if (token) selection.pin(token)
  }
  view.root.querySelector("select[name=over]").onchange = (event) => selection.tell("over", event.target.value)
  view.root.querySelector("select[name=side]").onchange = (event) => turn(view, event.target.value)
  if (view.connected) return
  view.connected = true // there are no attributes for these two
  texts.addEventListener("focusin", hover)
  texts.addEventListener("focusout", () => selection.hover(null))
}

/** The arrow keys lead from token to token; only one of them is a tab stop. */
function move(event) {
  const button = event.target.closest?.("button")
  const buttons = button && [...button.parentNode.querySelectorAll("button")]
  const places = { ArrowRight: 1, ArrowLeft: -1 }
  const step = places[event.key]
  if (!step) return
  const next = buttons[buttons.indexOf(button) + step]
  if (next) {
    button.tabIndex = -1
    next.tabIndex = 0
    next.focus()
  }
  event.preventDefault()
}

/** Whole label, position and weight of the token under the pointer. */
function tellWeight(event) {
  const button = event.target.closest?.("button")
  if (!button) return
  const at = Number(button.dataset.at)
  const token = selection.pinned ?? selection.token
  const line = token && selection.meanLine(token)
  const side = selection.same ? "query" : button.dataset.side
  const weight = line && (selection.same || side === inkedSide(token.side)) ? `: ${number(line[at])}` : ""
  button.title = `${at} ${selection.tokens[side][at].label}${weight}`
}

/** Look at the chosen token from the other side: what it gives, or what it gets. */
function turn(view, side) {
  const at = selection.token?.at ?? 0
  view.side = side
  if (!same(selection.pinned, { side, at })) selection.pin({ side, at })
}

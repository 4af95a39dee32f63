// Put into every page before its own scripts: counts what arrives, and answers questions about the page.
// It watches no element and wraps no drawing: that would slow the tools that make many elements more than the others.
// Last paint is found from outside, from the pictures of the screen (frontend_page.py).
;(() => {
  if (window !== window.top) return
  let fromSockets = 0
  window.WebSocket = class extends WebSocket {
    constructor(...options) {
      super(...options)
      this.addEventListener("message", ({ data }) => (fromSockets += data.byteLength ?? data.size ?? data.length))
    }
  }

  // Every window of the page, and every root of elements in them, shadow roots too.
  function windows() {
    return [window, ...Array.from(window.frames)]
  }
  function* roots(root) {
    yield root
    for (const element of root.querySelectorAll("*")) if (element.shadowRoot) yield* roots(element.shadowRoot)
  }
  const allRoots = () => windows().flatMap((one) => [...roots(one.document)])

  window.bench = {
    ask(selector) {
      const asked = Date.now()
      document.querySelector(selector).click()
      return asked
    },
    find: (selector) => allRoots().flatMap((root) => [...root.querySelectorAll(selector)]),
    elements: () => allRoots().reduce((sum, root) => sum + root.querySelectorAll("*").length, 0),
    bytes() {
      const entries = windows().flatMap((one) => one.performance.getEntriesByType("resource"))
      return fromSockets + entries.reduce((sum, one) => sum + one.encodedBodySize, 0)
    },
    // Resolves when two frames have come, so when nothing holds the page up.
    idle: () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true)))),
    // A patch that changes its colour: a picture of the screen that shows it shows all that was drawn before, too.
    flip() {
      const patch = document.querySelector("#bench-patch") ?? document.createElement("i")
      patch.id = "bench-patch"
      const colour = patch.style.background === "rgb(255, 0, 0)" ? "rgb(0, 0, 255)" : "rgb(255, 0, 0)"
      patch.style = `position:fixed;right:0;bottom:0;width:32px;height:32px;z-index:99999999;background:${colour}`
      document.documentElement.append(patch)
    },
    // Milliseconds from each movement of the mouse to the end of the frame that answers it.
    hovers: [],
    watchHover() {
      for (const one of windows()) {
        one.addEventListener("mousemove", (event) => {
          const channel = new MessageChannel()
          channel.port1.onmessage = () => this.hovers.push(one.performance.now() - event.timeStamp)
          one.requestAnimationFrame(() => channel.port2.postMessage(null))
        }, true)
      }
    },
  }
})()

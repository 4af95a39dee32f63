// Keeps typing, page changes and the browser's history in order. Three races, all seen in Streamlit 1.67:
// 1. A page change within moments of a keystroke is undone by the run that sends the text, as that run still
//    names the old page: let the text go first.
// 2. Back within moments of a keystroke: the same, and a run cut short leaves its old text in the box.
// 3. Several keys written by code arrive as one history entry each: make them one, so that Back undoes them all.
export default function () {
  if (window.attnvizHistory) return
  window.attnvizHistory = true
  const WAIT = 350 // ms; by then a live text box (250 ms) has sent what was typed
  const now = () => performance.now()
  let edited = -1e9
  let pushed = -1e9
  let left = null // the page that Back has left, and how long its late words are ignored

  const isBox = (target) => target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement
  for (const name of ["input", "focusout"]) {
    document.addEventListener(
      name,
      (event) => {
        if (isBox(event.target)) edited = now()
      },
      true,
    )
  }
  const justEdited = () => now() - edited < WAIT + 100
  document.addEventListener(
    "pointerdown",
    () => {
      left = null
    },
    true,
  )

  document.addEventListener(
    "click",
    (event) => {
      const link = event.target.closest?.("[data-testid=stTopNavLink], [data-testid=stPageLink-NavLink]")
      if (!link || !event.isTrusted || event.ctrlKey || event.metaKey || event.shiftKey || !justEdited()) return
      event.preventDefault()
      event.stopImmediatePropagation()
      document.activeElement?.blur?.()
      setTimeout(() => link.click(), WAIT)
    },
    true,
  )

  window.addEventListener(
    "popstate",
    (event) => {
      if (!event.isTrusted || !justEdited()) return
      event.stopImmediatePropagation()
      document.activeElement?.blur?.()
      const end = now() + 10 * WAIT
      left = { path: location.pathname, until: end + 2 * WAIT }
      const resume = () => {
        const app = document.querySelector("[data-testid=stApp]")
        const running = app?.getAttribute("data-test-script-state") === "running"
        if (now() < end && running) setTimeout(resume, 50)
        else window.dispatchEvent(new PopStateEvent("popstate", { state: event.state }))
      }
      setTimeout(resume, WAIT)
    },
    true,
  )

  const push = history.pushState.bind(history)
  history.pushState = (state, title, url) => {
    const path = url == null ? location.pathname : new URL(url, location.href).pathname
    if (left && now() < left.until && path !== left.path) return
    const samePage = path === location.pathname
    if (samePage && now() - pushed < 500) history.replaceState(state, title, url)
    else push(state, title, url)
    if (samePage) pushed = now()
  }
}

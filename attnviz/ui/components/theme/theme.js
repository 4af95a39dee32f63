// Streamlit runs this again at once when a person switches between light and dark, but not the page's Python, which
// chooses the colours of the figures: ask for a run where the page is not the one that Python drew for, once for each.
export default function ({ data, parentElement, setTriggerValue }) {
  const style = getComputedStyle(parentElement.host ?? parentElement)
  const page = style.getPropertyValue("--st-background-color").trim().toLowerCase()
  const asked = `${data.page} ${page}`
  if (page === data.page) window.attnvizAsked = null
  else if (window.attnvizAsked !== asked) {
    window.attnvizAsked = asked
    setTriggerValue("switched", page)
  }
}

// Streamlit runs this again at once when a person switches between light and dark, but not the page's Python,
// which chooses the colours of the figures: ask for a run.
export default function ({ parentElement, setTriggerValue }) {
  const page = getComputedStyle(parentElement.host ?? parentElement).getPropertyValue("--st-background-color")
  const before = window.attnvizPage
  window.attnvizPage = page
  if (before && before !== page) setTriggerValue("switched", page)
}

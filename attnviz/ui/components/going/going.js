// Opens another page once the run that asked for it has ended, as a click on its name in the navigation does.
import { unpack } from "../shared.js"

export default function ({ data }) {
  const { path } = unpack(data).header
  const timer = setInterval(() => {
    const app = document.querySelector("[data-testid=stApp]")
    if (app?.getAttribute("data-test-script-state") === "running") return
    clearInterval(timer)
    const links = [...document.querySelectorAll("[data-testid=stTopNavLink]")]
    const link = links.find((one) => lastPart(one.href) === path)
    if (link) link.click()
    else location.assign(`${path || "."}${location.search}`) // the names stand in a menu of narrow windows
  }, 50)
  return () => clearInterval(timer)
}

/** The last part of an address's path, empty for the first page. */
export function lastPart(address) {
  return new URL(address, "http://localhost").pathname.split("/").at(-1)
}

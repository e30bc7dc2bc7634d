// The main path through the console in Firefox: node firefox.js FIREFOX URL API TOKEN FILE SCREENSHOTS.
// FILE has 60 plants with the ids from 1. It fails if a step takes longer than a minute, and if
// the page logs an error or violates its content security policy. TestMainPathInFirefox runs it.
import { launch } from "puppeteer-core";

const [executablePath, url, api, token, file, screenshots] = process.argv.slice(2);
const browser = await launch({
  browser: "firefox",
  executablePath,
  extraPrefsFirefox: { "intl.accept_languages": "en" },
});
const page = await browser.newPage();
page.setDefaultTimeout(60_000);
await page.setViewport({ width: 1280, height: 800 });

const logged = [];
page.on("pageerror", (error) => logged.push(error.message));
page.on("console", (message) => {
  if (["error", "warn"].includes(message.type())) logged.push(message.text());
});
await page.evaluateOnNewDocument(() => {
  addEventListener("securitypolicyviolation", (e) => console.error(`content security policy: ${e.effectiveDirective} ${e.blockedURI}`));
});

const testID = (name) => `[data-testid="${name}"]`;
const click = (selector) => page.locator(selector).click();
const write = (selector, text) => page.locator(selector).fill(text);
const press = (key) => page.keyboard.press(key);

/** Waits until an element is shown and has the text. */
async function see(selector, text) {
  try {
    await page.waitForFunction(
      (selector, text) => [...document.querySelectorAll(selector)].some((e) => e.checkVisibility() && e.innerText.includes(text)),
      {},
      selector,
      text,
    );
  } catch (error) {
    throw new Error(`${selector} does not show "${text}"`, { cause: error });
  }
}

/** Changes the store behind the page's back. */
async function call(method, path, body) {
  const response = await fetch(api + path, { method, body, headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" } });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
}

async function mainPath() {
  await page.goto(url);
  await write("#token", token);
  await press("Enter");
  await see("#state", "No plants yet");

  // Import.
  await click("#import");
  await (await page.$("#file")).uploadFile(file);
  await click("#start-import");
  await see("#report", "was imported");
  await click("#cancel-import");
  await see("#count", "Plants 1–50 of 60");
  await click("#next");
  await see("#count", "Plants 51–60 of 60");

  // Create, edit, delete and undo.
  await click("#create");
  await write("#plant-id", "9007199254740993");
  await write("#plant-name", "Monstera");
  await press("Tab");
  await page.keyboard.type("tropical");
  await press("Enter");
  await see("#rows", "9007199254740993");
  await click('tr[data-id="9007199254740993"] a');
  await click("#edit-plant");
  await write("#plant-name", "Monstera deliciosa");
  await press("Enter");
  await see("#plant-facts", "Monstera deliciosa");
  await click("#delete-plant");
  await see(testID("toast"), "Plant 9007199254740993 was deleted.");
  await click(testID("undo"));
  await see("#rows", "9007199254740993");

  // Search, with a tag too, and see what somebody else changes.
  await write("#search", "maple");
  await see("#count", "Matches 1–");
  await write("#tag-filter", "herb");
  await press("Enter");
  await see("#count", "Matches 1–1 of 1");
  await page.goto(`${url}/#/plants`);
  await call("PUT", "/plants/1", '{"name":"Renamed by someone"}');
  await see('tr[data-id="1"]', "Renamed by someone");
  await page.screenshot({ path: `${screenshots}/firefox-plants.png` });

  // The other pages.
  await click('#pages a[href="#/activity"]');
  await see("#events", "Renamed by someone");
  await page.screenshot({ path: `${screenshots}/firefox-activity.png` });
  await click('#pages a[href="#/tokens"]');
  await click("#new-token");
  await write("#token-name", "backup");
  await click(testID("submit"));
  await see("dialog", "it is never shown again");
  await click(testID("copy"));
  await click(testID("done"));
  await see("#tokens tr", "backup");
  await click('#pages a[href="#/webhooks"]');
  await see("#webhooks", "No webhooks");
  await click('#pages a[href="#/overview"]');
  await see("#about", "SQLite, embedded");

  // The reference uses the token of the console.
  await page.goto(`${url}/docs/`);
  await click("#operations-plants-getPlant .opblock-summary-control");
  await write("#operations-plants-getPlant tr[data-param-name=id] input", "9007199254740993");
  await click("#operations-plants-getPlant .execute");
  await see("#operations-plants-getPlant .live-responses-table", "Monstera deliciosa");
  await page.screenshot({ path: `${screenshots}/firefox-reference.png` });

  await page.goto(url);
  await click("#sign-out");
  await see("#sign-in", "Sign in");
  const kept = await page.evaluate(() => JSON.stringify([sessionStorage, localStorage]));
  if (kept.includes(token)) throw new Error("the browser stores the token after the sign-out");
}

try {
  await mainPath();
  if (logged.length > 0) throw new Error(`the page logged: ${logged.join("\n")}`);
} catch (error) {
  await page.screenshot({ path: `${screenshots}/firefox-failed.png` });
  throw error;
} finally {
  await browser.close();
}

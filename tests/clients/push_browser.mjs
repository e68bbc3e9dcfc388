// Shows push messages through a service worker in Chromium, clicks each notification, and prints what was shown as JSON.
// Usage: node push_browser.mjs WORKER ADDRESS CHROMIUM, with a JSON list of payloads on the standard input.
import { createServer } from "node:http";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const require = createRequire(`${process.cwd()}/`);
const { chromium } = require("playwright-core");
const [, , file, address, executablePath] = process.argv;
const source = readFileSync(file, "utf8");
const payloads = JSON.parse(readFileSync(0, "utf8"));
const patienceMs = 60_000;

async function until(what, look) {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`${what}: not within ${patienceMs / 1000} s`);
    await new Promise((resume) => setTimeout(resume, 50));
  }
}

function notifications() {
  return navigator.serviceWorker.ready
    .then((registration) => registration.getNotifications())
    .then((shown) => shown.map(({ title, body, data }) => ({ title, body, data })));
}

// Chromium lets a worker open a window only after a person has clicked, which the DevTools protocol cannot do. The event is
// dispatched in the worker instead, and the addresses that it opens are kept. A dispatched event has no `waitUntil` of its own.
async function click() {
  const opened = [];
  const awaited = [];
  self.clients.openWindow = async (url) => void opened.push(url);
  const [notification] = await self.registration.getNotifications();
  const event = new NotificationEvent("notificationclick", { notification });
  event.waitUntil = (promise) => void awaited.push(promise);
  self.dispatchEvent(event);
  await Promise.all(awaited);
  return { opened, awaited: awaited.length };
}

// An address of the loopback counts as a secure origin.
const pages = createServer((request, answer) => {
  const isWorker = request.url === address;
  answer.writeHead(isWorker || request.url === "/" ? 200 : 404, { "Content-Type": isWorker ? "text/javascript" : "text/html" });
  answer.end(isWorker ? source : "<!doctype html><title>Shop</title>");
}).listen(0, "127.0.0.1");
await new Promise((resume) => pages.once("listening", resume));
const origin = `http://127.0.0.1:${pages.address().port}`;
const profile = mkdtempSync(join(tmpdir(), "starling-chromium-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath,
  // Without --headless=new, an older Chromium starts the browser that has no notifications.
  args: [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
  ],
});
try {
  await browser.grantPermissions(["notifications"], { origin });
  const page = await browser.newPage();
  await page.goto(`${origin}/`);
  const devtools = await browser.newCDPSession(page);
  const registrations = new Map();
  devtools.on("ServiceWorker.workerRegistrationUpdated", (event) => {
    for (const one of event.registrations) registrations.set(one.scopeURL, one.registrationId);
  });
  await devtools.send("ServiceWorker.enable");
  const events = [];
  devtools.on("BackgroundService.backgroundServiceEventReceived", ({ backgroundServiceEvent }) => events.push(backgroundServiceEvent));
  for (const service of ["pushMessaging", "notifications"]) {
    await devtools.send("BackgroundService.startObserving", { service });
    await devtools.send("BackgroundService.setRecording", { service, shouldRecord: true });
  }
  const permission = await page.evaluate((path) => navigator.serviceWorker.register(path).then(() => Notification.permission), address);
  if (permission !== "granted") throw new Error(`notifications are ${permission} in this Chromium: ${browser.browser()?.version()}`);
  await page.evaluate(() => navigator.serviceWorker.ready.then(() => true));
  const scope = new URL(".", `${origin}${address}`).href;
  const registrationId = await until("the registration of the worker", () => registrations.get(scope));

  const found = [];
  for (const data of payloads) {
    events.length = 0;
    await devtools.send("ServiceWorker.deliverPushMessage", { origin, registrationId, data });
    // Chromium drops a notification that is listed before it is displayed, so nothing may ask for the list earlier.
    const named = (name) => events.find((event) => event.eventName === name);
    const completed = await until("the end of the push event", () => named("Push event completed"));
    const [status] = completed.eventMetadata.filter(({ key }) => key === "Status");
    if (status?.value !== "Success") throw new Error(`the push event ended with ${JSON.stringify(completed.eventMetadata)}`);
    await until("the display of the notification", () => named("Notification displayed"));
    const shown = await until("a notification", async () => {
      const now = await page.evaluate(notifications);
      return now.length > 0 && now;
    });
    const [worker] = await until("the worker", () => browser.serviceWorkers().length > 0 && browser.serviceWorkers());
    const clicked = await worker.evaluate(click);
    await until("the end of the notification", async () => (await page.evaluate(notifications)).length === 0);
    found.push({ shown, ...clicked });
  }
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
  pages.close();
  rmSync(profile, { recursive: true, force: true });
}

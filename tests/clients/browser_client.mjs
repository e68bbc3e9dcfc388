// Opens a page with one of the published browser clients in Chromium, until the end of its standard input.
// Usage: node browser_client.mjs CLIENT URL WRITE_KEY ITEMS CHROMIUM
import { createServer } from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const require = createRequire(`${process.cwd()}/`);
const { buildSync } = require("esbuild");
const { chromium } = require("playwright-core");
const [, , name, url, writeKey, items, executablePath] = process.argv;

const loading = {
  "@segment/analytics-next": `
    import { AnalyticsBrowser } from "@segment/analytics-next";
    const client = AnalyticsBrowser.load({ writeKey, cdnURL: url },
      { integrations: { "Segment.io": { apiHost: url.replace("http://", "") + "/v1", protocol: "http" } } });`,
  "@rudderstack/analytics-js": `
    import { RudderAnalytics } from "@rudderstack/analytics-js/bundled";
    const client = new RudderAnalytics();
    client.load(writeKey, url, { configUrl: url });`,
};
// A browser client has no call "screen"; a second page takes its place.
const sending = `
    client.identify("u-1", { plan: "pro" });
    client.page("Cart");
    client.page("Home");
    client.group("g-1", { plan: "pro" });
    client.alias("u-1", "anon-1");
    for (let n = 5; n < items; n += 1) {
      client.track("Step", { n });
      if (n % 20 === 0) await new Promise((resume) => setTimeout(resume, 50));
    }`;
const script = buildSync({
  stdin: {
    contents: `const [url, writeKey, items] = ${JSON.stringify([url, writeKey, Number(items)])};${loading[name]}
    async function send() {${sending}}
    send();`,
    resolveDir: process.cwd(),
  },
  bundle: true,
  write: false,
  format: "iife",
  logLevel: "error",
}).outputFiles[0].text;

const pages = createServer((request, answer) => {
  const isScript = request.url === "/client.js";
  answer.writeHead(200, { "Content-Type": isScript ? "text/javascript" : "text/html" });
  answer.end(isScript ? script : "<!doctype html><title>Shop</title><script src=/client.js></script>");
}).listen(0, "127.0.0.1");
await new Promise((resume) => pages.once("listening", resume));
const profile = mkdtempSync(join(tmpdir(), "starling-chromium-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const page = await browser.newPage();
page.on("pageerror", (error) => console.error(`page: ${error}`));
await page.goto(`http://127.0.0.1:${pages.address().port}/`);
process.stdin.resume();
process.stdin.on("end", async () => {
  await browser.close();
  rmSync(profile, { recursive: true, force: true });
  process.exit(0);
});

// Sends items with one of the published Node.js clients, then waits for the end of its standard input.
// Usage: node node_client.mjs CLIENT URL WRITE_KEY ITEMS
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const [, , name, url, writeKey, items] = process.argv;

const clients = {
  "@segment/analytics-node": () => {
    const { Analytics } = require("@segment/analytics-node");
    const client = new Analytics({ writeKey, host: url, flushInterval: 200 });
    return [calls(client), () => client.closeAndFlush({ timeout: 120_000 })];
  },
  "@rudderstack/rudder-sdk-node": () => {
    const Analytics = require("@rudderstack/rudder-sdk-node");
    const client = new Analytics(writeKey, { dataPlaneUrl: url, flushInterval: 200 });
    return [calls(client), () => client.flush()];
  },
  "analytics-node": () => {
    const Analytics = require("analytics-node");
    const client = new Analytics(writeKey, { host: url, flushInterval: 200 });
    return [calls(client), () => client.flush()];
  },
  "@jitsu/js": () => {
    const { jitsuAnalytics } = require("@jitsu/js");
    const client = jitsuAnalytics({ host: url, writeKey, s2s: true });
    const of = (userId) => ({ userId });
    return [
      {
        track: (n) => client.track("Step", { n }, of("u-1")),
        page: () => client.page({ name: "Cart" }, of("u-1")),
        screen: () => client.track("Screen", { n: -1 }, of("u-1")),
        identify: () => client.identify("u-1", { plan: "pro" }),
        group: () => client.group("g-1", { plan: "pro" }, of("u-1")),
        alias: () => client.track("Alias", { n: -1 }, of("u-1")),
      },
      async () => undefined,
    ];
  },
};

function calls(client) {
  const userId = "u-1";
  return {
    track: (n) => client.track({ userId, event: "Step", properties: { n } }),
    page: () => client.page({ userId, name: "Cart" }),
    screen: () => (client.screen ?? client.page).call(client, { userId, name: "Home" }),
    identify: () => client.identify({ userId, traits: { plan: "pro" } }),
    group: () => client.group({ userId, groupId: "g-1", traits: { plan: "pro" } }),
    alias: () => client.alias({ previousId: "anon-1", userId }),
  };
}

const [send, flush] = clients[name]();
for (const kind of ["identify", "page", "screen", "group", "alias"]) await send[kind]();
for (let n = 5; n < Number(items); n += 1) {
  await send.track(n);
  if (n % 20 === 0) await new Promise((resume) => setTimeout(resume, 50));
}
await flush();
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));

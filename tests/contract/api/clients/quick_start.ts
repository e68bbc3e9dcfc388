// The quick start with the generated types: create a segment, list the segments, read its members, preview a condition.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const [url, token] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });

function found<T>(answer: { data?: T; error?: unknown }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

const where: components["schemas"]["Condition"] = { event: "Order Completed", op: "gte", value: 2, within: "90d" };
const segment = found(await api.POST("/v1/segments", { body: { key: "typescript", name: "Repeat buyers", where } }));
const listed = found(await api.GET("/v1/segments", { params: { query: { limit: 10 } } }));
const members = found(await api.GET("/v1/segments/{key}/members", { params: { path: { key: segment.key } } }));
const preview = found(await api.POST("/v1/segments/preview", { body: { where } }));
const read = await api.GET("/v1/segments/{key}", { params: { path: { key: segment.key } } });
const etag = read.response.headers.get("ETag") ?? "";
const renamed = found(
  await api.PUT("/v1/segments/{key}", {
    params: { path: { key: segment.key }, header: { "If-Match": etag } },
    body: { ...found(read), name: "Loyal buyers" },
  }),
);
console.log(
  JSON.stringify({
    created: segment.key,
    listed: listed.items.map((one) => one.key),
    members: members.items.length,
    estimate: preview.estimate,
    name: renamed.name,
  }),
);

// What the package does without a broker. tests/clients tests it against one, in Node and in Chromium.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Change, connect, formatFloat, formatTick, Knowledge, parseColumn, Schema, SmileError, tickDate } from "smile-client";

const total = parseColumn("total", "int");

test("knowledge says what is known for good, and shows it", () => {
  const open = Knowledge.decode({ at_least: 3 }, 3, total);
  assert.deepEqual([open.isFinal, open.lower, open.upper, open.format()], [false, 3, null, "≥3"]);
  assert.deepEqual([open.atLeast(2), open.atLeast(4), open.atMost(2)], [true, null, false]);
  const between = [77, 80, 100].map((now) => Knowledge.decode({ between: [77, 100] }, now, total).format());
  assert.deepEqual(between, ["77 [77..100]", "80~ [77..100]", "100 [77..100]"]);
  const final = Knowledge.decode({ exactly: 4 }, 4, total);
  assert.deepEqual([final.isFinal, final.format(), final.atLeast(5)], [true, "=4", false]);
});

test("ticks keep all digits", () => {
  const at = parseColumn("at", "time");
  const known = Knowledge.decode({ exactly: "9223372036854775806" }, null, at);
  assert.equal(known.lower, 9223372036854775806n);
  assert.equal(formatTick(12n), "12");
  assert.equal(tickDate(1_700_000_000_000n * 1000n * 1024n).getTime(), 1_700_000_000_000);
});

test("bounds of floats are rounded outwards", () => {
  assert.equal(formatFloat(2 / 3, "down"), "0.666666");
  assert.equal(formatFloat(2 / 3, "up"), "0.666667");
  for (const short of [10.1, 0.1, 99.9, -10.1]) {
    assert.deepEqual([formatFloat(short, "down"), formatFloat(short, "up")], [String(short), String(short)]);
  }
});

test("calls end with the error of a client that was closed", async () => {
  class NoSocket extends EventTarget {
    close() {}
    send() {}
  }
  const client = connect({ url: "http://127.0.0.1:1", WebSocket: NoSocket });
  const answer = client.publish("Trades", { price: 1 });
  client.close();
  await assert.rejects(answer, (problem) => problem instanceof SmileError && problem.code === "E103");
});

test("a column that the view does not have is an error, and no value", () => {
  const schema = new Schema("Volume", ["issue"], { issue: "string", total: "int" }, ["Trades"]);
  const row = Change.decode(schema, { key: { issue: "IBM" }, row: { total: 3 }, knowledge: { total: { at_least: 3 } } });
  const hints = { totl: "Did you mean total?", toString: "It has issue, total." };
  for (const read of ["value", "get", "format"]) {
    for (const [name, hint] of Object.entries(hints)) {
      const expected = { name: "SmileError", code: "E022", message: `Volume has no column ${name}`, hint };
      assert.throws(() => row[read](name), expected);
    }
  }
  const gone = Change.deletion(row);
  assert.deepEqual([gone.value("total"), gone.get("total").value, gone.format("total")], [null, null, "NULL"]);
});

/** A connection to a broker that the test plays: `open()`, and `say(message)`. */
function playedBroker() {
  const sockets = [];
  class PlayedSocket {
    sent = [];
    constructor() {
      sockets.push(this);
    }
    send(text) {
      this.sent.push(JSON.parse(text));
    }
    close() {}
  }
  const client = connect({ url: "http://127.0.0.1:1", WebSocket: PlayedSocket });
  const say = (message) => sockets.at(-1).onmessage({ data: JSON.stringify(message) });
  return { client, say, open: () => sockets.at(-1).onopen(), sent: () => sockets.at(-1).sent };
}

test("a publication is waited for no longer than its signal says", async () => {
  const { client, say, open, sent } = playedBroker();
  const aborted = { name: "AbortError" };
  await assert.rejects(client.publish("Trades", {}, { signal: AbortSignal.abort() }), aborted);
  const [unsent, alreadySent] = [new AbortController(), new AbortController()];
  const first = client.publish("Trades", [{ n: 1 }, { n: 2 }], { signal: unsent.signal });
  const second = client.publish("Trades", { n: 3 }, { signal: alreadySent.signal });
  const third = client.publish("Trades", { n: 4 });
  unsent.abort();
  await assert.rejects(first, aborted);
  open();
  alreadySent.abort();
  await assert.rejects(second, aborted);
  // What was not sent is not published, and leaves no gap between the sequence numbers.
  assert.deepEqual(sent().map(({ seq, events }) => [seq, events]), [[1, [{ n: 3 }]], [2, [{ n: 4 }]]]);
  for (const { id } of sent()) say({ published: [id], id });
  assert.deepEqual((await third).ticks, [BigInt(sent()[1].id)]);
  client.close();
});

test("NaN is refused, and not published as NULL", async () => {
  const { client } = playedBroker();
  const expected = { code: "E078", message: "event 2: Trades.points is NaN, which no column can hold" };
  await assert.rejects(client.publish("Trades", [{ points: 1 }, { points: 0 / 0 }]), (problem) => {
    assert.deepEqual([problem.diagnostics[0].event, problem.diagnostics[0].column], [2, "points"]);
    return problem.code === expected.code && problem.message === expected.message;
  });
  client.close();
});

const UNKNOWN_VIEW = { code: "E021", message: "there is no view Volum", hint: "Did you mean Volume?" };

test("a subscription that ends while nobody observes it says why in the console", async (t) => {
  const { mock } = t.mock.method(console, "error", () => undefined);
  const { client, open, say } = playedBroker();
  open();
  const row = { key: {}, row: {} };
  const kinds = {
    silent: (subscription) => subscription,
    handled: () => undefined,
    awaited: (subscription) => void subscription.ready.catch(() => undefined),
    iterated: (subscription) => void (async () => { for await (const _ of subscription); })().catch(() => undefined),
    awaitedBefore(subscription) {
      void subscription.ready;
      say({ subscribed: "Volume", id: subscription.id, key: [], columns: {}, streams: [] });
      say({ id: subscription.id, n: 1, rows: [row], progress: { Trades: 1 }, reset: true });
    },
    closed: (subscription) => subscription.close(),
  };
  const ended = [];
  const lines = [];
  for (const [kind, use] of Object.entries(kinds)) {
    const subscription = client.subscribe("Volum", kind === "handled" ? { onEnded: (problem) => ended.push(problem.code) } : {});
    use(subscription);
    say({ id: subscription.id, error: UNKNOWN_VIEW });
    if (mock.callCount() > lines.length) lines.push([kind, mock.calls.at(-1).arguments[0]]);
  }
  const line = "smile: the subscription to Volum has ended: E021 there is no view Volum. Did you mean Volume?";
  assert.deepEqual(lines, [["silent", line], ["awaitedBefore", line]]);
  assert.deepEqual(ended, ["E021"]);
  client.subscribe("Volume", { onEnded: (problem) => ended.push(problem.code) });
  client.subscribe("Volume");
  client.close();
  assert.deepEqual([ended.length, mock.callCount()], [1, 2]);
});

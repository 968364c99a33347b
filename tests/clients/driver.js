// Runs commands on the client, in Node and in pages. What is not JSON is text in the answers.
(smile) => {
  let client = null;
  let states = [];
  const tables = new Map();
  const published = [];
  const plain = (value) => JSON.parse(JSON.stringify(value, (_, item) => (typeof item === "bigint" ? item.toString() : item)));
  const problem = (error) => ({ error: error.code ?? String(error), message: error.message });
  const rowOf = (change) => ({
    key: plain(change.key), row: plain(change.row), final: change.final,
    texts: Object.fromEntries(change.schema.columns.map((column) => [column.name, change.format(column.name)])),
  });
  const commands = {
    connect({ url, token }) {
      states = [];
      client = smile.connect({ url, token, onState: (error, permanent) => states.push(error ? [error.code, permanent] : null) });
      return true;
    },
    state: () => ({ connected: client.isConnected, states }),
    async publish({ stream, events }) {
      const { ticks, repeated, warnings } = await client.publish(stream, events);
      return { ticks: ticks.map(String), repeated, warnings };
    },
    // Publishes in the background, one after the other, each as soon as the one before is answered.
    publishMany({ stream, count }) {
      published.length = 0;
      void (async () => {
        for (let n = 0; n < count; n++) published.push((await client.publish(stream, { n, issue: `I${n % 3}` })).ticks[0]);
      })();
      return true;
    },
    publishedCount: () => published.length,
    publishedTicks: () => published.map(String),
    async subscribe({ view, where, final, resume }) {
      const table = { delivered: [], frames: 0, retreats: 0, last: new Map(), ended: null, paused: null };
      const handle = (frame) => {
        table.frames++;
        for (const change of frame.changes) {
          table.delivered.push(change.id);
          if (change.deleted) continue;
          for (const [name, known] of Object.entries(change.knowledge)) {
            const place = `${change.id} ${name}`;
            const before = table.last.get(place);
            if (before !== undefined && known.lower !== null && known.lower < before) table.retreats++;
            if (known.lower !== null) table.last.set(place, known.lower);
          }
        }
      };
      const options = { where, final, resume, onEnded: (error) => (table.ended = error.code), onPaused: (error) => (table.paused = error?.code ?? null) };
      table.subscription = client.subscribe(view, options, handle);
      tables.set(view, table);
      await table.subscription.ready;
      const { schema } = table.subscription;
      return { key: schema.key, columns: Object.fromEntries(schema.columns.map((column) => [column.name, column.kind])) };
    },
    rows: ({ view }) => [...tables.get(view).subscription.rows.values()].map(rowOf),
    delivered: ({ view }) => tables.get(view).delivered,
    table({ view }) {
      const { frames, retreats, ended, paused, subscription } = tables.get(view);
      return { frames, retreats, ended, paused, resume: subscription.resume };
    },
    async snapshot({ view, where }) {
      return (await client.snapshot(view, { where })).rows.map(rowOf);
    },
    // The sum over the changes of so many frames, read by iterating.
    async iterate({ view, frames }) {
      const seen = [];
      for await (const frame of client.subscribe(view)) {
        seen.push(frame.changes.length);
        if (seen.length === frames) break;
      }
      return seen.length;
    },
    format: ({ cases }) =>
      smile.parseJson(cases).map(({ knowledge, value, type }) => {
        const column = smile.parseColumn("x", type);
        const schema = new smile.Schema("V", [], { x: type }, []);
        const change = smile.Change.decode(schema, { key: {}, row: { x: value }, knowledge: { x: knowledge } });
        const known = change.get("x");
        return { text: known.format(), final: known.isFinal, kind: column.kind };
      }),
    close() {
      client.close();
      return true;
    },
  };
  return async (command) => {
    try {
      return await commands[command.do](command);
    } catch (error) {
      return problem(error);
    }
  };
}

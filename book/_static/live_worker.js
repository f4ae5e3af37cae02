// Python, in a thread of its own. Messages: {id, start}, {id, load: packages}, {id, call, state}; answers carry the id.
let py;
let answer;
let fetched = 0;
let expected = 0;
let stage = "Loading Python";

const tell = () => postMessage({
  said: `${stage}: ${(fetched / 1e6).toFixed(0)} of about ${(Math.max(expected, fetched) / 1e6).toFixed(0)} MB …`,
  share: expected ? Math.min(1, fetched / expected) : 0,
});

// Every fetch is counted, and says which address failed and why.
const ask = self.fetch.bind(self);
self.fetch = async (what, options) => {
  const url = new URL(what.url ?? what, self.location);
  let reply;
  try { reply = await ask(what, options); } catch { throw new Error(`${url.host} does not answer (${url.pathname.split("/").pop()})`); }
  if (!reply.ok) throw new Error(`${url.pathname.split("/").pop()}: ${reply.status} ${reply.statusText || "not there"}`);
  if (!reply.body) return reply;
  const counted = new TransformStream({
    transform(chunk, next) { fetched += chunk.byteLength; tell(); next.enqueue(chunk); },
  });
  return new Response(reply.body.pipeThrough(counted), { status: reply.status, headers: reply.headers });
};

async function start({ pyodide, wheel }) {
  expected = 14e6; // the interpreter and this package
  await self.fetch(new URL("pyodide.mjs", pyodide)); // tells why where the import below could not
  const { loadPyodide } = await import(new URL("pyodide.mjs", pyodide).href);
  py = await loadPyodide({ indexURL: pyodide });
  stage = "Loading the package";
  py.unpackArchive(await (await self.fetch(wheel)).arrayBuffer(), "wheel");
}

async function load(packages) {
  const missing = packages.filter((name) => name && !py.loadedPackages[name]);
  if (missing.length) {
    const wrong = [];
    stage = `Loading ${missing.join(" and ")}`;
    expected += (missing.includes("scipy") ? 19.6e6 : 0) + (missing.includes("numpy") ? 3.1e6 : 0);
    await py.loadPackage(missing, { messageCallback() {}, errorCallback: (words) => wrong.push(words) });
    const absent = missing.filter((name) => !py.loadedPackages[name]);
    if (absent.length) throw new Error(wrong.at(-1) ?? `${absent.join(", ")} did not load`);
  }
  answer ??= py.pyimport("serving_or.tools.live").answer;
}

onmessage = async ({ data: { id, ...asked } }) => {
  try {
    if (asked.start) { await start(asked.start); postMessage({ id }); }
    else if (asked.load) { await load(asked.load); postMessage({ id }); }
    else {
      const began = performance.now();
      const html = answer(asked.call, asked.state);
      postMessage({ id, html, ms: performance.now() - began });
    }
  } catch (error) {
    // Python's traceback is long; its last line says what went wrong.
    postMessage({ id, error: String(error?.message ?? error).trim().split("\n").pop() });
  }
};

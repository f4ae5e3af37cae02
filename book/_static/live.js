// Live examples. The page holds pictures that the package computed when the book was built; moving a control shows the
// stored one at once. On a click the same package runs here, in a thread of its own (live_worker.js), and adds what is not
// stored: finer steps and typed numbers. Nothing is fetched before that click. The markup is by serving_or.tools.live.
// This is no module, so that a page that is opened as a file has its stored pictures, too.
(() => {
  const here = new URL(".", document.currentScript.src);
  const isFile = location.protocol === "file:";
  let python; // one interpreter for all examples of a page
  let asked = 0;
  const waiting = new Map();

  const plain = (error) => String(error?.message ?? error).trim().split("\n").pop();

  // Where an address does not answer, JavaScript tells less than the reader needs.
  async function config() {
    const url = new URL("live.json", here);
    const reply = await fetch(url).catch(() => { throw new Error(`${url.host || url} does not answer`); });
    if (!reply.ok) throw new Error(`${url.pathname}: ${reply.status} ${reply.statusText}`);
    return reply.json();
  }

  // The thread with the interpreter: ask(message) resolves with its answer. Each stage and share is told to `say`.
  async function start(say) {
    const { pyodide, wheel } = await config();
    const worker = new Worker(new URL("live_worker.js", here), { type: "module" });
    const fail = (why) => { worker.terminate(); for (const { reject } of waiting.values()) reject(new Error(why)); waiting.clear(); };
    worker.onerror = (event) => fail(event.message || "the thread for Python did not start");
    worker.onmessage = ({ data }) => {
      if (data.said !== undefined) { say(data.said, data.share); return; }
      const { resolve, reject } = waiting.get(data.id);
      waiting.delete(data.id);
      if (data.error === undefined) resolve(data); else reject(new Error(data.error));
    };
    const ask = (message) => new Promise((resolve, reject) => {
      waiting.set(++asked, { resolve, reject });
      worker.postMessage({ ...message, id: asked });
    });
    try {
      await ask({ start: { pyodide: new URL(pyodide, here).href, wheel: new URL(wheel, here).href } });
    } catch (error) { worker.terminate(); throw error; }
    return ask;
  }

  // A control: a place among values that are JSON texts, as Python wrote them, or a number that was typed.
  function control(input) {
    const values = JSON.parse(input.dataset.values);
    const unit = input.dataset.unit;
    const whole = input.dataset.kind === "int";
    const numbers = values.map(Number);
    let held = JSON.parse(input.dataset.held ?? "null"); // positions of a slider
    let fine; // values of a slider while Python runs
    let typed; // field for numbers
    const shown = (text) => (text === "Infinity" || isNaN(text) ? text : String(Number(Number(text).toPrecision(6)))) + unit;
    const text = (number) => (whole ? String(Math.round(number)) : Number.isInteger(number) ? `${number}.0` : String(number));
    const self = {
      name: input.name,
      place() { // among all values, or -1
        if (input.type === "checkbox") return Number(input.checked);
        if (input.type !== "range") return Number(input.value);
        return values.indexOf(self.value());
      },
      value() {
        if (input.type !== "range") return values[self.place()];
        if (typed && typed.value !== "" && typed.dataset.used) return text(Number(typed.value));
        return fine ? fine[input.value] : values[held[input.value]];
      },
      show() {
        if (input.type !== "range") return;
        const now = shown(self.value());
        input.nextElementSibling.value = now;
        input.setAttribute("aria-valuetext", now);
        if (typed && !typed.dataset.used) typed.value = Number(self.value());
      },
      // Python runs: five steps for one, whole numbers one by one, and a field for any number.
      refine() {
        if (input.type !== "range") return;
        const at = self.value();
        const [low, high] = [numbers[0], numbers.at(-1)];
        const step = whole ? 1 : (high - low) / Math.max(1, numbers.length - 1) / 5;
        const count = Math.round((high - low) / (step || 1));
        const even = count > 0 ? Array.from({ length: count + 1 }, (_, i) => text(Number((low + i * step).toPrecision(12)))) : [];
        fine = [...new Set([...values, ...even])].sort((a, b) => a - b);
        input.max = fine.length - 1;
        input.value = fine.indexOf(at);
        typed = document.createElement("input");
        Object.assign(typed, { type: "number", step: whole ? 1 : "any", value: Number(at), className: "live-typed" });
        typed.setAttribute("aria-label", `${input.closest("label").firstChild.textContent.trim()}, typed`);
        typed.addEventListener("input", () => { typed.dataset.used = "yes"; });
        input.addEventListener("input", () => { delete typed.dataset.used; });
        input.closest("label").after(typed);
      },
    };
    return self;
  }

  function mount(box) {
    const find = (name) => box.querySelector(`.live-${name}`);
    const [form, button, said, read, out] = ["controls", "start", "said", "read", "out"].map(find);
    const states = JSON.parse(find("states").textContent);
    const controls = [...form.querySelectorAll("[name]")].map(control);
    const bar = document.createElement("progress");
    let ask; // set once Python runs
    let busy = false;
    let again = false;

    const say = (words, share) => {
      said.textContent = words;
      if (share === undefined) bar.remove();
      else { bar.value = share; bar.setAttribute("aria-label", words); said.append(" ", bar); }
    };
    // One announcement a move, by the picture's own label, once the reader's hand rests.
    let rest;
    const announce = (words) => { clearTimeout(rest); rest = setTimeout(() => { read.textContent = words; }, 400); };
    const put = (html) => {
      out.innerHTML = html;
      out.classList.remove("stale");
      announce(out.querySelector("[aria-label]")?.getAttribute("aria-label") ?? out.textContent.slice(0, 200));
    };

    async function draw() {
      controls.forEach((c) => c.show());
      const html = states[controls.map((c) => c.place()).join(",")];
      if (html !== undefined) { put(html); if (ask) say("Python is running in this page."); return; }
      if (!ask) {
        out.classList.add("stale");
        say(isFile ? "This one is not stored; see below." : "This one is not stored: run it live; the figure shows another.");
        return;
      }
      if (busy) { again = true; return; }
      busy = true;
      try {
        const state = `{${controls.map((c) => `${JSON.stringify(c.name)}: ${c.value()}`).join(", ")}}`;
        const answer = await ask({ call: box.dataset.call, state });
        box.dataset.ms = answer.ms.toFixed(1);
        put(answer.html);
        say("Python is running in this page.");
      } catch (error) {
        out.classList.add("stale");
        say(plain(error));
        announce(plain(error));
      }
      busy = false;
      if (again) { again = false; draw(); }
    }

    let frame = 0; // draw once a frame, whatever the number of events
    form.addEventListener("input", () => { frame ||= requestAnimationFrame(() => { frame = 0; draw(); }); });
    form.addEventListener("submit", (event) => event.preventDefault());

    button?.addEventListener("click", async () => {
      button.disabled = true;
      box.dataset.state = "starting";
      try {
        say("Loading Python …", 0);
        const ready = await (python ??= start((words, share) => document.querySelectorAll('.live[data-state="starting"]')
          .forEach((each) => each.dispatchEvent(new CustomEvent("progress", { detail: { words, share } })))));
        await ready({ load: box.dataset.packages.split(" ") });
        ask = ready;
        box.dataset.state = "running";
        button.hidden = true;
        controls.forEach((c) => c.refine());
        say("Python is running in this page: steps are finer, and numbers can be typed.");
        controls.forEach((c) => c.show());
        form.querySelector("[name]").focus();
      } catch (error) {
        python = ask = undefined;
        button.disabled = false;
        box.dataset.state = "failed";
        say(`Python could not start here: ${plain(error)}. The figures are those computed with the book.`);
        announce(said.textContent);
      }
    });
    box.addEventListener("progress", ({ detail }) => say(detail.words, detail.share));

    if (isFile && button) {
      const why = document.createElement("p");
      why.className = "live-file";
      why.textContent = "This page was opened as a file, where a browser lets no Python start. Its stored figures answer; for the rest, serve the folder (make serve) or read the book on a site.";
      button.replaceWith();
      form.after(why);
    }
    box.classList.add("on");
  }

  const all = () => document.querySelectorAll(".live").forEach(mount);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all); else all();
})();

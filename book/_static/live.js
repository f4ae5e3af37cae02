// Live examples. The page already holds the figure, computed by the package when the book was built, and the figures of
// the other states where these are few. On a click the same function of the same package runs here, in Pyodide.
// Nothing is fetched before that click. The markup is written by serving_or.tools.live.
const here = new URL(".", import.meta.url);
let python; // one interpreter for all examples of a page

async function start(say) {
  const config = await (await fetch(new URL("live.json", here))).json();
  say("Loading Python …");
  const { loadPyodide } = await import(config.pyodide + "pyodide.mjs");
  const py = await loadPyodide({ indexURL: config.pyodide });
  say("Loading the package …");
  const wheel = await fetch(new URL(config.wheel, here));
  py.unpackArchive(await wheel.arrayBuffer(), "wheel");
  return py;
}

// Python's traceback is long; its last line says what went wrong.
const lastLine = (error) => String(error.message ?? error).trim().split("\n").pop();

function mount(box) {
  const find = (name) => box.querySelector(name);
  const [controls, button, said, out] = ["controls", "start", "said", "out"].map((n) => find(`.live-${n}`));
  const states = JSON.parse(find(".live-states").textContent);
  const inputs = [...controls.querySelectorAll("[name]")];
  const say = (text) => { said.textContent = text; };
  let answer; // set once Python runs

  const values = () => Object.fromEntries(inputs.map((i) =>
    [i.name, i.type === "checkbox" ? i.checked : i.type === "range" ? Number(i.value) : JSON.parse(i.value)]));

  function draw() {
    const state = values();
    for (const i of inputs) if (i.type === "range") i.nextElementSibling.value = i.value;
    const began = performance.now();
    try {
      const html = answer ? answer(box.dataset.call, JSON.stringify(state)) : states[JSON.stringify(Object.values(state))];
      if (html !== undefined) out.innerHTML = html;
      out.classList.toggle("stale", html === undefined);
      if (answer) say("Python is running in this page."); // also after an error
      else say(html === undefined ? "Press Run it live to compute this one; the figure shows another." : "");
    } catch (error) {
      say(lastLine(error));
    }
    box.dataset.ms = (performance.now() - began).toFixed(1);
  }

  let waiting = 0; // draw once a frame, whatever the number of events
  controls.addEventListener("input", () => { waiting ||= requestAnimationFrame(() => { waiting = 0; draw(); }); });
  controls.addEventListener("submit", (event) => event.preventDefault());

  button.addEventListener("click", async () => {
    button.disabled = true;
    box.dataset.state = "starting";
    try {
      const py = await (python ??= start(say));
      say("Loading what the example needs …");
      await py.loadPackage(box.dataset.packages.split(" "));
      answer = py.pyimport("serving_or.tools.live").answer;
      box.dataset.state = "running";
      button.hidden = true;
      draw();
      inputs[0]?.focus();
    } catch (error) {
      python = answer = undefined;
      button.disabled = false;
      box.dataset.state = "failed";
      say(`Python could not start here (${lastLine(error)}); the figure is the one computed with the book.`);
    }
  });

  box.classList.add("on");
}

document.querySelectorAll(".live").forEach(mount);

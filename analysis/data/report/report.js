"use strict";
(function () {
  const root = document.documentElement;
  const read = (id) => { const node = document.getElementById(id); return node ? JSON.parse(node.textContent) : null; };
  const figures = read("data-figures"), colours = read("data-colours"), trees = read("data-trees");

  // Light and dark.
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const isDark = () => (chosen === null ? prefersDark.matches : chosen === "dark");
  function setTheme() { root.dataset.theme = isDark() ? "dark" : "light"; document.querySelectorAll(".plot.drawn").forEach(draw); }
  document.getElementById("theme").addEventListener("click", () => { chosen = isDark() ? "light" : "dark"; setTheme(); });
  prefersDark.addEventListener("change", setTheme);

  // Charts are drawn when they come into view.
  function themed(figure) {
    if (!isDark()) return JSON.parse(JSON.stringify(figure));
    let text = JSON.stringify(figure);
    colours.light.forEach((light, place) => {
      const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(",");
      text = text.split(light).join(colours.dark[place]).split("rgba(" + rgb(light)).join("rgba(" + rgb(colours.dark[place]));
    });
    return JSON.parse(text);
  }
  function draw(div) {
    const figure = themed(figures[div.dataset.figure]);
    const style = getComputedStyle(root);
    const of = (name) => style.getPropertyValue(name).trim();
    const layout = figure.layout;
    layout.font = Object.assign({}, layout.font, { color: of("--text"), family: getComputedStyle(document.body).fontFamily });
    Object.keys(layout).filter((key) => /^[xy]axis/.test(key)).forEach((axis) => {
      layout[axis] = Object.assign({ gridcolor: of("--line"), linecolor: of("--soft"), tickcolor: of("--soft"), ticks: "outside" }, layout[axis]);
    });
    layout.hoverlabel = { bgcolor: of("--card"), bordercolor: of("--line"), font: { color: of("--text") } };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: of("--soft"), activecolor: of("--text") };
    layout.height = parseInt(div.dataset.height, 10);
    const narrow = div.clientWidth < 560;
    if (narrow) {
      layout.margin = Object.assign({}, layout.margin, { l: 48, r: 6 });
      layout.font.size = 11;
      layout.legend = Object.assign({}, layout.legend, { font: { size: 10 } });
      inLines(figure, layout, div.clientWidth);
      stackPanels(layout);
    }
    div.classList.add("drawn");
    const room = layout.margin.t + 40;
    return Plotly.react(div, figure.data, layout, { responsive: true, displaylogo: false, displayModeBar: narrow ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] }).then(() => {
      // A legend of many lines makes the chart higher, not the picture smaller.
      const above = div._fullLayout._size.t - room;
      return above > 0 ? Plotly.relayout(div, { height: layout.height + Math.round(above) }) : div;
    });
  }
  // On a phone the titles of axes take several lines, and panels stand below each other.
  function inLines(figure, layout, width) {
    const rows = figure.data.some((one) => one.y && typeof one.y[0] === "string");
    Object.keys(layout).filter((key) => /^[xy]axis/.test(key) && layout[key].title && layout[key].title.text).forEach((key) => {
      const most = key[0] === "x" ? Math.floor((width - (rows ? 190 : 60)) / 6) : 34;
      const lines = [""];
      layout[key].title.text.split(" ").forEach((word) => {
        if (lines[lines.length - 1] && lines[lines.length - 1].length + word.length >= most) lines.push("");
        lines[lines.length - 1] += (lines[lines.length - 1] ? " " : "") + word;
      });
      layout[key].title = Object.assign({}, layout[key].title, { text: lines.join("<br>") });
    });
  }
  function stackPanels(layout) {
    const panels = Object.keys(layout).filter((key) => /^xaxis/.test(key)).map((key) => key.slice(5));
    if (panels.length < 2) return;
    const height = 230, total = height * panels.length;
    panels.forEach((panel, place) => {
      const top = 1 - place / panels.length - 34 / total;
      layout["xaxis" + panel].domain = [0, 1];
      layout["yaxis" + panel] = Object.assign({}, layout["yaxis" + panel], { domain: [top - (height - 90) / total, top], showticklabels: true });
      Object.assign(layout.annotations[place], { x: 0.5, y: top });
    });
    layout.height = total + 60;
    layout.legend.y = 1;
  }
  const plots = Array.from(document.querySelectorAll(".plot"));
  function drawAll() { plots.filter((one) => !one.classList.contains("drawn")).forEach(draw); }
  setTheme();
  if ("IntersectionObserver" in window) {
    const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
      if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
    }), { rootMargin: "400px" });
    plots.forEach((one) => seen.observe(one));
  } else { drawAll(); }
  window.addEventListener("beforeprint", drawAll);

  // The numbers of a chart, for those who read rather than look.
  function numbers(figure) {
    const table = document.createElement("table");
    const row = (cells, tag) => {
      const line = table.insertRow();
      cells.forEach((value, place) => {
        const cell = document.createElement(place === 0 || tag === "th" ? "th" : "td");
        cell.textContent = typeof value === "number" ? String(Math.round(value * 1e4) / 1e4) : String(value).replace(/<br>/g, "");
        line.appendChild(cell);
      });
    };
    row(["series", (figure.layout.xaxis.title || {}).text || "x", (figure.layout.yaxis.title || {}).text || "y"], "th");
    figure.data.filter((one) => one.hoverinfo !== "skip").forEach((one) => {
      one.x.forEach((x, place) => row([one.name || "", x, one.y[place]], "td"));
    });
    return table;
  }
  document.querySelectorAll("details.numbers").forEach((details) => details.addEventListener("toggle", () => {
    const place = details.querySelector(".scroll");
    if (details.open && !place.firstChild) place.appendChild(numbers(figures[details.dataset.figure]));
  }));

  // The command.
  const command = document.getElementById("command"), copied = document.getElementById("copied");
  function selectCommand() {
    const range = document.createRange();
    range.selectNodeContents(command);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }
  document.getElementById("copy").addEventListener("click", () => {
    const text = command.textContent;
    const byHand = () => {
      selectCommand();
      const done = document.execCommand && document.execCommand("copy");
      copied.textContent = done ? "copied" : "selected: copy it with the keyboard";
    };
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(text).then(() => { copied.textContent = "copied"; }, byHand);
    } else { byHand(); }
  });

  if (trees && trees.texts.length) explorer(trees);

  // Trees side by side.
  function explorer(values) {
    const box = document.getElementById("explorer");
    const SVG = "http://www.w3.org/2000/svg", WIDTH = 112, HEIGHT = 26, LONGEST = 12;
    const find = (name) => box.querySelector("[data-part=" + name + "]");
    const pick = { text: find("text"), left: find("left"), right: find("right") };
    const state = { text: 0, at: 0, left: Math.min(1, values.policies.length - 1), right: values.policies.length > 2 ? 2 : 0 };
    const word = (place) => values.tokens[place];
    const visible = (text) => { const shown = text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ /, "·"); return shown === "" ? "∅" : shown; };
    const quoted = (place) => "“" + visible(word(place)) + "”";
    const option = (select, names) => names.forEach((name, place) => select.add(new Option(name, String(place))));
    option(pick.text, values.texts.map((one) => one.name));
    option(pick.left, values.policies);
    option(pick.right, values.policies);
    const sides = ["left", "right"];
    const text = () => values.texts[state.text];
    const roundsOf = (side) => text().rounds[state[side]];
    const starts = (side) => Object.entries(roundsOf(side)).filter(([, one]) => one[5]).map(([at]) => Number(at));

    function show() {
      pick.text.value = String(state.text);
      sides.forEach((side) => { pick[side].value = String(state[side]); });
      const own = starts("left");
      if (!own.includes(state.at)) state.at = own.filter((at) => at <= state.at).pop() ?? own[0] ?? 0;
      reading(own);
      const said = sides.map((side) => pane(side));
      find("status").textContent = "Round " + (own.indexOf(state.at) + 1) + " of " + own.length + " of " + values.policies[state.left] +
        ", after token " + (state.at + 1) + " of " + text().tokens.length + ": " + said.join("; ") + ".";
      find("detail").textContent = "";
      find("previous").disabled = own.indexOf(state.at) <= 0;
      find("next").disabled = own.indexOf(state.at) >= own.length - 1;
    }

    function reading(own) {
      const place = find("reading"), one = text(), rounds = roundsOf("left");
      place.textContent = "";
      const span = (content, name) => { const made = document.createElement("span"); made.textContent = content; made.className = name; place.appendChild(made); return made; };
      const joined = (tokens) => tokens.map(word).join(values.words ? "" : " ");
      span("… " + joined(one.start), "prompt");
      const isStart = new Set(own);
      const reach = rounds[state.at] ? rounds[state.at][4].length : 0;
      one.tokens.forEach((token, at) => {
        const made = span(word(token) + (values.words ? "" : " "), "token");
        if (isStart.has(at)) { made.classList.add("starts"); made.title = "a round starts here"; made.addEventListener("click", () => { state.at = at; show(); }); }
        if (at === state.at) made.classList.add("now");
        if (at > state.at && at <= state.at + reach) made.classList.add("accepted");
      });
      const now = place.querySelector(".now");
      if (now) place.scrollTop = Math.max(0, now.offsetTop - place.offsetTop - place.clientHeight / 2);
    }

    function pane(side) {
      const name = values.policies[state[side]], one = roundsOf(side)[state.at];
      find(side + "-name").textContent = name;
      const drawing = find(side + "-drawing"), said = find(side + "-said");
      drawing.textContent = "";
      if (!one) {
        said.textContent = "It has no round here, and its tree depends on its earlier rounds, so there is none to show.";
        return name + ": no round here";
      }
      const [parents, tokens, probabilities, rows, path, begins, leftOut] = one;
      const next = text().tokens[state.at + path.length + 1];
      const last = path.length ? quoted(tokens[path[path.length - 1]]) : "the root";
      let words = "Accepts " + path.length + " of " + (parents.length - 1 + leftOut) + " drafted tokens";
      words += next === undefined ? "; the text ends." : "; stops at " + last + ", where the target says " + quoted(next) + ".";
      if (!begins) words += " None of its own rounds starts here.";
      if (leftOut) words += " " + leftOut + " of its nodes are not drawn.";
      said.textContent = words;
      drawing.appendChild(drawn(side, parents, tokens, probabilities, rows, path));
      return name + " accepts " + path.length + " of " + (parents.length - 1 + leftOut);
    }

    function drawn(side, parents, tokens, probabilities, rows, path) {
      const depths = [];
      parents.forEach((parent) => depths.push(parent < 0 ? 0 : depths[parent] + 1));
      const make = (tag, attributes) => { const node = document.createElementNS(SVG, tag); Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value)); return node; };
      const width = (Math.max(...depths) + 1) * WIDTH + 8, height = (Math.max(...rows) / 100 + 1) * HEIGHT + 12;
      const svg = make("svg", { width, height, viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": "Draft tree of " + values.policies[state[side]] + " with " + (parents.length - 1) + " drafted tokens" });
      const on = new Set([0, ...path]);
      const x = (node) => depths[node] * WIDTH + 6, y = (node) => rows[node] / 100 * HEIGHT + 18;
      parents.forEach((parent, node) => {
        if (parent < 0) return;
        const from = x(parent) + WIDTH - 26, to = x(node), middle = (from + to) / 2;
        const edge = make("path", { d: "M" + from + "," + y(parent) + " C" + middle + "," + y(parent) + " " + middle + "," + y(node) + " " + to + "," + y(node) });
        if (on.has(node)) edge.classList.add("on");
        svg.appendChild(edge);
      });
      parents.forEach((parent, node) => {
        const group = make("g", { "data-node": node });
        if (on.has(node)) group.classList.add("on");
        if (node === (path.length ? path[path.length - 1] : 0)) group.classList.add("last");
        group.appendChild(make("rect", { x: x(node), y: y(node) - 10, width: WIDTH - 26, height: 20, rx: 4 }));
        const label = make("text", { x: x(node) + 5, y: y(node) + 4 });
        const shown = visible(word(tokens[node]));
        label.textContent = shown.length > LONGEST - 1 ? shown.slice(0, LONGEST - 2) + "…" : shown;
        group.appendChild(label);
        const probability = probabilities[node] < 0 ? "not read" : (probabilities[node] / 1000).toFixed(3);
        const about = depths[node] === 0 ? "the root " + quoted(tokens[node]) :
          quoted(tokens[node]) + ", depth " + depths[node] + ", drafter's probability " + probability + (on.has(node) ? ", on the target's path" : ", not on the target's path");
        const title = make("title", {});
        title.textContent = about;
        group.appendChild(title);
        const tell = () => { find("detail").textContent = values.policies[state[side]] + ": " + about + "."; };
        group.addEventListener("pointerenter", tell);
        group.addEventListener("click", () => { box.querySelectorAll(".picked").forEach((other) => other.classList.remove("picked")); group.classList.add("picked"); tell(); });
        svg.appendChild(group);
      });
      return svg;
    }

    function step(by) {
      const own = starts("left"), place = own.indexOf(state.at) + by;
      if (place >= 0 && place < own.length) { state.at = own[place]; show(); }
    }
    function turn(by) {
      const place = state.text + by;
      if (place >= 0 && place < values.texts.length) { state.text = place; state.at = 0; show(); }
    }
    find("previous").addEventListener("click", () => step(-1));
    find("next").addEventListener("click", () => step(1));
    find("parting").addEventListener("click", () => {
      const other = roundsOf("right"), rounds = roundsOf("left");
      const parting = starts("left").filter((at) => at > state.at && other[at] && other[at][4].length !== rounds[at][4].length);
      if (parting.length) { state.at = parting[0]; show(); } else { find("status").textContent = "No later round of this text in which the two accept differently."; }
    });
    pick.text.addEventListener("change", () => { state.text = Number(pick.text.value); state.at = 0; show(); });
    sides.forEach((side) => pick[side].addEventListener("change", () => { state[side] = Number(pick[side].value); show(); }));
    box.addEventListener("keydown", (event) => {
      if (event.target.tagName === "SELECT" || event.altKey || event.ctrlKey || event.metaKey) return;
      const act = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => turn(1), ArrowUp: () => turn(-1) }[event.key];
      if (act) { event.preventDefault(); act(); }
    });
    show();
  }
})();

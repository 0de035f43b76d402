// The result, and the five best map views.
import { getImage } from "./api.js";
import { distance, heading, metres, position } from "./geo.js";

const $ = (id) => document.getElementById(id);
const LEGEND = { fix: "fix, 95 % circle", view: "best views", drone: "drone", truth: "true position" };

function fact(title, value, note = "") {
  const row = document.createElement("div");
  const dt = document.createElement("dt");
  dt.textContent = title;
  const dd = document.createElement("dd");
  dd.textContent = value;
  row.append(dt, dd);
  if (note) row.title = note;
  return row;
}

export class ResultPanel {
  constructor(map, index) {
    this.map = map;
    this.version = index.version;
    this.oneMap = index.maps.length < 2;
    this.drawn = 0;
    $("copy").addEventListener("click", async () => {
      await navigator.clipboard.writeText($("copy").dataset.text);
      $("copy").textContent = "Copied";
      setTimeout(() => { $("copy").textContent = "Copy"; }, 1500);
    });
  }

  set(state, title, line, facts = []) {
    clearInterval(this.clock);
    $("verdict").dataset.state = state;
    $("verdict-title").textContent = title;
    $("verdict-line").textContent = line;
    $("facts").replaceChildren(...facts);
    $("copy").hidden = state !== "fix" || !navigator.clipboard;
  }

  say(text) {
    $("status").textContent = text;
  }

  busy(line) {
    const started = Date.now();
    this.set("busy", "Searching…", line);
    this.say(line);
    this.clock = setInterval(() => {
      const seconds = Math.round((Date.now() - started) / 1000);
      if (seconds > 2) $("verdict-title").textContent = `Searching… ${seconds} s`;
    }, 1000);
  }

  problem(message) {
    const text = message.charAt(0).toUpperCase() + message.slice(1);
    this.set("error", "Something went wrong", text);
    this.say(`Error: ${text}`);
    this.clear();
  }

  clear() {
    this.map?.clear();
    this.showViews([]);
    $("legend").hidden = true;
  }

  show(answer, truth, weather) {
    if (answer.found) this.showFix(answer, truth);
    else this.showNone(answer, weather);
    this.map?.show(answer, truth);
    this.showLegend(answer, truth);
    this.showViews(answer.candidates.slice(0, 5));
  }

  showFix(answer, truth) {
    const where = position(answer.latitude, answer.longitude);
    const facts = [
      fact("95 % radius", metres(answer.radius_m), answer.calibrated ? "fitted on labelled photos" : "the default: the index is not calibrated"),
      fact("Confidence", `${Math.round(100 * answer.confidence)} %`, "probability that the true position is within 50 m"),
    ];
    if (answer.heading_deg !== null) facts.push(fact("Heading", heading(answer.heading_deg), "compass direction of the photo's upper edge"));
    if (answer.ground_m !== null) facts.push(fact("Width", metres(answer.ground_m), "width of the ground in the photo"));
    if (truth) facts.push(fact("True error", metres(distance(answer, truth)), "distance to the true position"));
    facts.push(fact("Time", `${answer.seconds.toFixed(answer.seconds < 10 ? 2 : 0)} s`));
    const drone = answer.drone_latitude !== null ? ` The drone was at ${position(answer.drone_latitude, answer.drone_longitude)}.` : "";
    const doubt = answer.calibrated ? "" : " Radius and confidence are a cautious default: this index is not calibrated.";
    this.set("fix", where, `The ground at the centre of the image.${drone}${doubt}`, facts);
    $("copy").dataset.text = `${answer.latitude.toFixed(6)}, ${answer.longitude.toFixed(6)}`;
    this.say(`Found at ${where}, within ${metres(answer.radius_m)}, confidence ${Math.round(100 * answer.confidence)} percent.`);
  }

  showNone(answer, weather) {
    const reason = answer.reason ? answer.reason.charAt(0).toUpperCase() + answer.reason.slice(1) : "No view of the map agrees with it";
    const inWeather = weather ? ` In ${weather.toLowerCase()} it is not recognised.` : "";
    this.set("none", "Not in this map", `${reason.replace(/\.?$/, ".")}${inWeather}`, [fact("Time", `${answer.seconds.toFixed(2)} s`)]);
    this.say(`Not in this map. ${reason}.`);
  }

  showLegend(answer, truth) {
    const shown = [];
    if (answer.found) shown.push("fix");
    if (answer.candidates.length) shown.push("view");
    if (answer.drone_latitude !== null) shown.push("drone");
    if (truth) shown.push("truth");
    $("legend").hidden = !this.map || shown.length === 0;
    $("legend").replaceChildren(...shown.map((kind) => {
      const item = document.createElement("li");
      item.className = `legend-${kind}`;
      item.textContent = LEGEND[kind];
      return item;
    }));
  }

  showViews(candidates) {
    this.drawn += 1;
    const drawing = this.drawn;
    for (const image of $("views").querySelectorAll("img[src]")) URL.revokeObjectURL(image.src);
    if (!candidates.length) {
      const empty = document.createElement("li");
      empty.className = "views-empty";
      empty.textContent = "The five map views most similar to the photo will appear here.";
      $("views").replaceChildren(empty);
      return;
    }
    $("views").replaceChildren(...candidates.map((candidate, rank) => this.viewItem(candidate, rank, drawing)));
  }

  viewItem({ footprint, score, map_name: mapName }, rank, drawing) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "view";
    const image = document.createElement("img");
    image.alt = "";
    const number = document.createElement("span");
    number.className = "view-rank";
    number.textContent = String(rank + 1);
    const value = document.createElement("span");
    value.className = "view-score";
    value.textContent = score.toFixed(3);
    const meter = document.createElement("span");
    meter.className = "meter";
    meter.style.setProperty("--share", String(Math.min(1, Math.max(0, score))));
    const place = document.createElement("span");
    place.className = "view-place";
    place.textContent = this.oneMap ? `${metres(footprint.metres)} wide` : `${metres(footprint.metres)} wide · ${mapName}`;
    place.title = mapName;
    const frame = document.createElement("span");
    frame.className = "view-image";
    frame.append(image, number);
    const spoken = (text) => {
      const hidden = document.createElement("span");
      hidden.className = "visually-hidden";
      hidden.textContent = text;
      return hidden;
    };
    button.append(spoken("View "), frame, spoken(", score "), value, meter, spoken(", "), place, spoken(` of ${mapName}: show on the map`));
    const { latitude, longitude, metres: edge, rotation } = footprint;
    const query = new URLSearchParams({ latitude, longitude, metres: edge, rotation, size: 256, v: this.version });
    getImage(`/v1/view?${query}`)
      .then((blob) => { if (blob && drawing === this.drawn) image.src = URL.createObjectURL(blob); })
      .catch(() => {});
    for (const on of ["mouseenter", "focus"]) button.addEventListener(on, () => this.map?.highlight(rank));
    for (const off of ["mouseleave", "blur"]) button.addEventListener(off, () => this.map?.highlight(-1));
    button.addEventListener("click", () => this.map?.highlight(rank, true));
    item.append(button);
    return item;
  }
}

// The page: sends the photo, weather and known facts to the server and shows the response.
import { Problem, getJson, sendPhoto, setKey } from "./api.js";
import { KnownPanel } from "./known.js";
import { openMap } from "./map.js";
import { PhotoPanel } from "./photo.js";
import { ResultPanel } from "./result.js";
import { WeatherPanel, judge } from "./weather.js";

const $ = (id) => document.getElementById(id);

/** Load /v1/index, asking for the key until it is right. */
async function openIndex() {
  for (let first = true; ; first = false) {
    try {
      return await getJson("/v1/index");
    } catch (problem) {
      if (!(problem instanceof Problem) || problem.status !== 401) throw problem;
      setKey(await askForKey(first ? "" : "That key is not correct."));
    }
  }
}

function askForKey(message) {
  $("key-problem").textContent = message;
  $("key").value = "";
  const dialog = $("key-dialog");
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  dialog.showModal();
  return new Promise((resolve) => {
    $("key-form").addEventListener("submit", () => resolve($("key").value), { once: true });
  });
}

class Page {
  constructor(index, map) {
    this.index = index;
    this.photo = null;
    this.stop = new AbortController();
    this.clear = null;
    this.result = new ResultPanel(map, index);
    this.photos = new PhotoPanel(
      index.limits,
      (title) => { this.result.busy(`Opening ${title}.`); return this.restart(); },
      (photo) => this.begin(photo),
      (message) => this.result.problem(message),
    );
    this.weather = new WeatherPanel(index.weathers, index.profiles, () => this.run(), () => this.tryAll());
    this.known = new KnownPanel(map, () => this.rerun(), () => this.rerun());
  }

  /** Cancel the requests under way. */
  restart() {
    this.stop.abort(new DOMException("superseded", "AbortError"));
    this.stop = new AbortController();
    this.trying = false;
    this.weather.trying(false);
    return this.stop.signal;
  }

  async begin(photo) {
    this.photo = photo;
    this.clear = null;
    this.weather.reset();
    this.restart();
    const seen = await this.photos.show(photo);
    if (this.photo !== photo) return;
    this.seen = seen;
    this.run();
  }

  /** Known facts changed: discard the results so far and run again. */
  rerun() {
    if (!this.photo) return;
    this.clear = null;
    this.weather.reset();
    this.run();
  }

  async locate(weather, signal) {
    const onBusy = (seconds) => this.result.say(`The server is busy; trying again in ${seconds} seconds.`);
    const fields = { ...this.weather.fields(weather), ...this.known.fields() };
    const answer = await (await sendPhoto("/v1/locate", this.photo, fields, { signal, onBusy })).json();
    if (weather === "normal") this.clear = answer;
    this.weather.note(weather, judge(answer, this.clear));
    return answer;
  }

  async run() {
    if (!this.photo) return;
    const signal = this.restart();
    const { weather } = this.weather;
    this.result.busy(`Comparing ${this.photo.name} with ${this.index.views.toLocaleString("en")} views of the map.`);
    try {
      const answer = await this.locate(weather, signal);
      this.result.show(answer, this.photo.truth, weather === "normal" ? "" : this.weather.title());
      this.refreshPhoto(signal, weather !== "normal" || !this.seen);
      await this.refreshParts(signal);
    } catch (problem) {
      if (signal.aborted) return;
      this.fail(problem);
    }
  }

  fail(problem) {
    this.result.problem([415, 422].includes(problem.status) ? `${problem.message} (${this.photo.name})` : problem.message);
    this.photos.partsFailed();
    if (!this.seen) this.photos.setPhotoVisible(false);
  }

  /** The photo as the model sees it: with weather, or converted if the browser cannot display its format. */
  async refreshPhoto(signal, fromServer) {
    const title = this.weather.weather === "normal" ? "Photo" : `Photo in ${this.weather.title().toLowerCase()}`;
    if (!fromServer) {
      this.photos.showWeather(this.photo.blob, title);
      return;
    }
    try {
      const response = await sendPhoto("/v1/weather", this.photo, this.weather.fields(), { signal });
      this.photos.showWeather(await response.blob(), title);
    } catch (problem) {
      if (!signal.aborted) this.photos.showWeather(null, title);
    }
  }

  async refreshParts(signal) {
    this.photos.showParts(null);
    try {
      const response = await sendPhoto("/v1/parts", this.photo, this.weather.fields(), { signal });
      this.photos.showParts(await response.blob());
    } catch (problem) {
      if (!signal.aborted) this.photos.partsFailed();
    }
  }

  /** Try one weather after the other, until the button or any other choice stops it. */
  async tryAll() {
    if (!this.photo) return;
    if (this.trying) {
      this.restart();
      return;
    }
    const signal = this.restart();
    this.trying = true;
    this.weather.trying(true);
    try {
      for (const { name } of this.index.weathers) {
        this.weather.note(name, { state: "busy", text: "…" });
        await this.locate(name, signal);
      }
      this.result.say($("weather-summary").textContent);
    } catch (problem) {
      if (!signal.aborted) this.fail(problem);
    }
    if (this.stop.signal === signal) {
      this.trying = false;
      this.weather.trying(false);
    }
  }
}

async function open() {
  const index = await openIndex();
  const views = `${index.views.toLocaleString("en")} views`;
  $("index-line").textContent = `${index.name} · ${views} · ${index.calibrated ? "calibrated" : "not calibrated"}`;
  document.title = `${index.name} · SkyPart`;
  const map = await openMap($("map"), index);
  $("map-note").textContent = map ? index.attribution : "The map library is not installed: run `python -m skypart.serve.assets` once. Everything else works.";
  $("map-note").hidden = !$("map-note").textContent;
  $("map-note").classList.toggle("missing", !map);
  const page = new Page(index, map);
  page.photos.showExamples(await getJson("/v1/examples"), index.version);
  document.documentElement.dataset.ready = "true";
}

open().catch((problem) => {
  $("index-line").textContent = "not available";
  $("verdict").dataset.state = "error";
  $("verdict-title").textContent = "The index cannot be opened";
  $("verdict-line").textContent = problem.message;
});

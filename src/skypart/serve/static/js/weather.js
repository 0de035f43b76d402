// Ten conditions, two profiles; each chip shows whether the fix held.
import { distance, metres } from "./geo.js";

const $ = (id) => document.getElementById(id);
const SUN = '<circle cx="12" cy="12" r="4.200"/><path d="M12 2.500v2.500m0 14v2.500M2.500 12H5m14 0h2.500M5.300 5.300 7 7m10 10 1.700 1.700m0-13.400L17 7M7 17l-1.700 1.700"/>';
const CLOUD = '<path d="M7 14.500a3.700 3.700 0 0 1 .2-7.400 5 5 0 0 1 9.500 1.100 3.200 3.200 0 0 1 .3 6.300z"/>';
const ICONS = {
  normal: SUN,
  fog: '<path d="M4 7h13M7 11h13M4 15h12M8 19h11"/>',
  rain: `${CLOUD}<path d="m8.500 17.500-1 3m5-3-1 3m5-3-1 3"/>`,
  snow: '<path d="M12 3v18M4.200 7.500l15.600 9m0-9-15.600 9M9.500 4.500 12 7l2.500-2.500m-5 15L12 17l2.500 2.500"/>',
  fog_rain: `${CLOUD}<path d="M4 18h5m2.500-.500-1 3.500m5-3.500-1 3.500M4 21h3"/>`,
  fog_snow: `${CLOUD}<path d="M4 18h4m-4 3h6m3.500-2.500v.1m4-.6v.1m-1.500 2.400v.1"/>`,
  rain_snow: `${CLOUD}<path d="m8.500 17.500-1 3m5-3v.1m0 3v.1m4.500-3.200-1 3"/>`,
  dark: '<path d="M19.500 14.500A8 8 0 0 1 9.500 4.500a8 8 0 1 0 10 10z"/>',
  over_exposure: '<circle cx="12" cy="12" r="5.500" fill="currentColor"/><path d="M12 1.500v3m0 15v3M1.500 12h3m15 0h3M4.600 4.600l2 2m10.800 10.800 2 2m0-14.800-2 2M6.600 17.400l-2 2"/>',
  wind: '<path d="M3 9h11.500a2.700 2.700 0 1 0-2.600-3.500M3 13.500h15.500a2.700 2.700 0 1 1-2.600 3.500M3 18h7"/>',
};
const PROFILE_NOTES = { paper: "parameters of the SkyPart paper", weatherprompt: "parameters of WeatherPrompt's released code" };

/** Compare a result in weather with the clear fix: { state, text } for a chip. The text is always the shift from it. */
export function judge(answer, clear) {
  if (!answer.found) return { state: "lost", text: "no fix" };
  if (answer === clear) return { state: "held", text: "clear fix" };
  if (!clear?.found) return { state: "held", text: "a fix" };
  const shift = distance(answer, clear);
  const state = shift <= Math.max(answer.radius_m, clear.radius_m) ? "held" : "moved";
  return { state, text: `shift ${metres(shift)}` };
}

/** Radio buttons for `items`; `fill(label, item)` draws one. */
function radios(box, name, items, picked, changed, fill) {
  box.replaceChildren(...items.map((item) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = "radio";
    input.name = name;
    input.value = item.name;
    input.checked = item.name === picked;
    input.className = "visually-hidden";
    input.addEventListener("change", () => changed(item.name));
    label.append(input);
    fill(label, item);
    return label;
  }));
}

export class WeatherPanel {
  constructor(weathers, profiles, changed, tryAll) {
    this.weathers = weathers;
    this.weather = "normal";
    this.profile = profiles[0];
    this.notes = new Map();
    const profileItems = profiles.map((name) => ({ name }));
    radios($("profiles"), "profile", profileItems, this.profile, (name) => {
      this.profile = name;
      this.redraw();
      changed();
    }, (label, item) => {
      label.append(item.name);
      label.title = PROFILE_NOTES[item.name] ?? item.name;
    });
    radios($("weathers"), "weather", weathers, this.weather, (name) => { this.weather = name; changed(); }, (label, item) => {
      label.className = "weather";
      label.dataset.name = item.name;
      const icon = document.createElement("span");
      icon.className = "weather-icon";
      icon.innerHTML = `<svg aria-hidden="true" viewBox="0 0 24 24">${ICONS[item.name] ?? SUN}</svg>`;
      const title = document.createElement("span");
      title.className = "weather-title";
      title.textContent = item.title.replace("+", " + ");
      const note = document.createElement("span");
      note.className = "weather-note";
      label.append(icon, title, note);
    });
    $("try-all").addEventListener("click", tryAll);
  }

  title() {
    return this.weathers.find((each) => each.name === this.weather).title.replace("+", " + ");
  }

  fields(weather = this.weather) {
    return weather === "normal" ? {} : { weather, profile: this.profile };
  }

  reset() {
    this.notes.clear();
    this.redraw();
    $("try-all").disabled = false;
  }

  /** The key of a result; normal weather is the same in both profiles. */
  key(weather, profile = this.profile) {
    return weather === "normal" ? weather : `${profile}/${weather}`;
  }

  note(weather, verdict) {
    this.notes.set(this.key(weather), verdict);
    this.redraw();
  }

  redraw() {
    let known = 0;
    let held = 0;
    for (const label of $("weathers").children) {
      const verdict = this.notes.get(this.key(label.dataset.name));
      label.dataset.state = verdict?.state ?? "";
      label.querySelector(".weather-note").textContent = verdict?.text ?? "";
      known += verdict && verdict.state !== "busy" ? 1 : 0;
      held += verdict?.state === "held" ? 1 : 0;
    }
    $("weather-summary").textContent = known < 2
      ? "Apply weather to the photo. The badge shows the shift from the clear fix."
      : `The fix holds in ${held} of ${known} tried. Badges show the shift from the clear fix.`;
  }

  /** While all ten are tried, the button stops it. */
  trying(on) {
    $("try-all").textContent = on ? "Stop" : "Try all ten";
    if (!on) for (const [key, verdict] of this.notes) if (verdict.state === "busy") this.notes.delete(key);
    this.redraw();
  }
}

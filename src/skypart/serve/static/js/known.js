// What the user knows beforehand: an approximate position, and facts about the camera.
import { metres } from "./geo.js";

const $ = (id) => document.getElementById(id);
const LIMITS = {
  latitude: [-90, 90], longitude: [-180, 180], radius_m: [1, 2e7], heading_deg: [-360, 360],
  altitude_m: [0.1, 20_000], tilt_deg: [0.1, 90], fov_deg: [0.1, 179.9],
};
const DEFAULT_RADIUS_M = 300;

export class KnownPanel {
  /** `changed()` is called when a field changes, `searched()` when the form is submitted. */
  constructor(map, changed, searched) {
    this.form = $("known-form");
    this.map = map;
    this.changed = changed;
    this.stopPicking = null;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.check()) searched();
    });
    this.form.addEventListener("reset", () => setTimeout(() => { this.check(); changed(); }));
    this.form.addEventListener("change", () => this.check());
    $("pick").disabled = $("use-centre").disabled = !map;
    $("pick").addEventListener("click", () => (this.stopPicking ? this.endPicking() : this.beginPicking()));
    $("use-centre").addEventListener("click", () => {
      const { latitude, longitude } = map.center();
      this.setPlace(latitude, longitude);
    });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") this.endPicking(); });
  }

  beginPicking() {
    $("pick").setAttribute("aria-pressed", "true");
    $("pick").textContent = "Click on the map…";
    const stop = this.map.pick((latitude, longitude) => { this.endPicking(); this.setPlace(latitude, longitude); });
    this.stopPicking = stop;
    if (matchMedia("(max-width: 960px)").matches) $("map").scrollIntoView({ block: "center" });
  }

  endPicking() {
    this.stopPicking?.();
    this.stopPicking = null;
    $("pick").setAttribute("aria-pressed", "false");
    $("pick").textContent = "Pick on the map";
  }

  setPlace(latitude, longitude) {
    this.form.latitude.value = latitude.toFixed(6);
    this.form.longitude.value = longitude.toFixed(6);
    if (!this.form.radius_m.value) this.form.radius_m.value = String(DEFAULT_RADIUS_M);
    if (this.check()) this.changed();
  }

  number(name) {
    const text = this.form[name].value.trim().replace(",", ".");
    return text === "" ? null : Number(text);
  }

  /** Mark invalid fields and draw the prior; returns whether all fields are valid. */
  check() {
    let valid = true;
    for (const [name, [low, high]] of Object.entries(LIMITS)) {
      const value = this.number(name);
      let error = value === null || (value >= low && value <= high) ? "" : `between ${low} and ${high}`;
      const partner = { latitude: "longitude", longitude: "latitude" }[name];
      if (!error && partner && value === null && this.number(partner) !== null) error = `${name} is missing`;
      this.form[name].setCustomValidity(error);
      this.form[name].toggleAttribute("aria-invalid", Boolean(error));
      if (error && valid) this.form[name].reportValidity();
      valid &&= !error;
    }
    const prior = valid ? this.prior() : null;
    this.map?.showPrior(prior);
    this.summarise(prior);
    return valid;
  }

  prior() {
    const latitude = this.number("latitude");
    const longitude = this.number("longitude");
    if (latitude === null || longitude === null) return null;
    return { latitude, longitude, radius_m: this.number("radius_m") ?? DEFAULT_RADIUS_M };
  }

  summarise(prior) {
    const camera = ["heading_deg", "altitude_m", "tilt_deg", "fov_deg"].filter((name) => this.number(name) !== null);
    const parts = [];
    if (prior) parts.push(`within ${metres(prior.radius_m)}`);
    if (camera.length) parts.push(`${camera.length} camera ${camera.length === 1 ? "fact" : "facts"}`);
    $("known-summary").textContent = parts.join(", ") || "optional";
  }

  fields() {
    const camera = Object.fromEntries(["heading_deg", "altitude_m", "tilt_deg", "fov_deg"].map((name) => [name, this.number(name)]));
    return { ...this.prior(), ...camera, exif: this.form.exif.checked ? "true" : "false" };
  }
}

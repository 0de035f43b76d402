// The page of a live flight: moving map, state, radius, and the last frame beside the map where it matched.
import { getImage, getJson } from "./api.js";
import { openMap } from "./map.js";
import { metres } from "./geo.js";

const EVERY_MS = 400;
const STYLES = { tracking: "#ffb52e", coasting: "#8ed1ff", lost: "#ff6b5e" };
const byId = (id) => document.getElementById(id);

class Flight {
  constructor(view) {
    this.view = view;
    this.last = 0;
    this.frame = 0;
    this.line = null;
    this.before = null;
    if (view) {
      const { L, map } = view;
      this.path = L.layerGroup().addTo(map);
      this.circle = L.circle([0, 0], { radius: 1, color: STYLES.tracking, weight: 2 });
      this.limit = L.circle([0, 0], { radius: 1, color: "#ffffff", weight: 1, dashArray: "4 4", fill: false });
      this.spot = L.circleMarker([0, 0], { radius: 6, color: "#10201c", weight: 2, fillOpacity: 1, fillColor: STYLES.tracking });
    }
  }

  show({ flying, ended, report, path, frame, fix }) {
    byId("line").textContent = ended ? "The flight is over." : flying ? `at ${report.time}` : "Waiting for a flight: skypart fly --page";
    if (!report) return;
    byId("state").textContent = report.state;
    byId("state").dataset.state = report.state;
    byId("operator").hidden = !report.ask_operator;
    byId("problem").hidden = !report.problem;
    byId("problem").textContent = report.problem;
    const length = (value) => (value === null ? "–" : metres(value));
    const seconds = (value) => (value === null ? "–" : `${value.toFixed(1)} s ago`);
    byId("radius").textContent = length(report.radius_m);
    byId("protection").textContent = length(report.protection_m);
    byId("source").textContent = report.source || "–";
    byId("anchor").textContent = seconds(report.anchor_age_s);
    byId("age").textContent = seconds(report.fix_age_s);
    const speed = Math.hypot(report.velocity_east ?? 0, report.velocity_north ?? 0);
    byId("speed").textContent = report.velocity_east === null ? "–" : `${speed.toFixed(1)} m/s`;
    byId("frames").textContent = `${report.located} located, ${report.dropped} dropped`;
    this.draw(report, path);
    if (frame !== this.frame) {
      this.frame = frame;
      this.images(fix).catch(() => {});
    }
  }

  draw(report, path) {
    for (const [number, latitude, longitude, state] of path) {
      this.last = number;
      if (!this.view) continue;
      const here = latitude === null ? null : this.view.at(latitude, longitude);
      if (here && this.before) this.view.L.polyline([this.before, here], { color: STYLES[state], weight: 3 }).addTo(this.path);
      this.before = here;
    }
    if (!this.view) return;
    const { map } = this.view;
    if (report.latitude === null) {
      for (const layer of [this.circle, this.limit, this.spot]) layer.remove();
      return;
    }
    const here = this.view.at(report.latitude, report.longitude);
    this.circle.setLatLng(here).setRadius(report.radius_m).setStyle({ color: STYLES[report.state] }).addTo(map);
    this.spot.setLatLng(here).setStyle({ fillColor: STYLES[report.state] }).addTo(map);
    if (report.protection_m === null) this.limit.remove();
    else this.limit.setLatLng(here).setRadius(report.protection_m).addTo(map);
    if (!map.getBounds().pad(-0.2).contains(here)) map.panTo(here, { animate: false });
  }

  async images(fix) {
    await put(byId("frame"), "/v1/fly/frame.jpg");
    const match = byId("match");
    if (!fix?.found || !fix.ground_m) {
      match.hidden = true;
      byId("match-text").textContent = fix?.reason || "no match";
      return;
    }
    const query = new URLSearchParams({
      latitude: fix.latitude, longitude: fix.longitude, metres: fix.ground_m, rotation: fix.heading_deg ?? 0, size: 320,
    });
    await put(match, `/v1/view?${query}`);
    byId("match-text").textContent = `${Math.round(fix.evidence?.inliers ?? 0)} matching points, ${metres(fix.radius_m)}`;
  }
}

async function put(image, path) {
  const blob = await getImage(path);
  if (!blob) return;
  URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(blob);
  image.hidden = false;
}

const index = await getJson("/v1/index");
const flight = new Flight(await openMap(byId("map"), index));
async function next() {
  try {
    flight.show(await getJson(`/v1/fly?after=${flight.last}`));
  } catch (error) {
    byId("line").textContent = error.message;
  }
  setTimeout(next, EVERY_MS);
}
next();

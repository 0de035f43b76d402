// The map: tiles of the index, the fix with its circle, the best views, the drone, the truth, the prior.
import { getImage } from "./api.js";
import { corners, nearLongitude } from "./geo.js";

const LIBRARY = "/static/vendor/leaflet-1.9.4/leaflet-src.esm.js";
const COLOURS = { fix: "#ffb52e", view: "#ffffff", prior: "#8ed1ff", casing: "#10201c" };
const RANKS = { drone: 500, fix: 1000, truth: 1500 };
const REDUCED_MOTION = matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A map in `element`, or null if the map library is not installed. */
export async function openMap(element, index) {
  let L;
  try {
    L = await import(LIBRARY);
  } catch {
    return null;
  }
  return new IndexMap(L, element, index);
}

/** Tiles are fetched by script, because an <img> cannot send the API key. */
function tileLayer(L, index, options) {
  const Layer = L.GridLayer.extend({
    createTile(coords, done) {
      const tile = document.createElement("img");
      tile.alt = "";
      tile.role = "presentation";
      const across = 2 ** coords.z;
      const x = ((coords.x % across) + across) % across;
      tile.stop = new AbortController();
      getImage(`/tiles/${coords.z}/${x}/${coords.y}.png?v=${index.version}`, tile.stop.signal)
        .then((blob) => {
          if (!blob) return done(null, tile);
          tile.onload = () => { URL.revokeObjectURL(tile.src); done(null, tile); };
          tile.onerror = () => done(new Error("damaged tile"), tile);
          tile.src = URL.createObjectURL(blob);
        })
        .catch((error) => done(error, tile));
      return tile;
    },
  });
  const layer = new Layer(options);
  layer.on("tileunload", ({ tile }) => tile.stop.abort());
  return layer;
}

class IndexMap {
  constructor(L, element, index) {
    this.L = L;
    const { south, west, north, east } = index.bounds;
    const right = east < west ? east + 360 : east;
    this.centre = (west + right) / 2;
    this.bounds = L.latLngBounds([south, west], [north, right]);
    const resolution = (156_543 * Math.cos((((south + north) / 2) * Math.PI) / 180)) / (index.gsd_m ?? 0.3);
    const native = Math.min(22, Math.max(1, Math.ceil(Math.log2(resolution))));
    this.map = L.map(element, {
      zoomSnap: 0.25, zoomDelta: 1, maxZoom: native + 2, attributionControl: false,
      zoomAnimation: !REDUCED_MOTION, fadeAnimation: !REDUCED_MOTION, markerZoomAnimation: !REDUCED_MOTION, maxBounds: this.bounds.pad(1.5),
    });
    tileLayer(L, index, { bounds: this.bounds, maxNativeZoom: native, maxZoom: native + 2, keepBuffer: 1 }).addTo(this.map);
    L.control.scale({ imperial: false }).addTo(this.map);
    this.map.getContainer().setAttribute("role", "region");
    this.result = L.layerGroup().addTo(this.map);
    this.priorLayer = L.layerGroup().addTo(this.map);
    this.squares = [];
    this.map.fitBounds(this.bounds, { animate: false });
    this.map.setMinZoom(Math.max(1, this.map.getZoom() - 2));
    new ResizeObserver(() => this.map.invalidateSize({ animate: false })).observe(element);
  }

  at(latitude, longitude) {
    return [latitude, nearLongitude(longitude, this.centre)];
  }

  /** Calls `chosen(latitude, longitude)` at the next click; the returned function cancels. */
  pick(chosen) {
    const take = ({ latlng }) => { stop(); chosen(latlng.lat, latlng.wrap().lng); };
    const stop = () => {
      this.map.off("click", take);
      this.map.getContainer().classList.remove("picking");
    };
    this.map.getContainer().classList.add("picking");
    this.map.on("click", take);
    return stop;
  }

  center() {
    const { lat, lng } = this.map.getCenter().wrap();
    return { latitude: lat, longitude: lng };
  }

  showPrior(prior) {
    this.priorLayer.clearLayers();
    if (!prior) return;
    const where = this.at(prior.latitude, prior.longitude);
    const options = { radius: prior.radius_m, color: COLOURS.prior, weight: 2.5, dashArray: "7 7", fill: false, interactive: false };
    this.L.circle(where, { ...options, color: COLOURS.casing, weight: 4.5, opacity: 0.5, dashArray: null }).addTo(this.priorLayer);
    this.L.circle(where, options).addTo(this.priorLayer);
  }

  clear() {
    this.result.clearLayers();
    this.squares = [];
  }

  /** Draw a response of /v1/locate; `truth` is the photo's true position, if known. */
  show(answer, truth) {
    this.clear();
    const extent = this.L.latLngBounds([]);
    answer.candidates.slice(0, 5).forEach((candidate, rank) => this.drawView(candidate, rank, answer.found));
    if (truth) extent.extend(this.drawMark("truth", truth.latitude, truth.longitude, "True position"));
    if (!answer.found) {
      this.squares.forEach((square) => extent.extend(square.getBounds()));
      return this.zoomTo(extent.isValid() ? this.bounds : null);
    }
    extent.extend(this.drawFix(answer).getBounds());
    if (this.squares.length) extent.extend(this.squares[0].getBounds());
    if (answer.drone_latitude !== null && answer.drone_longitude !== null) {
      const drone = this.drawMark("drone", answer.drone_latitude, answer.drone_longitude, "Drone");
      const ends = [drone, this.at(answer.latitude, answer.longitude)];
      this.L.polyline(ends, { color: COLOURS.fix, weight: 2, dashArray: "3 6", interactive: false }).addTo(this.result);
      extent.extend(drone);
    }
    this.zoomTo(extent.pad(0.5));
  }

  zoomTo(bounds) {
    if (bounds) this.map.fitBounds(bounds, { animate: !REDUCED_MOTION, duration: 0.5, maxZoom: this.map.getMaxZoom() - 2 });
  }

  drawFix(answer) {
    const where = this.at(answer.latitude, answer.longitude);
    const circle = { radius: answer.radius_m, interactive: false, className: "fix-circle" };
    this.L.circle(where, { ...circle, color: COLOURS.casing, weight: 5, opacity: 0.55, fill: false }).addTo(this.result);
    const drawn = this.L.circle(where, { ...circle, color: COLOURS.fix, weight: 2.5, fillOpacity: 0.16 }).addTo(this.result);
    this.drawMark("fix", answer.latitude, answer.longitude, "Fix", answer.heading_deg);
    return drawn;
  }

  drawMark(kind, latitude, longitude, title, turn = null) {
    const sign = document.createElement("span");
    if (turn !== null) {
      sign.className = "arrow";
      sign.style.transform = `rotate(${turn}deg)`;
    }
    const icon = this.L.divIcon({ className: `mark mark-${kind}`, html: sign, iconSize: [24, 24] });
    const where = this.at(latitude, longitude);
    this.L.marker(where, { icon, title, alt: title, keyboard: false, zIndexOffset: RANKS[kind] }).addTo(this.result);
    return where;
  }

  drawView({ footprint }, rank, quiet) {
    const shape = corners({ ...footprint, longitude: nearLongitude(footprint.longitude, this.centre) });
    const options = { color: COLOURS.view, weight: rank === 0 ? 2 : 1.25, opacity: quiet ? 0.75 : 0.9, fillOpacity: 0.02, className: "view-square" };
    const square = this.L.polygon(shape, options).addTo(this.result);
    const label = document.createElement("span");
    label.textContent = String(rank + 1);
    const icon = this.L.divIcon({ className: "mark mark-view", html: label, iconSize: [18, 18], iconAnchor: [0, 0] });
    this.L.marker(shape[0], { icon, keyboard: false, interactive: false }).addTo(this.result);
    this.squares.push(square);
  }

  /** Highlight one of the best views, or none for -1. */
  highlight(rank, follow = false) {
    this.squares.forEach((square, number) => {
      square.setStyle({ weight: number === rank ? 4 : number === 0 ? 2 : 1.25, fillOpacity: number === rank ? 0.2 : 0.02 });
    });
    if (follow && this.squares[rank]) this.zoomTo(this.squares[rank].getBounds().pad(0.8));
  }
}

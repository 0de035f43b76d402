// Short distances on the Earth, and formatting of positions.

const METRES_PER_DEGREE = 111_320;

/** Distance of two positions in metres (haversine). */
export function distance(a, b) {
  const radians = Math.PI / 180;
  const half = Math.sin(((b.latitude - a.latitude) * radians) / 2) ** 2
    + Math.cos(a.latitude * radians) * Math.cos(b.latitude * radians)
    * Math.sin(((b.longitude - a.longitude) * radians) / 2) ** 2;
  return 2 * 6_371_008.8 * Math.asin(Math.min(1, Math.sqrt(half)));
}

/** `longitude`, shifted by multiples of 360° to be nearest to `centre`: maps may cross the antimeridian. */
export function nearLongitude(longitude, centre) {
  return longitude + 360 * Math.round((centre - longitude) / 360);
}

/** The four corners of a footprint as [latitude, longitude], from its upper left, clockwise. */
export function corners({ latitude, longitude, metres, rotation }) {
  const turn = (rotation * Math.PI) / 180;
  const scale = Math.max(0.01, Math.cos((latitude * Math.PI) / 180));
  return [[-1, 1], [1, 1], [1, -1], [-1, -1]].map(([right, up]) => {
    const east = (right * Math.cos(turn) + up * Math.sin(turn)) * (metres / 2);
    const north = (up * Math.cos(turn) - right * Math.sin(turn)) * (metres / 2);
    return [latitude + north / METRES_PER_DEGREE, longitude + east / METRES_PER_DEGREE / scale];
  });
}

export function position(latitude, longitude) {
  const side = (value, positive, negative) => `${Math.abs(value).toFixed(5)}° ${value < 0 ? negative : positive}`;
  return `${side(latitude, "N", "S")}, ${side(((longitude + 540) % 360) - 180, "E", "W")}`;
}

export function metres(value) {
  if (value >= 10_000) return `${(value / 1000).toFixed(0)} km`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)} km`;
  return value < 10 ? `${value.toFixed(1)} m` : `${value.toFixed(0)} m`;
}

const POINTS = ["N", "NE", "E", "SE", "S", "SW", "W", "NW"];

export function heading(degrees) {
  const round = ((Math.round(degrees) % 360) + 360) % 360;
  return `${round}° ${POINTS[Math.round(round / 45) % 8]}`;
}

// Choosing a photo (drop, file, paste, example) and showing it beside its parts.
import { getImage } from "./api.js";

const $ = (id) => document.getElementById(id);

/** Show a Blob in an <img> and release the previous one. */
function setImage(image, blob) {
  if (image.dataset.url) URL.revokeObjectURL(image.dataset.url);
  image.dataset.url = blob ? URL.createObjectURL(blob) : "";
  if (blob) image.src = image.dataset.url;
  else image.removeAttribute("src");
}

export class PhotoPanel {
  /**
   * `opening(title)` is called when an example is downloaded, `chosen({ blob, name, truth })` with every photo,
   * `rejected(message)` if it cannot be sent.
   */
  constructor(limits, opening, chosen, rejected) {
    this.limits = limits;
    this.opening = opening;
    this.chosen = chosen;
    this.rejected = rejected;
    $("limits").textContent = `JPEG, PNG, WebP or TIFF, up to ${Math.round(limits.max_bytes / 1024 ** 2)} MB`;
    $("file").addEventListener("change", () => {
      this.take($("file").files[0]);
      $("file").value = "";
    });
    $("another").addEventListener("click", () => $("file").click());
    this.listenForDrops();
    document.addEventListener("paste", (event) => {
      const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith("image/"));
      if (file) this.take(file);
    });
  }

  listenForDrops() {
    const root = document.documentElement;
    let depth = 0;
    const isFile = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragenter", (event) => { if (isFile(event)) { depth += 1; root.classList.add("dragging"); } });
    addEventListener("dragleave", () => { depth = Math.max(0, depth - 1); if (!depth) root.classList.remove("dragging"); });
    addEventListener("dragover", (event) => { if (isFile(event)) event.preventDefault(); });
    addEventListener("drop", (event) => {
      depth = 0;
      root.classList.remove("dragging");
      if (!isFile(event)) return;
      event.preventDefault();
      this.take(event.dataTransfer.files[0]);
    });
  }

  take(file, truth = null) {
    if (!file) return;
    if (file.size > this.limits.max_bytes - 8192) {
      const limit = Math.round(this.limits.max_bytes / 1024 ** 2);
      this.rejected(`${file.name} is ${(file.size / 1024 ** 2).toFixed(0)} MB; the limit is ${limit} MB.`);
      return;
    }
    this.chosen({ blob: file, name: file.name || "photo", truth });
  }

  showExamples(examples, version) {
    $("examples-block").hidden = examples.length === 0;
    $("examples").replaceChildren(...examples.map((example) => this.exampleButton(example, version)));
  }

  exampleButton(example, version) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "example";
    button.title = example.title;
    const image = document.createElement("img");
    image.alt = "";
    const title = document.createElement("span");
    title.textContent = example.title;
    button.append(image, title);
    getImage(`${example.url}?size=240&v=${version}`).then((blob) => setImage(image, blob)).catch(() => {});
    button.addEventListener("click", async () => {
      const hasTruth = example.latitude !== null && example.longitude !== null;
      const truth = hasTruth ? { latitude: example.latitude, longitude: example.longitude } : null;
      const signal = this.opening(example.title);
      try {
        const blob = await getImage(`${example.url}?v=${version}`, signal);
        this.chosen({ blob, name: `${example.title}.jpg`, truth });
      } catch (problem) {
        if (!signal.aborted) this.rejected(problem.message);
      }
    });
    const item = document.createElement("li");
    item.append(button);
    return item;
  }

  /** Switch between the drop area and the photo. */
  setPhotoVisible(shown) {
    $("pair").hidden = $("another").hidden = $("photo-name").hidden = !shown;
    $("drop").hidden = shown;
    $("examples-title").textContent = shown ? "Try another" : "Or try one of these";
  }

  /** Show a new photo; resolves to whether the browser can display it (it cannot display TIFF). */
  show(photo) {
    this.setPhotoVisible(true);
    $("photo-name").textContent = $("photo-name").title = photo.name;
    this.showParts(null);
    return new Promise((resolve) => {
      $("photo").onload = () => {
        const ratio = $("photo").naturalWidth / $("photo").naturalHeight;
        $("pair").style.setProperty("--ratio", String(Math.min(2.4, Math.max(0.6, ratio))));
        resolve(true);
      };
      $("photo").onerror = () => { setImage($("photo"), null); resolve(false); };
      setImage($("photo"), photo.blob);
    });
  }

  /** Show the photo with weather applied; `title` is its caption. */
  showWeather(blob, title) {
    if (blob) setImage($("photo"), blob);
    $("photo-caption").textContent = title;
  }

  showParts(blob) {
    $("parts-frame").classList.toggle("waiting", !blob);
    setImage($("parts"), blob);
  }

  partsFailed() {
    $("parts-frame").classList.remove("waiting");
  }
}

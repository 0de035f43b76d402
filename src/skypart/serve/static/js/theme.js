// Runs before the first paint: applies the chosen theme, or the system's.
"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("skypart-theme"); } catch { /* storage may be off */ }
  const apply = () => { root.dataset.theme = chosen ?? (dark.matches ? "dark" : "light"); };
  apply();
  dark.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      chosen = root.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem("skypart-theme", chosen); } catch { /* then it lasts for this visit */ }
      apply();
    });
  });
})();

// Before the first paint: the theme that was chosen last, or the system's.
try {
  const chosen = localStorage.getItem("muster-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch {
  // without storage the system's theme holds
}

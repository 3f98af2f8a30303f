/** Asks for a token, if the API requires one. */
import { keepToken } from "./api.js";
import { h, text } from "./dom.js";

/** A form that takes a token; `onToken` is called when it is kept. `say` shows why it is asked. */
export function askWho(onToken) {
  const box = h("input", { type: "password", autocomplete: "off", spellcheck: "false", "aria-label": "Token", required: true });
  const why = h("p", { class: "note", role: "alert" });
  const form = h("form", { class: "who" }, h("h1", {}, "Who are you?"), why, h("label", {}, "Token ", box), h("button", { type: "submit", class: "main" }, "Go on"),
    h("p", { class: "note" }, "It is kept until this tab is closed, or you sign out."));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    keepToken(box.value.trim());
    onToken();
  });
  return { element: form, say: (message) => text(why, message), focus: () => box.focus() };
}

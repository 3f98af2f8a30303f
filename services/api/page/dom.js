/** Making and changing elements. Text is only ever set as text. */

/** An element: h("a", {class: "x", href: "#/", onclick: f}, child, "text"). */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
export function s(tag, properties = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Set an element's text if it differs. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

export function attribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Replace an element's children. A link that has the focus keeps it, where it is there again. */
export function fill(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  if (focused) element.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

/** A link to one of the views. */
export const to = (view, name, ...children) =>
  h("a", { href: `#/${view}/${encodeURIComponent(name)}` }, ...(children.length ? children : [name]));

/** Run a function at most once in so many ms, and once more at the end. */
export function atMostEvery(ms, run) {
  let last = -Infinity;
  let timer = 0;
  const throttled = () => {
    const wait = last + ms - performance.now();
    if (wait <= 0) {
      last = performance.now();
      run();
    } else if (!timer) {
      timer = setTimeout(() => {
        timer = 0;
        last = performance.now();
        run();
      }, wait);
    }
  };
  throttled.cancel = () => clearTimeout(timer);
  return throttled;
}

/** Copy text, and say on the button that it is done. */
export function copyButton(makeText) {
  const button = h("button", { type: "button", class: "quiet", title: "Copy the rows as they are filtered, tab-separated" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(makeText());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed here";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

const colours = new Map();
/** A colour of the present theme, for canvases. */
export function colour(name) {
  if (!colours.has(name)) {
    colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return colours.get(name);
}
export const forgetColours = () => colours.clear();

/** A canvas in device pixels; returns its context in CSS pixels. */
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const w = Math.round(width * ratio);
  const t = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== t) {
    canvas.width = w;
    canvas.height = t;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

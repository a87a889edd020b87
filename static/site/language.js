// Texts in the reader's language, with values by name. Pages in another language than English load its catalogue
// before any module (see base.html); `_` and `_n` are what translators' tools look for.

const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_whole, name) => values[name]);

export const _ = (message, values = {}) => filled(globalThis.django?.gettext(message) ?? message, values);

// The form for a number of things, which is the value `count`.
export const _n = (one, many, count, values = {}) =>
  filled(globalThis.django?.ngettext(one, many, count) ?? (count === 1 ? one : many), { count, ...values });

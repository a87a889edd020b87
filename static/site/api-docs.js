// Shows the OpenAPI document, in the theme that was chosen for the site.
const chosen = localStorage.getItem("theme");
const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.classList.toggle("dark-mode", dark);

const main = document.getElementById("reference");
SwaggerUIBundle({
  url: main.dataset.schema,
  domNode: main,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  deepLinking: true,
  filter: true,
  // Rendered when a tag is opened: rendering two hundred requests together takes a browser seconds.
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  // No badge of a validator on another site.
  validatorUrl: null,
  // Requests without a token are those of the signed-in person, like a form of a page.
  requestInterceptor: (request) => {
    if (new URL(request.url, location.href).origin === location.origin) {
      request.headers["X-CSRFToken"] = main.dataset.csrf;
    }
    return request;
  },
});

// The API reference: Swagger UI over this server's own openapi.json.

const base = document.querySelector('meta[name="plantstore-base"]').content;
const place = document.getElementById('swagger-ui');

try {
  const response = await fetch('openapi.json');
  if (!response.ok) {
    throw new Error(`status ${response.status}`);
  }
  const spec = await response.json();
  // The page may have been opened under a different host name than the one in the
  // base URL. "Try it out" calls the host that the page came from.
  spec.servers = [{ url: location.origin + base }];
  globalThis.SwaggerUIBundle({
    spec,
    domNode: place,
    deepLinking: true,
    tryItOutEnabled: true,
    displayRequestDuration: true,
    validatorUrl: null,
    defaultModelsExpandDepth: 0,
  });
} catch (err) {
  const problem = document.createElement('p');
  problem.className = 'problem';
  problem.textContent = `The API description could not be loaded (${err.message}). Reload the page to try again.`;
  place.replaceChildren(problem);
}

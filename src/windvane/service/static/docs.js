"use strict";
// The interactive documentation. It is a file of its own because the Content-Security-Policy allows no inline script.
SwaggerUIBundle({ url: "openapi.json", dom_id: "#docs", deepLinking: true, tryItOutEnabled: true });

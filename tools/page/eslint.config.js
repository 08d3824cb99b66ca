import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/vendor/**", "docs/_static/projection-world.js"] },
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2023, sourceType: "module", globals: { ...globals.browser, uPlot: "readonly" } },
    rules: {
      complexity: ["error", 15],
      curly: ["error", "multi-line"],
      eqeqeq: "error",
      "max-len": ["error", { code: 120 }],
      "max-lines": ["error", 300],
      "max-lines-per-function": ["error", { max: 60, skipComments: true }],
      "no-implicit-globals": "error",
      "no-shadow": "error",
      "no-unused-vars": ["error", { args: "all", argsIgnorePattern: "^_" }],
      "no-restricted-properties": [
        "error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({
          property,
          message: "Text from outside becomes text, never markup: use element() and setText().",
        })),
      ],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
  { files: ["docs/_static/*.js"], languageOptions: { sourceType: "script" } },
  { files: ["**/docs.js"], languageOptions: { sourceType: "script", globals: { SwaggerUIBundle: "readonly" } } },
];

// Make bfcviz/figures/plotly.min.js: plotly.js with the trace types of our figures, a quarter of its whole size.
//
//     mkdir /tmp/plotly && cd /tmp/plotly && npm install plotly.js@4.1.1 esbuild buffer stream-browserify
//     cp REPOSITORY/tests/make_plotly.mjs . && node make_plotly.mjs REPOSITORY/bfcviz/figures/plotly.min.js

import { build } from "esbuild";
import { readFileSync, writeFileSync } from "node:fs";

const TRACES = ["bar", "heatmap", "image"]; // scatter is part of the core

const { version } = JSON.parse(readFileSync("node_modules/plotly.js/package.json", "utf8"));
const required = TRACES.map((name) => `require("plotly.js/lib/${name}")`).join(", ");
await build({
  stdin: {
    contents: `const Plotly = require("plotly.js/lib/core"); Plotly.register([${required}]); module.exports = Plotly;`,
    resolveDir: ".",
  },
  outfile: process.argv[2],
  banner: {
    js: `/**
* plotly.js v${version}, with the traces scatter, ${TRACES.join(", ")} (bfcviz: tests/make_plotly.mjs)
* Copyright 2012-2026, Plotly, Inc.
* All rights reserved.
* Licensed under the MIT license
*/`,
  },
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "Plotly",
  target: "es2016",
  charset: "utf8",
  legalComments: "inline",
  loader: { ".css": "empty" }, // of maps, which are not in it
  define: { global: "window", "define.amd": "false", "process.env.NODE_DEBUG": "false" },
});

// With each update plotly searches all possible attributes of each trace for arrays. Most traces of a dashboard are
// hidden, and plotly uses no array of these: skipping them saves a fifth of the drawing.
const FIND_ARRAYS = /(\.findArrayAttributes=function\((\w+)\)\{)/;
const script = readFileSync(process.argv[2], "utf8");
if (!FIND_ARRAYS.test(script)) throw new Error("plotly finds arrays elsewhere now");
writeFileSync(process.argv[2], script.replace(FIND_ARRAYS, "$1if($2.visible===false)return[];"));

// What each live figure asks before anybody changes it. JSON after the sign: what writes the guide as plain
// files reads it too, asks the same of a running engine, and keeps the answers.

export const DEFAULTS = {
  "text": "Tokenization isn't reading: it's bookkeeping, e.g. 12345 + 678.",
  "prompt": "Michael Jordan played the sport of",
  "sentence": "The trophy did not fit into the suitcase, because the trophy was too large, so she took another",
  "sample": "My favourite colour is",
  "short": "The capital of France is",
  "long": "A river is a natural stream of fresh water that flows on land or inside caves towards another body of water at a lower elevation, such as an ocean, a lake, or another river. A river may run dry before reaching the end of its course if it runs out of water, or only flow during certain seasons. Rivers are regulated by the water cycle, the processes by which water moves around the Earth. Water first enters rivers through rain, and from the runoff of slopes, the melting of glaciers or snow, or seepage from aquifers beneath the surface. Rivers flow in channels and merge where they meet, to form drainage basins, or catchments, which together drain the land. The longest rivers of the world are",
  "tokens": 24,
  "batches": [1, 2, 4, 8]
};

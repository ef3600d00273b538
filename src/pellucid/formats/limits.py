"""What a model file may hold at most.

A reader compares every count and length with these, and with the bytes that are left in the file,
before it allocates anything. Each limit is far above what published models need (the largest known
is given) and low enough that a hostile file costs little.
"""

MAX_NAME_BYTES = 65_535  # a metadata key, as the GGUF specification says; tensor names: 128 in use
MAX_KEYS = 65_536  # metadata keys: about 60
MAX_TENSORS = 131_072  # tensors of one file: about 3,000; unfused experts of a shard set: 100,000
MAX_STRINGS = 2_097_152  # strings in all arrays of a file: 262,144 tokens and 580,000 merges
MAX_STRING_BYTES = 16_777_216  # one string: templates of 20,000, embedded tokenizers of 10 million
MAX_DIMS = 4  # dimensions of a GGUF tensor, as the specification says
MAX_RANK = 8  # dimensions of a safetensors tensor: 5
MAX_ELEMENTS = 1 << 48  # elements of a tensor, empty dimensions counted as 1
MIN_ALIGNMENT, MAX_ALIGNMENT = 8, 1 << 20  # general.alignment: 32
MAX_SHARDS = 10_000  # files of one model: 200
MAX_HEADER_BYTES = 100_000_000  # a safetensors header, as its specification says
MAX_JSON_BYTES = 32_000_000  # config.json and the shard index: 10 million
MAX_JSON_VALUES = 1_200_000  # values of one JSON text: 9 for each tensor of a header
MAX_JSON_LISTS = 100_000  # lists of one JSON text, besides the two of each object

"""The names of the files in a model's folder."""

FORMAT = 1
# In the place of an architecture's name in the configuration of a mixture.
MIXTURE = "mixture"
CONFIG, WEIGHTS, RECORD = "config.json", "model.safetensors", "training.json"
METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"
VALIDATION = "validation/text.txt"
VALIDATION_TOKENS = "validation/tokens.tok"
VALIDATION_PAIRS = "validation/source.txt", "validation/target.txt"
VALIDATION_VECTORS = "validation/source.safetensors"
TOKENIZER, SOURCE_TOKENIZER = "tokenizer", "source_tokenizer"
LABELS = "labels.json"  # in the place of a tokenizer of the sources
VALIDATION_FOLDER = "validation"
PARTS, TENSORBOARD = "parts", "tensorboard"
CHECKPOINTS, LAST, LOCK = "checkpoints", "last.safetensors", "lock"

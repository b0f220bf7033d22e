#!/usr/bin/env bash
# Check and measure seqgen on a GPU, in ten minutes: tests/gpu/check.sh [FOLDER [SECONDS]]
#
# What was found goes into FOLDER/gpu.json, step by step, the most useful steps first; another call
# with the same FOLDER goes on where the last one ended. Without a GPU all sizes are tiny, so that
# the script itself can be tried. A Python with a PyTorch of its own is used as it is ($PYTHON,
# else python3); only what seqgen needs beside PyTorch is installed, from $WHEELS where it is a
# folder of wheels.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${1:-gpu-results}
seconds=${2:-570}
python=${PYTHON:-python3}
mkdir -p "$out"

needed=(typer rich sentencepiece safetensors numpy sacrebleu platformdirs pytest hypothesis)
missing=()
for package in "${needed[@]}"; do
    "$python" -c "import $package" 2>/dev/null || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    # Into a folder of their own: the PyTorch that is there stays, and may be in an environment.
    "$python" -m pip install -q --target "$out/packages" \
        ${WHEELS:+--no-index --find-links "$WHEELS"} "${missing[@]}"
    export PYTHONPATH="$out/packages${PYTHONPATH:+:$PYTHONPATH}"
fi
export PYTHONPATH="$PWD:$PWD/tests${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m gpu "$out" --seconds "$seconds"

#!/bin/bash
# The first minutes on a machine with an NVIDIA GPU, from the repository's root, in two halves of at most ten minutes:
#
#     OUT=results bash tests/gpu/first_minutes.sh 1    # the driver, CuPy's facts, and the tests marked gpu
#     OUT=results bash tests/gpu/first_minutes.sh 2    # PyTorch, JAX, what watching costs, a memory checker
#
# PYTHON (python3) needs NumPy, cupy-cuda12x or -cuda13x, torch; what is not installed is told and left out. Results in
# $OUT are text and two small Parquet recordings, all together under 1 MB. Each part has its own time limit, and a
# failure does not stop the next.
#
# Where that machine reaches no package index, put wheels of what it lacks (pyarrow, pytest and pytest-timeout with what
# they need, hypothesis, rmm-cu13) into .whl/ of the repository, by `pip download --only-binary=:all: -d .whl ...`.
set -u
half=${1:?say which half: 1 or 2}
python=${PYTHON:-python3}
out=${OUT:-/tmp/first_minutes}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
mkdir -p "$out"
if compgen -G '.whl/*.whl' >/dev/null; then
    "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" .whl/*.whl || exit 1
fi
export PYTHONPATH=$PWD:$PWD/tests:$site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export CUPY_CACHE_DIR=$site/cupy CUBLAS_WORKSPACE_CONFIG=:4096:8 OUT=$out

part() { # name of the result, seconds, command: both streams, the last 200 KB of them
    local name=$1 seconds=$2
    shift 2
    echo "== $name"
    timeout "$seconds" "$@" 2>&1 | tail -c 200000 | tee "$out/$name.txt"
    echo "-- status ${PIPESTATUS[0]}" | tee -a "$out/$name.txt"
}

case $half in
1)
    part machine 30 sh -c 'nvidia-smi --query-gpu=name,memory.total,driver_version,mig.mode.current --format=csv
        '"$python"' -c "import sys, bfcviz._heap; print(sys.version, bfcviz._heap.__file__.rpartition(\"/\")[2])"
        '"$python"' -m pip list 2>/dev/null | grep -iE "^(cupy|torch|jax|numpy|rmm|cuda|nvidia)"'
    part first 130 "$python" tests/gpu/first.py driver ipc capture values
    part pytest 380 "$python" -m pytest -q -rfEs -p no:cacheprovider -o addopts= -o filterwarnings=default --timeout=90 \
        --tb=short tests/gpu
    ;;
2)
    part first2 100 "$python" tests/gpu/first.py torch jax recordings
    part cupy_overhead 120 "$python" tests/bench/cupy_overhead.py --rounds 3
    part torch_overhead 180 "$python" tests/bench/torch_overhead.py --rounds 2
    part sanitizer 150 compute-sanitizer --tool memcheck --error-exitcode 9 "$python" tests/gpu/first.py values
    ;;
*)
    echo "there are halves 1 and 2, not $half" >&2
    exit 2
    ;;
esac
ls -l "$out"

#!/bin/bash
# The first minutes on a machine with an NVIDIA GPU, from the repository's root, in two halves of at most ten minutes:
#
#     OUT=results bash tests/gpu/first_minutes.sh 1    # the driver, CuPy's facts, and the tests marked gpu
#     OUT=results bash tests/gpu/first_minutes.sh 2    # PyTorch, JAX, what watching costs, a memory checker
#
# PYTHON (python3) needs NumPy, cupy-cuda12x or -cuda13x, torch; what is not installed is told and left out. Results in
# $OUT are text and two small Parquet recordings, all together under 1 MB. Each part has its own time limit; its output
# and its exit status are in $OUT/<part>.txt, and a failure does not stop the next.
#
# Carry the whole checkout, with every bfcviz/*.abi3.so that the build made: part `machine` tells which are missing.
# Where that machine reaches no package index, put wheels of what it lacks (pyarrow, pytest, hypothesis, with what they
# need; better also pytest-timeout and rmm-cu13) into .whl/ of the repository, by
# `pip download --only-binary=:all: -d .whl ...`.
set -u
half=${1:?say which half: 1 or 2}
python=${PYTHON:-python3}
out=${OUT:-/tmp/first_minutes}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
mkdir -p "$out"
export PYTHONPATH=$PWD:$PWD/tests:$site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export CUPY_CACHE_DIR=$site/cupy CUBLAS_WORKSPACE_CONFIG=:4096:8 OUT=$out

part() { # name of the result, seconds, command: both streams, the last 200 KB of them
    local result=$out/$1.txt seconds=$2 status=0
    echo "== $1"
    shift 2
    # Into a file, not a pipe: that is there if this script is killed, and a process left behind keeps no pipe open.
    timeout --kill-after=5 "$seconds" "$@" >"$result" 2>&1 </dev/null || status=$?
    tail -c 200000 "$result" >"$result.end" && mv "$result.end" "$result"
    echo "-- status $status" >>"$result"
    cat "$result"
}

first() { # part of first.py, seconds
    part "$1" "$2" "$python" tests/gpu/first.py "$1"
}

if compgen -G '.whl/*.whl' >/dev/null; then
    part wheels 60 "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" .whl/*.whl
fi

case $half in
1)
    part nvidia_smi 10 nvidia-smi --query-gpu=name,memory.total,driver_version,mig.mode.current --format=csv
    first machine 30
    first driver 30
    first ipc 20
    first capture 40
    first values 60
    part pytest 330 "$python" -m pytest -q -rfEs -p no:cacheprovider -o filterwarnings=default --numprocesses=0 \
        --timeout=90 --tb=short tests/gpu
    ;;
2)
    first torch 100
    first jax 40
    first recordings 40
    part cupy_overhead 90 "$python" tests/bench/cupy_overhead.py --rounds 3
    part torch_overhead 160 "$python" tests/bench/torch_overhead.py --rounds 2
    part sanitizer 90 compute-sanitizer --tool memcheck --error-exitcode 9 "$python" tests/gpu/first.py values
    ;;
*)
    echo "there are halves 1 and 2, not $half" >&2
    exit 2
    ;;
esac
ls -l "$out"

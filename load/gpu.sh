#!/usr/bin/env bash
# headrace-nats beside `vllm serve` on a real GPU, interleaved, with any model. Not run on a GPU yet.
#
#   make install ACCELERATOR=gpu
#   MODEL=Qwen/Qwen3-8B load/gpu.sh
#
# Variables:
#   MODEL        a checkpoint folder, or a hub's name (the bundled model, which any GPU holds)
#   CONCURRENCY  requests at once, one after the other: 16, 64, 256 of 512 tokens in, 128 out ("64 256")
#   DURATION     seconds of each window (60); WARM_UP seconds before it (20)
#   REPEATS      interleaved (3)
#   ARMS         see `python -m load.compare --help` ("headrace-nats vllm-serve")
#   OPTIONS      of vLLM, for all arms, NAME=JSON each, without blanks in them ("max_model_len=8192")
#   RESULTS      the file of results (gpu-results.jsonl); a run that was stopped goes on where it ends
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
[[ -x $python ]] || { echo "There is no .venv: make install ACCELERATOR=gpu" >&2; exit 2; }
nvidia-smi -L || { echo "There is no NVIDIA GPU here" >&2; exit 2; }

read -ra arms <<< "${ARMS:-headrace-nats vllm-serve}"
read -ra concurrency <<< "${CONCURRENCY:-64 256}"
read -ra options <<< "${OPTIONS:-max_model_len=8192}"
results=${RESULTS:-gpu-results.jsonl}

command=("$python" -m load.compare --real --results "$results" --repeats "${REPEATS:-3}")
command+=(--duration "${DURATION:-60}" --warm-up "${WARM_UP:-20}")
command+=(--arms "${arms[@]}" --workloads "${concurrency[@]/#/W1-C}")
[[ -z ${MODEL:-} ]] || command+=(--model "$MODEL")
for option in "${options[@]}"; do
  command+=(--engine-option "$option")
done

"${command[@]}"
"$python" -m load.report "$results"

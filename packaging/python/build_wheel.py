"""Makes the wheel: the Python files beside this script, and a folder with the command and its libraries.

    build_wheel.py VERSION TAG STAGE OUT

The same input and SOURCE_DATE_EPOCH give the same bytes. A wheel has no links, so libibverbs.so and librdmacm.so, which some
programs open first, are the alias libraries: without code, and found to need the real ones.
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ALIASES = {"libibverbs.so": "libverbena-alias-6.so", "librdmacm.so": "libverbena-alias-7.so"}


def files(version: str, tag: str, stage: pathlib.Path):
    """Names in the wheel, with contents and whether they are executable."""
    for path in sorted((HERE / "verbena").glob("*.py")):
        yield f"verbena/{path.name}", path.read_text().replace("@VERSION@", version).encode(), False
    yield "verbena/files/bin/verbena", (stage / "bin/verbena").read_bytes(), True
    for path in sorted((stage / "lib/verbena").glob("*.so*")):
        if not path.is_symlink():
            yield f"verbena/files/lib/verbena/{path.name}", path.read_bytes(), True
    for name, alias in ALIASES.items():
        yield f"verbena/files/lib/verbena/{name}", (stage / "lib/verbena" / alias).read_bytes(), True
    info = f"verbena-{version}.dist-info"
    readme = (HERE / "README.md").read_text()
    metadata = (HERE / "METADATA").read_text().replace("@VERSION@", version)
    yield f"{info}/METADATA", f"{metadata}\n{readme}".encode(), False
    wheel = f"Wheel-Version: 1.0\nGenerator: build_wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    yield f"{info}/WHEEL", wheel.encode(), False
    points = "[console_scripts]\nverbena = verbena.__main__:main\n\n[pytest11]\nverbena = verbena.pytest_plugin\n"
    yield f"{info}/entry_points.txt", points.encode(), False
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        yield f"{info}/licenses/{name}", (HERE / "../.." / name).read_bytes(), False


def main() -> None:
    version, tag, stage, out = sys.argv[1:]
    # Zip has no times before 1980.
    epoch = max(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")), 315532800)
    when = time.gmtime(epoch)[:6]
    path = pathlib.Path(out) / f"verbena-{version}-{tag}.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, contents: bytes, executable: bool) -> None:
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, contents)

        for name, contents, executable in files(version, tag, pathlib.Path(stage)):
            add(name, contents, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(contents)}")
        name = f"verbena-{version}.dist-info/RECORD"
        add(name, "\n".join([*record, f"{name},,", ""]).encode(), False)
    print(path)


if __name__ == "__main__":
    main()

# Mooncake's transfer_engine_bench, both ends: a target, and an initiator that is told where the target listens.
# Arguments: the program, the device, and options for the initiator.
import re
import subprocess
import sys
import threading

program, device, options = sys.argv[1], sys.argv[2], sys.argv[3:]
common = [program, "--metadata_server=P2PHANDSHAKE", "--protocol=rdma", f"--device_name={device}", "--buffer_size=268435456"]

target = subprocess.Popen(
    [*common, "--mode=target", "--local_server_name=127.0.0.1:12345"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
)
try:
    address = None
    for line in target.stderr:
        found = re.search(r"listening on (\S+)", line)
        address = found.group(1) if found else address
        # The memory is registered after this line.
        if address and "numa node num" in line:
            break
    threading.Thread(target=target.stderr.read, daemon=True).start()
    # The target does not tell when its memory is registered, and an initiator that is faster fails: it is started again.
    for _ in range(3):
        ran = subprocess.run(
            [*common, "--mode=initiator", "--local_server_name=127.0.0.1:12346", f"--segment_id={address}", *options],
            capture_output=True,
            text=True,
            timeout=120,
        )
        said = ran.stdout + ran.stderr
        result = re.search(r"Test completed.*", said)
        if ran.returncode == 0 and result:
            break
    if ran.returncode != 0 or not result:
        sys.exit(f"exit code {ran.returncode}\n{said[-4000:]}")
    print(result.group(0))
finally:
    target.kill()
    target.wait()

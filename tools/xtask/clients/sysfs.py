# Reads sysfs files of the adapter as Python programs do.
import glob
import os
import pathlib

DEVICE = "/sys/class/infiniband/verbena0"


def read(path):
    with open(os.path.join(DEVICE, path)) as file:
        return file.read().strip()


assert "verbena0" in os.listdir("/sys/class/infiniband")
assert [entry.name for entry in os.scandir("/sys/class/infiniband_verbs")].count("uverbs0") == 1
assert read("ports/1/state") == "4: ACTIVE"
assert read("ports/1/rate").startswith("100 Gb/sec")
assert read("ports/1/counters/port_xmit_packets") == "0"
assert read("ports/1/gid_attrs/types/0") == "RoCE v2"
interface = read("ports/1/gid_attrs/ndevs/3")
assert os.listdir(DEVICE + "/device/net") == [interface]
assert os.path.exists(DEVICE + "/device/net/" + interface + "/mtu")
assert os.path.realpath(DEVICE + "/device") == "/sys/devices/verbena/verbena0"
assert pathlib.Path(DEVICE).resolve().is_dir()
assert int(pathlib.Path(DEVICE, "device/numa_node").read_text()) >= -1
assert glob.glob("/sys/class/infiniband/*/ports/1/lid") == [DEVICE + "/ports/1/lid"]
files = sum(len(names) for _, _, names in os.walk(DEVICE + "/ports/1"))
assert files > 70, files
assert not os.path.exists(DEVICE + "/ports/2")
print("all files read")

#!/usr/bin/env python3
"""NCCL's all-reduce over Verbena beside NCCL's own sockets, on one GPU.

    nccl.py --verbena PATH/verbena [--ranks 2,4,8] [--mib 256] [--rounds 5]

Needs PyTorch with NCCL and a GPU. Every rank is told that it is a host of its own (NCCL_HOSTID), so that several ranks may
share the GPU and all traffic goes through the network. Both ways run by turns in each round, and the table shows the median
bus bandwidth, 2(n-1)/n of the size per second; every element of each run's last result is checked.

By default the ranks' kernels take turns on the GPU, which limits both ways. Start CUDA's Multi-Process Service first
(`nvidia-cuda-mps-control -d`) to have them run at the same time.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

WARM, TIMED = 2, 5


def rank_main():
    import torch
    import torch.distributed as dist

    rank, ranks, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "NCCL_BENCH_BYTES"))
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    data = torch.empty(size // 4, device="cuda")
    expected = float(ranks * (ranks + 1) // 2)
    for turn in range(WARM + TIMED):
        if turn == WARM:
            dist.barrier()
            torch.cuda.synchronize()
            start = time.monotonic()
        data.fill_(rank + 1)
        dist.all_reduce(data)
    torch.cuda.synchronize()
    took = (time.monotonic() - start) / TIMED
    assert bool((data == expected).all()), "the sum is wrong"
    if rank == 0:
        version = ".".join(map(str, torch.cuda.nccl.version()))
        print(f"RESULT {size * 2 * (ranks - 1) / ranks / took / 1e9:.4f} {version}", flush=True)
    dist.destroy_process_group()


def measure(arguments, ranks, way, port):
    """The bus bandwidth of one run, in GB/s."""
    children = []
    for rank in range(ranks):
        env = dict(
            os.environ,
            RANK=str(rank),
            WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            NCCL_HOSTID=f"host-{rank}",
            NCCL_BENCH_BYTES=str(arguments.mib << 20),
        )
        command = [sys.executable, os.path.abspath(__file__), "--rank"]
        if way == "verbena":
            command = [arguments.verbena, "run", "--", *command]
            env["NCCL_NET"] = "IB"
        else:
            env["NCCL_NET"] = "Socket"
        children.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    result, said = None, []
    end = time.monotonic() + arguments.limit
    try:
        for child in children:
            said.append(child.communicate(timeout=max(end - time.monotonic(), 0))[0])
    except subprocess.TimeoutExpired:
        said.append("no end within the limit")
    finally:
        for child in children:
            child.kill()
            child.wait()
    for line in "\n".join(said).splitlines():
        if line.startswith("RESULT "):
            result, arguments.version = float(line.split()[1]), line.split()[2]
    if result is None or any(child.returncode for child in children):
        print("\n".join(text[-3000:] for text in said), file=sys.stderr)
        sys.exit(f"{ranks} ranks over {way} failed")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbena", default="verbena", help="the command, beside its libraries")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--mib", type=int, default=256, help="size of the all-reduce")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", default="verbena,sockets", help="one of them alone, to profile it")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one run")
    arguments = parser.parse_args()
    print("| ranks | Verbena GB/s | NCCL's sockets GB/s | ratio | runs, Verbena | runs, sockets |")
    print("| --- | --- | --- | --- | --- | --- |")
    port = 29500
    for ranks in map(int, arguments.ranks.split(",")):
        runs = {way: [] for way in arguments.ways.split(",")}
        for _ in range(arguments.rounds):
            for way, results in runs.items():
                port += 1
                results.append(measure(arguments, ranks, way, port))
        if len(runs) < 2:
            print(f"{ranks} ranks: {runs}", flush=True)
            continue
        both = [runs["verbena"], runs["sockets"]]
        ours, theirs = (statistics.median(results) for results in both)
        shown = ["/".join(f"{value:.2f}" for value in results) for results in both]
        print(f"| {ranks} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} | {shown[0]} | {shown[1]} |", flush=True)
    print(f"\nNCCL {arguments.version}, {arguments.mib} MiB, median of {arguments.rounds}, {os.cpu_count()} processors")


if __name__ == "__main__":
    rank_main() if sys.argv[1:] == ["--rank"] else main()

"""How fast everything is."""

import re

from benchmarks.tables.stored import SYSTEMS, Record, Tables, markdown, stored

SPEED = "benchmarks/results.json"
GPU = "benchmarks/results-gpu.json"


def part(name: str) -> list[Record]:
    found: list[Record] = stored(SPEED)[name]["rows"]
    return found


def row(of: str, case: str) -> Record:
    """The row of this case, whose name may be followed by its figures or its sizes."""
    return next(r for r in part(of) if re.split(r":|, B=", r["case"])[0] == case)


def hops(kind: str = "live") -> dict[str, float]:
    """Milliseconds for 8 ms of sound by system."""
    found = {}
    for r in part("rivals"):
        case = r["case"].split(":")[0].split(" (rivals")[0]
        if case.startswith(f"{kind}, "):
            name = case.removeprefix(f"{kind}, ").replace("DR-NMF (", "").replace(")", "")
            found[name] = r["milliseconds"]
    return found


def rivals() -> str:
    live, recording = hops(), hops("recording")

    def cell(found: dict[str, float], name: str) -> str:
        times = "" if name == "default" else f", {found[name] / found['default']:.1f} times as long"
        return f"{found[name]:.3f} ms{times}"

    lines = [[SYSTEMS.get(name, name), cell(live, name), cell(recording, name)] for name in live]
    return markdown(["8 ms of sound", "live", "in a recording"], lines)


def sparse_nmf() -> str:
    lines = []
    for N in (200, 2000):
        base = row("separators", f"sparse NMF, 200 updates, N={N}")["milliseconds"]
        times = [row("separators", f"DR-NMF K={K} N={N}")["milliseconds"] for K in (2, 5)]
        lines.append([f"N = {N}", f"{base:,.0f} ms", *(f"{t:.1f} ms, {base / t:.0f} times faster" for t in times)])
    default = row("separators", "default")["milliseconds"]
    base = row("separators", "sparse NMF, 200 updates, N=200")["milliseconds"]
    lines.append(["the default", "", "", f"{default:.1f} ms, {base / default:.0f} times faster"])
    return markdown(["5.3 s of sound", "sparse NMF, 200 updates", "DR-NMF, K = 2", "DR-NMF, K = 5"], lines)


def floor() -> str:
    lines = []
    for case, name in (("default", "the default"), ("DR-NMF K=5 N=2000", "K = 5, N = 2000")):
        r = row("floor", case)
        reading = f"{1000 * r['packed_milliseconds']:.0f} µs ({r['packed_mb']:.1f} MB)"
        lines.append([name, f"{1000 * r['milliseconds']:.0f} µs", reading, f"{1 - r['active']:.0%}"])
    return markdown(["", "one frame", "reading all that is packed", "inactive"], lines)


def files() -> str:
    lines = []
    for r in part("enhance"):
        if r["case"].startswith("file, "):
            kind = r["case"].split(", ")[1]
            lines.append([kind, r["per"], f"{r['milliseconds'] / 1000:.0f} s", f"{r['memory_mb']:.0f} MB"])
    return markdown(["file", "length", "time", "memory"], lines)


def training_step() -> str:
    lines = [
        [name, f"{row('scan', case)['milliseconds']:.0f} ms", f"{row('scan', case)['memory_mb']:.0f} MB"]
        for name, case in (("autograd over the readable loop", "readable loop"), ("`scan`", "scan"))
    ]
    return markdown(["training step", "time", "memory"], lines)


def gpu_scan() -> str:
    head = ["B, T, K, N", "PyTorch, from a CUDA graph", "kernels, as called", "kernels, from a CUDA graph", "floor"]
    lines = []
    for r in stored(GPU)["scan"]:
        sizes = ", ".join(str(r[key]) for key in "BTKN")
        times = [f"{r[key]:.1f}" for key in ("pytorch_graph", "kernels", "kernels_graph")]
        lines.append([sizes, *times, f"{r['floor']:.2f}"])
    return markdown(head, lines)


def gpu_nmf() -> str:
    lines = []
    for r in stored(GPU)["sparse_nmf"]:
        precision = "TF32" if r["tf32"] else "float32"
        speed = f"{r['rate'] / 1e12:.0f} TFLOP/s"
        lines.append([precision, f"{r['iteration']:.0f} ms", speed, f"{r['of_peak']:.0%}"])
    return markdown(["products in", "an iteration", "speed", "of a large product's"], lines)


def measured() -> str:
    """When and of which commit each part of the speed was measured."""
    lines = [[name, found["date"], found["commit"], f"{found['machine']['load_before']}"] for name, found in speeds()]
    return markdown(["part", "date", "commit", "load of the machine before"], lines, words=3)


def speeds() -> list[tuple[str, Record]]:
    return list(stored(SPEED).items())


def anywhere() -> str:
    """Every form of the enhancer, by `benchmarks.anywhere`."""
    rows = []
    for name, row in stored("docs/results/anywhere.json")["forms"].items():
        size = "-" if row["megabytes"] is None else f"{row['megabytes']:.1f} MB"
        start, speed = f"{1e3 * row['start_s']:.0f} ms", f"{row['speed']:.0f}"
        rows.append([name, size, start, f"{row['latency_ms']:.0f} ms", speed])
    return markdown(["form", "size", "start", "latency", "times real time"], rows)


TABLES: Tables = {
    "anywhere": anywhere,
    "rivals": rivals,
    "sparse NMF": sparse_nmf,
    "floor": floor,
    "files": files,
    "training step": training_step,
    "GPU": gpu_scan,
    "sparse NMF on a GPU": gpu_nmf,
    "measured": measured,
}

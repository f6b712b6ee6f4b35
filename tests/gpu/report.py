#!/usr/bin/env python3
"""Prints the rows of docs/results/gpu.md from the archive of tests/gpu/run.sh: what, figure, card, clocks, date, part.

    report.py gpu-results.tar.gz…

Several archives are those of several calls or cards; a part that two of them have is printed twice.
"""

import collections
import json
import sys
import tarfile

HEADER = "| what | measured | card | clocks | date | part |\n|---|---|---|---|---|---|"
NAMES = {"resnet50": "ResNet-50", "resnet101": "ResNet-101", "resnet18": "ResNet-18", "mobilenet_v2": "MobileNetV2"}


def number(value, form="{:,.0f}"):
    return "not measured" if value is None else form.format(float(value))


def clocks_text(found):
    if not found or found.get("sm_mhz") is None:
        return ""
    return f"{found['sm_mhz']} MHz, memory {found['memory_mhz']} MHz, {found['watts']:.0f} W, at most {found['celsius']} °C"


def bandwidth_rows(found):
    for kernel in found.get("kernels", found.get("figures", [])):
        target = kernel.get("target") or 0
        text = f"{kernel['share_of_copy']:.2f} of a copy"
        if target > 0:
            text += f"; target {target:.2f}" + (": falls short" if kernel["share_of_copy"] < target else "")
        yield kernel["name"], text, ""


def model_row(part, name, found, clocks):
    source = "JPEG files of 500x375" if part == "jpeg" else "bfloat16"
    what = f"{NAMES.get(name, name)}"
    if "image" in found:
        what += f" {found['image']}², batch {found['batch']}"
    text = f"{number(found['images_per_second'])} images/s"
    runs = [run for run in found.get("runs", []) if run is not None]
    if len(runs) > 1:
        text += f" ({number(min(runs))} to {number(max(runs))} in {len(runs)} runs)"
    if found.get("data_wait_share") is not None:
        text += f", waits for data {number(100 * found['data_wait_share'], '{:.1f}')} % of a step"
    if "loader_threads" in found:
        text += f" with {found['loader_threads']} loader threads on {found['cpus']} CPUs"
    if found.get("host_seconds") is not None:
        text += f", host {number(1e6 * found['host_seconds'])} us"
    return f"{what}, {source}", text, clocks_text(clocks)


def torch_row(name, found):
    forms = ", ".join(f"{form} {number(figures['images_per_second'])}" for form, figures in found["torch"].items())
    text = (f"{number(found['to_best'], '{:.2f}')} of the best of PyTorch's forms ({forms} images/s), "
            f"{number(found['to_eager'], '{:.2f}')} of eager")
    best, eager = found["targets"]
    short = (found["to_best"] or best) < best or (found["to_eager"] or eager) < eager
    return f"{NAMES.get(name, name)} against PyTorch", text + f"; targets {best} and {eager}" + (": falls short" if short else ""), ""


def allreduce_rows(found):
    for figure in found.get("figures", []):
        yield (f"all-reduce of {figure['bytes']:,} bytes",
               f"{figure['time_us']:.0f} us, busbw {figure['busbw_gb_per_s']:.2f} GB/s", "")


def rows_of(part, found):
    """Yields (what, measured, clocks) for each figure of a part."""
    for name, value in found.items():
        if isinstance(value, bool):
            continue
        if name.endswith("-clocks"):
            continue
        if name.endswith("-torch"):
            yield torch_row(name[:-len("-torch")], value)
        elif name.endswith("-plan"):
            model = name[:-len("-plan")]
            yield (f"{NAMES.get(model, model)}, a step without graphs (explain-plan)",
                   f"{number(value['step_us'] / 1000, '{:.2f}')} ms", "")
        elif isinstance(value, dict) and "images_per_second" in value:
            yield model_row(part, name, value, found.get(f"{name}-clocks"))
        elif name == "bandwidth":
            yield from bandwidth_rows(value)
        elif name == "allreduce":
            yield from allreduce_rows(value)
        elif isinstance(value, dict) and "agree" in value:
            yield (f"losses of {name}", ("agree" if value["agree"] else "differ: falls short") +
                   f"; largest difference {value['largest_difference']:.2g}", "")
        else:
            yield name.replace("_", " "), json.dumps(value, ensure_ascii=False), ""
    tests = {name: value for name, value in found.items() if isinstance(value, bool)}
    if tests:
        failed = [name for name, value in tests.items() if not value]
        yield ("test programs", f"{len(tests) - len(failed)} of {len(tests)} pass" +
               (f"; {', '.join(failed)} fail" if failed else ""), "")


def kinds(plan):
    """Returns {kind: [measured us, predicted us]} of the operations of `muster spec explain-plan -o json`."""
    sums = collections.defaultdict(lambda: [0.0, 0.0])
    for operation in plan.get("operations", []):
        for direction in ("forward", "backward"):
            sums[operation["kind"]][0] += float(operation.get(f"{direction}_us", 0))
            sums[operation["kind"]][1] += float(operation.get(f"{direction}_work", {}).get("us", 0))
    times, work = plan.get("times", {}), plan.get("work", {})
    for name in ("objective", "optimizer"):
        sums[name][0] += float(times.get(f"{name}_us", 0))
        sums[name][1] += float(work.get(name, {}).get("us", 0))
    return sums


def plan_table(model, plan):
    lines = [f"Where a step of {NAMES.get(model, model)} goes, measured and predicted:", "",
             "| operations | measured ms | predicted ms | ratio |", "|---|---|---|---|"]
    for kind, (measured, predicted) in sorted(kinds(plan).items(), key=lambda entry: -entry[1][0]):
        ratio = f"{measured / predicted:.2f}" if predicted > 0 else ""
        lines.append(f"| {kind} | {measured / 1000:.2f} | {number(predicted / 1000, '{:.2f}') if predicted > 0 else ''} | {ratio} |")
    return "\n".join(lines)


def member(tar, name):
    """The contents of DIRECTORY/NAME, or None."""
    for entry in tar.getmembers():
        if entry.isfile() and entry.name.split("/", 1)[-1] == name:
            return tar.extractfile(entry).read().decode()
    return None


def report(paths):
    lines, tables = [HEADER], []
    for path in paths:
        with tarfile.open(path) as tar:
            text = member(tar, "results.json")
            if text is None:
                sys.exit(f"report.py: {path} contains no results.json")
            for part, result in json.loads(text)["parts"].items():
                if result["state"] != "passed":
                    lines.append(f"| {part} | {result['state']}: {result['reason']} | {result['device']} | | {result['date']} | `{part}` |")
                for what, measured, clocks in rows_of(part, result["found"]):
                    lines.append(f"| {what} | {measured} | {result['device']} | {clocks} | {result['date']} | `{part}` |")
            for model in NAMES:
                plan = member(tar, f"throughput/explain-{model}.json")
                if plan:
                    tables.append(plan_table(model, json.loads(plan)))
    return "\n".join(lines) + "".join(f"\n\n{table}" for table in tables)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    print(report(sys.argv[1:]))


if __name__ == "__main__":
    main()

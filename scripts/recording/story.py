"""The steps of the recording, and which words of their outputs stay the same in each run."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A command that a person would type in the folder of this file, in the namespace `recording`."""

    command: str
    # A line above the command that says what it shows; empty if the line before still holds.
    say: str = ""
    # Words of the output. The command is repeated until it prints them.
    until: str = ""


STEPS = (
    Step("sed -n '/script:/,$p' drawer.yaml", say="one ConfigMap is the whole provisioner"),
    Step("kubectl apply -f drawer.yaml"),
    Step("kubectl apply -f claim.yaml", say="a claim, and a pod that writes into its volume"),
    Step("kubectl wait --for=jsonpath='{.status.phase}'=Bound pvc/data"),
    Step("kubectl wait --for=jsonpath='{.status.phase}'=Succeeded pod/writer && kubectl logs writer"),
    Step("kubectl apply -f snapshot.yaml", say="a snapshot, and a new claim with its data"),
    Step("kubectl wait --for=jsonpath='{.status.readyToUse}'=true volumesnapshot/monday"),
    Step("kubectl apply -f restored.yaml"),
    Step("kubectl wait --for=jsonpath='{.status.phase}'=Succeeded pod/reader && kubectl logs reader"),
    Step("head -n 5 typo.yaml", say="a misspelt parameter: the claim says what is wrong"),
    Step("kubectl apply -f typo.yaml"),
    Step("kubectl describe pvc typo | grep 'attempt 1 failed'", until="did you mean"),
)

# Texts that differ from run to run, each with the word that stands for all of them.
CHANGING = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\(x\d+ over \w+\)"), ""),
    (re.compile(r"(?<![\w.-])(\d+(\.\d+)?(ms|s|m|h))+(?![\w-])"), "TIME"),
)


def stable(text):
    """Returns the words of an output that are the same in each run, in lines. Widths of columns follow from ages."""
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return [" ".join(line.split()) for line in text.splitlines()]


def differences(committed, fresh):
    """Yields what a fresh transcript has otherwise than the committed one, but for texts that change from run to run."""
    if committed["kubernetes"] != fresh["kubernetes"]:
        yield f"Kubernetes is {fresh['kubernetes']}, and the picture shows {committed['kubernetes']}"
    before, after = committed["steps"], fresh["steps"]
    if [(one["say"], one["command"]) for one in before] != [(one["say"], one["command"]) for one in after]:
        yield "the story has other commands than the picture"
        return
    for old, new in zip(before, after):
        if stable(old["output"]) != stable(new["output"]):
            yield f"$ {old['command']}\nthe picture shows\n{old['output']}the command prints\n{new['output']}"

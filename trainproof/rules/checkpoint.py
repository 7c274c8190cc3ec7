"""Family TP99: what is in a checkpoint. The rules are given a Seen: the checkpoint, the scan of its bytes, and an older one, if any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainproof.checkpoint.contents import Tensor
from trainproof.checkpoint.seen import LORA_B, ZERO_AT_START, Seen, parameters
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule
from trainproof.thresholds import CheckpointThresholds
from trainproof.verdict import Evidence, Severity

#: part -> what it is called
PARTS = {
    "optimizer": "the optimizer's state",
    "scheduler": "the scheduler's state",
    "scaler": "the loss scaler's state",
    "rng": "the states of the random generators",
    "sampler": "the position in the data",
}


def _seen(
    seen: Seen,
    severity: Severity,
    message: str,
    evidence: tuple[Evidence, ...] = (),
    threshold: dict[str, float] | None = None,
) -> Sighting:
    return Sighting(severity, message, evidence, threshold or {}, seen.step, seen.step, seen.step)


def names(tensors: Sequence[Tensor]) -> str:
    """The first few names, and how many more."""
    told = ", ".join(tensor.name[:100] for tensor in tensors[:3])
    return told if len(tensors) <= 3 else f"{told} and {len(tensors) - 3} more"


@rule(
    "TP990",
    "nonfinite-tensor",
    severity=FAIL,
    fix="Go back to the last checkpoint without them; no step after this one can be good.",
)
def nonfinite_tensor(seen: Seen, t: CheckpointThresholds) -> Iterator[Sighting]:
    """A tensor of the checkpoint holds NaN or infinity.

    What it does
    Looks at every element of every floating tensor, of the model, of the optimizer and of whatever else was saved.

    Why it matters
    One NaN in a weight makes every later loss NaN; one in an optimizer's moment does so at the next step.

    Formula
    The exponent bits of each element are all ones (IEEE 754; the NaN pattern of float8_e4m3fn). Counts are exact.

    False positives
    Masks are saved with infinities on purpose: infinities in tensors that no optimizer moves, or in tensors whose name ends in mask or
    bias of attention, are told and do not fail. Infinities of a best score or of a running minimum are not in the model's part.

    What to try
    Load the checkpoint before; look at the loss and the gradient norm of the steps between.
    """
    bad = [(i, tensor, found) for i, tensor, found in seen.scanned() if found.nan or found.infinite]
    moved = {tensor.name for tensor in parameters(seen.checkpoint)} | {
        tensor.name for tensor in seen.checkpoint.of("optimizer")
    }
    sure = [one for one in bad if one[2].nan or (one[1].name in moved and "mask" not in one[1].name)]
    for severity, group in ((FAIL, sure), (INFO, [one for one in bad if one not in sure])):
        if group:
            nan, infinite = sum(found.nan for _, _, found in group), sum(found.infinite for _, _, found in group)
            yield _seen(
                seen,
                severity,
                f"{nan:,} NaN and {infinite:,} infinities in {len(group)} of {len(seen.scans)} tensors: "
                f"{names([tensor for _, tensor, _ in group])}.",
                tuple(seen.evidence(i, tensor, found.nan + found.infinite) for i, tensor, found in group[:8]),
                {"non-finite elements": 0},
            )


@rule(
    "TP991",
    "parameter-unchanged",
    severity=FAIL,
    fix="Check requires_grad, what was given to the optimizer, and that the learning rate is above 0; say --frozen PATTERN for what is frozen on purpose.",
)
def parameter_unchanged(seen: Seen, t: CheckpointThresholds) -> Iterator[Sighting]:
    """Parameters that should be trained are bit for bit those of an earlier checkpoint, or a LoRA's B matrices are still zero.

    What it does
    Compares the bytes of each parameter with the older checkpoint's; looks whether every lora_B, which starts at zero, is zero still.

    Why it matters
    A parameter that the optimizer never saw, or that a detach cut off, learns nothing, and the loss may fall without it.

    Formula
    At least 50 steps apart and bit-identical. FAIL when the optimizer's state says that it trains them all, or when no parameter moved;
    WARN where the checkpoint does not tell what is trained, and for less than 1 % of the elements; INFO when the optimizer holds exactly
    as many parameters as have moved, or the user declared them frozen. lora_B: all zero after step 0 FAIL, some of them WARN.

    False positives
    Layers frozen on purpose: declare them, or compare checkpoints with their optimizer. Buffers and tied names are left out.

    What to try
    Print the gradient of one of the parameters after one backward pass.
    """
    judged = False
    if seen.older is not None:
        yield from _unchanged(seen, t)
        judged = True
    adapters = [(tensor, found) for _, tensor, found in seen.scanned("model") if LORA_B.fullmatch(tensor.name)]
    zero = [tensor for tensor, found in adapters if found.zero]
    if adapters and seen.known_step != 0:
        judged = True
        if zero:
            whole = len(zero) == len(adapters)
            sure = whole and seen.known_step is not None
            yield _seen(
                seen,
                FAIL if sure else WARN,
                f"{'all' if whole else f'{len(zero)} of {len(adapters)}'} B matrices of the adapter are zero, as they were at the start: "
                f"{names(zero)}.",
                seen.cite(zero, 0.0),
                {"step": 0},
            )
    if not judged:
        raise CannotTell("no older checkpoint to compare with, and no adapter in it; give one as OTHER")


def _unchanged(seen: Seen, t: CheckpointThresholds) -> Iterator[Sighting]:
    """Raises CannotTell when the two cannot be compared."""
    now, before = seen.known_step, seen.older_step
    if not seen.pairs:
        raise CannotTell("the two checkpoints have no parameter of the same name, dtype and shape")
    if now is not None and before is not None and now - before < t.unchanged_steps:
        raise CannotTell(f"the checkpoints are of steps {before} and {now}, needs {t.unchanged_steps} steps between")
    still = [tensor for tensor in seen.unchanged if not seen.is_frozen(tensor.name)]
    if not still:
        return
    total = sum(tensor.elements for tensor, _ in seen.pairs)
    share = sum(tensor.elements for tensor in still) / total
    moved = len(seen.pairs) - len(seen.unchanged)
    trained = sum(one.parameters for one in seen.optimizers)
    severity: Severity = WARN
    if moved and trained and trained <= moved:
        severity, why = (
            INFO,
            f"; the optimizer holds {trained} parameters and {moved} moved: frozen, by what the checkpoint says",
        )
    elif not moved or trained >= len(seen.pairs):
        severity = FAIL if share >= t.unchanged_share and now is not None and before is not None else WARN
        why = "; none moved" if not moved else f"; the optimizer holds all {trained} parameters"
    else:
        why = "; the checkpoint does not tell which parameters are trained"
    steps = (
        f"from step {before} to step {now}" if now is not None and before is not None else "between the two checkpoints"
    )
    yield _seen(
        seen,
        severity,
        f"{len(still)} of {len(seen.pairs)} parameters ({share:.2%} of the elements) did not change {steps}: {names(still)}{why}.",
        seen.cite(still, 0.0),
        {"steps": t.unchanged_steps, "share": t.unchanged_share},
    )


@rule(
    "TP992",
    "zero-weight",
    severity=WARN,
    fix="Check that the layer was initialised, and that its weights were found when the checkpoint was loaded.",
)
def zero_weight(seen: Seen, t: CheckpointThresholds) -> Iterator[Sighting]:
    """A weight matrix of the model is all zero.

    What it does
    Looks for matrices (two or more dimensions) of which every element is 0.

    Why it matters
    What passes through such a layer is lost: a layer that was never initialised, was pruned away, or was zeroed by a bad conversion.

    Formula
    Every element is 0 or -0. B matrices of adapters (TP991), biases, gates and other tensors known to start at zero are left out.

    False positives
    Layers that start at zero on purpose in a checkpoint of the first steps.

    What to try
    Compare the layer with that of the model that the training started from.
    """
    matrices = [
        (tensor, found) for _, tensor, found in seen.scanned("model") if len(tensor.shape) > 1 and tensor.elements > 1
    ]
    if not matrices:
        raise CannotTell("no weight matrix in it")
    known = {tensor.name for tensor in parameters(seen.checkpoint)}
    dead = [
        tensor
        for tensor, found in matrices
        if found.zero and tensor.name in known and not ZERO_AT_START.fullmatch(tensor.name)
    ]
    if dead:
        yield _seen(
            seen,
            WARN,
            f"{len(dead)} of {len(matrices)} weight matrices are all zero: {names(dead)}.",
            seen.cite(dead, 0.0),
            {"non-zero elements": 0},
        )


@rule(
    "TP993",
    "resume-state-incomplete",
    severity=FAIL,
    fix="Save and load all of it: model, optimizer, scheduler, scaler, random states, sampler, step.",
)
def resume_state_incomplete(seen: Seen, t: CheckpointThresholds) -> Iterator[Sighting]:
    """A checkpoint meant to resume from lacks a part of the state, or its parts are of different steps.

    What it does
    Looks for the states of the optimizer, the scheduler, the loss scaler, the random generators and the data, and compares the steps that
    they count. Weights alone, with or without their step, are no checkpoint to resume from: skipped.

    Why it matters
    A resume without them goes on, and trains something else: without moments, with another rate, on batches seen before.

    Formula
    No optimizer beside other training state: FAIL. A part that this writer always writes, a scheduler where the optimizer's groups carry
    an initial_lr, or a scaler where half precision is declared: WARN. Others: INFO. Steps of a known writer that differ by more than 1:
    FAIL (fewer optimizer steps beside a loss scaler: INFO, it skips steps); those of an unknown writer, not a small multiple of each
    other: WARN.

    False positives
    Loops without a scheduler, or that derive the order of the data from the step, need no state of them: INFO.

    What to try
    Run `trainproof resume`: it interrupts the training, resumes it, and names what is missing.
    """
    state = seen.checkpoint.state
    parts = [part for part in PARTS if part in state]
    if not parts:
        raise CannotTell("it holds weights only: nothing to resume from")
    if not seen.optimizers and "optimizer" not in state:
        yield _seen(seen, FAIL, f"the checkpoint has {_list(parts)}, and {PARTS['optimizer']} is missing.")
    scheduled = any(one.scheduled for one in seen.optimizers)
    wanted = {part for part in seen.checkpoint.expected if part != "optimizer"}
    wanted |= ({"scheduler"} if scheduled else set()) | ({"scaler"} if _half(seen) else set())
    missing = [part for part in PARTS if part != "optimizer" and part not in state]
    needed = [part for part in missing if part in wanted]
    if needed:
        yield _seen(seen, WARN, f"missing: {_list(needed)}.")
    others = [
        part
        for part in missing
        if part not in wanted and part != "scaler" and not (part == "scheduler" and seen.optimizers)
    ]
    if others and "optimizer" in state:
        yield _seen(seen, INFO, f"not in the checkpoint, and a resume may differ without it: {_list(others)}.")
    yield from _steps(seen, t)


def _list(parts: Sequence[str]) -> str:
    return ", ".join(PARTS[part] for part in parts)


def _half(seen: Seen) -> bool:
    """Whether the trainer's own state declares training in float16."""
    trainer = seen.checkpoint.state.get("trainer")
    return isinstance(trainer, dict) and trainer.get("fp16") is True


def _steps(seen: Seen, t: CheckpointThresholds) -> Iterator[Sighting]:
    told = seen.checkpoint.step
    known = bool(seen.checkpoint.expected)
    counted = [("the optimizer", one.step) for one in seen.optimizers if one.step is not None]
    if known and seen.checkpoint.format == "lightning" and len(counted) != 1:
        counted = []
    counted += (
        [("the scheduler", seen.scheduler_step)]
        if known and seen.scheduler_step is not None and seen.checkpoint.format == "hf"
        else []
    )
    for who, step in counted:
        if told is None or step is None or _agree(told, step, who, known, t):
            continue
        skips = who == "the optimizer" and "scaler" in seen.checkpoint.state and step < told
        yield _seen(
            seen,
            INFO if skips else FAIL if known else WARN,
            f"the checkpoint says it is of step {told}, and {who} has made {step} steps{': the loss scaler skipped some' if skips else ''}.",
            (Evidence(f"{who.removeprefix('the ')} step", seen.step, float(step), 1),),
            {"steps": t.step_slack},
        )


def _agree(told: int, step: int, who: str, known: bool, t: CheckpointThresholds) -> bool:
    if abs(told - step) <= t.step_slack:
        return True
    if step == 0:
        return False
    times = round(told / step), round(step / told) if told else 0
    scheduler = (
        who == "the scheduler" and times[1] > 1 and abs(step - times[1] * told) <= times[1]
    )  # one step a process
    return scheduler or (not known and 1 < times[0] <= t.step_accumulation and abs(told - times[0] * step) <= times[0])


@rule(
    "TP994",
    "tensor-drift",
    severity=FAIL,
    fix="Find the line that converts or rebuilds the model between the two checkpoints.",
)
def tensor_drift(seen: Seen, t: CheckpointThresholds) -> Iterator[Sighting]:
    """Tensors of the model changed their shape or dtype between two checkpoints of a run, or came and went.

    What it does
    Compares names, shapes and dtypes of the model's tensors.

    Why it matters
    A dtype that drifts from float32 to bfloat16 loses the small updates; a shape that drifts is another model; a tensor that is gone is
    initialised anew at the next load.

    Formula
    Another shape: FAIL. Another dtype, or tensors in one checkpoint only: WARN.

    False positives
    Vocabularies that were extended, models that were exported on purpose.

    What to try
    Compare what each of the two was saved from.
    """
    if seen.older is None:
        raise CannotTell("no older checkpoint to compare with; give one as OTHER")
    mine, theirs = ({tensor.name: tensor for tensor in one.of("model")} for one in (seen.checkpoint, seen.older))
    both = [name for name in mine if name in theirs]
    if not both:
        raise CannotTell("the two checkpoints have no tensor of the same name")
    shapes = [mine[name] for name in both if mine[name].shape != theirs[name].shape]
    dtypes = [mine[name] for name in both if mine[name].dtype != theirs[name].dtype]
    gone, new = (
        [theirs[name] for name in theirs if name not in mine],
        [mine[name] for name in mine if name not in theirs],
    )
    if shapes:
        first = shapes[0]
        change = f"{first.name[:100]} from {list(theirs[first.name].shape)} to {list(first.shape)}"
        yield _seen(
            seen,
            FAIL,
            f"{len(shapes)} tensors changed their shape: {change}.",
            seen.cite(shapes, float(first.elements)),
        )
    if dtypes:
        first = dtypes[0]
        change = f"{first.name[:100]} from {theirs[first.name].dtype} to {first.dtype}"
        yield _seen(
            seen,
            WARN,
            f"{len(dtypes)} tensors changed their dtype: {change}.",
            seen.cite(dtypes, float(first.elements)),
        )
    for what, group in (("are gone", gone), ("are new", new)):
        if group:
            yield _seen(seen, WARN, f"{len(group)} tensors {what}: {names(group)}.")


@rule(
    "TP995",
    "checkpoint-damaged",
    severity=FAIL,
    fix="Copy the checkpoint again from where it was written, or go back to the one before.",
)
def checkpoint_damaged(seen: Seen, t: CheckpointThresholds) -> Iterator[Sighting]:
    """Bytes of the checkpoint are not those that were written, or parts of it are missing.

    What it does
    Looks for shards and tensors that an index names and that are not there, and compares checksums: of the archive's small records
    always, of all with --verify.

    Why it matters
    A flipped bit or a missing shard loads without an error in many loaders, and the model is another one.

    Formula
    A missing part, or a CRC-32 that differs from the archive's directory: FAIL.

    False positives
    None known: an archive written without checksums says so and is not checked.

    What to try
    Run it again with --verify on the machine that wrote it.
    """
    for problem in seen.checkpoint.problems:
        yield _seen(seen, FAIL, f"{problem}.")
    if seen.corrupt:
        told = ", ".join(record.name[:80] for record in seen.corrupt[:3])
        yield _seen(seen, FAIL, f"{len(seen.corrupt)} records are not the bytes that were written (CRC-32): {told}.")

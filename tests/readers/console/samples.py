"""One made run, printed as each logger prints it: the samples in tests/data/console, and what a reader has to find in them.

`python -m tests.readers.console.samples` writes the files anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "data" / "console"
RECORDS, BATCHES, EVERY = 40, 10, 10


class Record(NamedTuple):
    """One step of the run; an evaluation follows every tenth."""

    step: int
    loss: float
    lr: float
    norm: float

    @property
    def epoch(self) -> int:
        """From 0, ten steps each."""
        return (self.step - 1) // BATCHES

    @property
    def batch(self) -> int:
        """From 1, within the epoch."""
        return (self.step - 1) % BATCHES + 1

    @property
    def eval_loss(self) -> float | None:
        return round(self.loss + 0.125, 4) if self.step % EVERY == 0 else None


Run = Sequence[Record]
Points = list[tuple[int, float]]


def healthy() -> Run:
    """A loss that falls from 4 to about 1.1, with a regular noise; all values are exact in four decimals."""
    return [
        Record(
            step,
            round(1 + 3 * math.exp(-step / 12) + 0.02 * math.sin(7 * step), 4),
            round(1e-3 * min(1.0, step / 5) * (1 - step / 100), 6),
            round(0.5 + 0.1 * math.sin(3 * step), 3),
        )
        for step in range(1, RECORDS + 1)
    ]


def broken() -> Run:
    """Its twin, whose loss is NaN in the last twelve steps."""
    return [record._replace(loss=math.nan) if record.step > RECORDS - 12 else record for record in healthy()]


class Sample(NamedTuple):
    """A sample: the format's name, what prints a run, and which of the run's numbers are in the log, under our names.

    name: of the file, without its ending. step: of the record as the reader counts it.
    """

    name: str
    format: str
    print: Callable[[Run], list[str]]
    metrics: tuple[str, ...] = ("loss", "lr", "grad_norm", "eval/loss")
    step: Callable[[Record], int] = lambda record: record.step

    def text(self, run: Run) -> str:
        return "\n".join(self.print(run)) + "\n"

    def expected(self, run: Run) -> dict[str, Points]:
        values: dict[str, Callable[[Record], float | None]] = {
            "loss": lambda record: record.loss,
            "lr": lambda record: record.lr,
            "grad_norm": lambda record: record.norm,
            "eval/loss": lambda record: record.eval_loss,
        }
        return {
            name: [(self.step(record), value) for record in run if (value := values[name](record)) is not None]
            for name in self.metrics
        }


def _each(run: Run, line: Callable[[Record], str], evaluation: Callable[[Record], str] | None = None) -> list[str]:
    lines = []
    for record in run:
        lines.append(line(record))
        if evaluation and record.eval_loss is not None:
            lines.append(evaluation(record))
    return lines


def _clock(record: Record) -> str:
    return f"10:{record.step // 60:02}:{record.step % 60:02}"


def megatron(run: Run) -> list[str]:
    def line(r: Record) -> str:
        return (
            f" [2026-05-28 {_clock(r)}] iteration {r.step:8}/ {RECORDS:7} | consumed samples: {r.step * 64:12} | elapsed time per iteration "
            f"(ms): 10223.0 | learning rate: {r.lr:.6E} | global batch size:    64 | lm loss: {r.loss:.6E} | load_balancing_loss: "
            f"1.025882E+00 | loss scale: -1.0 | grad norm: {r.norm:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )

    def evaluation(r: Record) -> str:
        return (
            f" validation loss at iteration {r.step} | lm loss value: {r.eval_loss:.6E} | lm loss PPL: 1.500000E+01 | "
        )

    ranks = "(min, max) time across ranks (ms):\n    forward-backward ...............: (1.2, 3.4)"
    return ["  loss_scale ............... None", *_each(run, line, evaluation), ranks]


def megatron_ranks(run: Run) -> list[str]:
    """Old Megatron under srun: rank prefixes, lm-loss, a first loss scale, skipped iterations."""
    first = (
        "7:  iteration        0/   40 | elapsed time per iteration (ms): 3171.3 | learning rate: 0.000E+00 | loss scale: 4294967296.0 | "
        "number of skipped iterations:  10 | number of nan iterations:   0 |"
    )
    return [
        first,
        *_each(
            run,
            lambda r: (
                f"7:  iteration {r.step:8}/ {RECORDS:4} | learning rate: {r.lr:.3E} | lm-loss: {r.loss:.6E} | grad norm: 0.000 |"
            ),
        ),
    ]


def deepspeed(run: Run) -> list[str]:
    def line(r: Record) -> str:
        return (
            f"[2023-05-01 {_clock(r)},123] [INFO] [logging.py:96:log_dist] [Rank 0] step={r.step}, skipped=0, lr=[{r.lr}, {r.lr}], "
            f"mom=[(0.9, 0.95), (0.9, 0.95)]\nsteps: {r.step} loss: {r.loss:.4f} iter time (s): 0.567 samples/sec: 56.437"
        )

    return _each(run, line)


def deepspeed_chat(run: Run) -> list[str]:
    return _each(run, lambda r: f"Epoch: 0, Step: {r.step}, Rank: 0, loss = {r.loss}")


def fairseq(run: Run) -> list[str]:
    def line(r: Record) -> str:
        return (
            f"2023-06-28 {_clock(r)} | INFO | train_inner | epoch 001: {r.step:6} / 102400 loss={r.loss}, moe_gate_loss=6.3, ppl=38395.4, "
            f"wps=29101.8, num_updates={r.step}, lr={r.lr}, gnorm={r.norm}, clip=36, loss_scale=4, train_wall=265, wall=386"
        )

    def evaluation(r: Record) -> str:
        return (
            f"2023-06-28 {_clock(r)} | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 2.0\n"
            f"2023-06-28 {_clock(r)} | INFO | valid | epoch 001 | valid on 'valid' subset | loss {r.eval_loss} | nll_loss 7.2 | ppl 150.1 | "
            f"wps 0 | num_updates {r.step} | best_loss {r.eval_loss}"
        )

    return [
        "2023-06-28 10:00:00 | INFO | fairseq_cli.train | {'_name': None, 'loss': 1}",
        *_each(run, line, evaluation),
    ]


def fairseq_json(run: Run) -> list[str]:
    def line(r: Record) -> str:
        return (
            f'2023-06-28 {_clock(r)} | INFO | train_inner | {{"epoch": 1, "update": 0.05, "loss": "{r.loss}", "ppl": "38395.4", '
            f'"num_updates": "{r.step}", "lr": "{r.lr}", "gnorm": "{r.norm}"}}'
        )

    def evaluation(r: Record) -> str:
        return (
            f'2023-06-28 {_clock(r)} | INFO | valid | {{"epoch": 1, "valid_loss": "{r.eval_loss}", "valid_ppl": "150.1", '
            f'"valid_num_updates": "{r.step}"}}'
        )

    return _each(run, line, evaluation)


def bars(run: Run) -> list[str]:
    """Lightning: each epoch's bar on one line, joined by carriage returns, drawn again after the evaluation."""
    lines, seen = [], ""
    for epoch in range(run[-1].epoch + 1):
        states = [f"\rEpoch {epoch}:   0%|          | 0/{BATCHES} [00:00<?, ?it/s]"]
        for r in run:
            if r.epoch == epoch:
                bar = f"\rEpoch {epoch}: {10 * r.batch:3}%|{'█' * r.batch:10}| {r.batch}/{BATCHES} [00:{r.batch:02}<00:09,  1.00it/s, "
                metrics = f"v_num=3-16, train_loss={r.loss:.4f}"
                states.append(f"{bar}{metrics}{seen}]")
                if r.eval_loss is not None:
                    seen = f", val_loss={r.eval_loss:.4f}"
                    states += [
                        "\rValidation DataLoader 0:  50%|#####     | 1/2 [00:00<00:00,  1.00it/s]",
                        f"{bar}{metrics}{seen}]",
                    ]
        lines.append("".join(states))
    return lines


def nemo(run: Run) -> list[str]:
    """One line of carriage returns; global_step has three digits at most, and the bar is glued to what is printed next."""
    states = [
        f"\rEpoch 0: :  10%|#         | {r.step}/{100 * RECORDS} [59:12<1573:03:24, 18.79s/it, reduced_train_loss={r.loss}, "
        f"global_step={r.step * 1000:.2e}, consumed_samples=2.4e+4, lr={r.lr}, train_step_timing in s=68.70]"
        for r in run
    ]
    return [
        "".join(states) + "[NeMo I 2024-06-17 08:36:41 nlp_overrides:480] Removing checkpoint: val_loss=0.211-step=3"
    ]


def nemo2(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"[NeMo I 2025-01-01 {_clock(r)} nemo_logging:393] Training epoch 0, iteration {r.step}/999 | lr: {r.lr} | "
            f"global_batch_size: 8 | global_step: {r.step} | reduced_train_loss: {r.loss} | train_step_timing in s: 1.234"
        ),
    )


def tqdm(run: Run) -> list[str]:
    """A bar of one's own, without an epoch: it begins anew in each."""
    return [
        "\r".join(
            f"{10 * r.batch}%|##  | {r.batch}/{BATCHES} [00:01<00:02, 3.30it/s, loss={r.loss}, lr={r.lr}]" for r in run
        )
    ]


def keras(run: Run) -> list[str]:
    """An epoch a record; bars drawn over with backspaces, the last one twice, and an evaluation after the training."""
    lines = []
    for r in run:
        lines.append(f"Epoch {r.step}/{RECORDS}")
        half = f" 50/100 [=====>........] - ETA: 1s - loss: {r.loss + 1:.4f} - accuracy: 0.8000"
        full = f"100/100 [==============] - 2s 12ms/step - loss: {r.loss:.4f} - accuracy: 0.9000"
        val = f" - val_loss: {r.eval_loss:.4f} - val_accuracy: 0.8900" if r.eval_loss is not None else ""
        lines.append(half + "\b" * len(half) + full + "\b" * len(full) + full + val)
    return [*lines, "20/20 [==============] - 0s 2ms/step - loss: 9.0000 - accuracy: 0.1000"]


def keras3(run: Run) -> list[str]:
    lines = []
    for r in run:
        val = f" - val_accuracy: 0.8900 - val_loss: {r.eval_loss:.4f}" if r.eval_loss is not None else ""
        lines.append(f"\x1b[1mEpoch {r.step}/{RECORDS}\x1b[0m")
        lines.append(
            f"\x1b[1m 50/100\x1b[0m \x1b[32m━━━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━\x1b[0m \x1b[1m1s\x1b[0m 20ms/step - accuracy: 0.1 - loss: 9.0\r"
            f"\x1b[1m100/100\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m2s\x1b[0m 12ms/step - accuracy: 0.9 - loss: "
            f"{r.loss:.4f}{val}"
        )
    return lines


def keras_lines(run: Run) -> list[str]:
    """verbose=2"""
    val = [f" - val_loss: {r.eval_loss:.4f}" if r.eval_loss is not None else "" for r in run]
    return [
        f"Epoch {r.step}/{RECORDS}\n100/100 - 2s - 24ms/step - accuracy: 0.9 - loss: {r.loss:.4f}{v}"
        for r, v in zip(run, val, strict=True)
    ]


def torchtitan(run: Run) -> list[str]:
    return [
        f"[rank0]:[titan] 2025-10-30 20:34:{r.step:02},183 - root - INFO - \x1b[31mstep: {r.step:2}  \x1b[32mloss: {r.loss:7.4f}  "
        f"\x1b[38;2;180;60;0mgrad_norm: {r.norm:7.4f}  \x1b[38;2;54;234;195mmemory: 52.53GiB(66.33%)  tps: 11,{r.step:03}  tflops: 199.58  "
        "mfu: 20.18%\x1b[39m"
        for r in run
    ]


def olmo(run: Run) -> list[str]:
    def block(r: Record) -> str:
        evaluation = (
            f"\n    eval/loss={r.eval_loss}\n    eval/downstream_bpb/arc_bpb=1.25" if r.eval_loss is not None else ""
        )
        return (
            f"[2024-04-24 {_clock(r)}] INFO     [olmo.train:816, rank=0] \x1b[1m[step={r.step}/{RECORDS},epoch=0]\x1b[0m\n"
            f"    train/CrossEntropyLoss={r.loss}\n    train/Perplexity=17,548\n    optim/learning_rate={r.lr}\n"
            f"    optim/total_grad_norm={r.norm}\n    throughput/total_tokens=29,360,128\n    System/Peak GPU Memory (MB)=42,130{evaluation}"
        )

    return [block(r) for r in run]


def torchtune(run: Run) -> list[str]:
    return [
        f"Step {r.step} | loss:{r.loss} lr:{r.lr} tokens_per_second_per_gpu:301.25 grad_norm:{r.norm} " for r in run
    ]


def torchtune_bar(run: Run) -> list[str]:
    return [
        "\r".join(
            f"1|{r.step}|Loss: {r.loss}: {r.step:3}%|#   | {r.step}/{RECORDS} [00:10<00:05,  1.0it/s]" for r in run
        )
    ]


def mmengine(run: Run) -> list[str]:
    def line(r: Record) -> str:
        return (
            f"2023/06/05 {_clock(r)} - mmengine - INFO - Epoch(train)   [{r.epoch + 1}][{r.batch:2}/{BATCHES}]  lr: {r.lr:.6e}  eta: "
            f"{'1 day, ' if r.step < 20 else ''}4:59:11  time: 0.978710  data_time: 0.013012  memory: 3900  grad_norm: {r.norm:.4f}  "
            f"loss: {r.loss:.4f}  loss_kpt: {r.loss:.4f}  acc_pose: 0.007440"
        )

    def evaluation(r: Record) -> str:
        return (
            f"2023/06/05 {_clock(r)} - mmengine - INFO - Epoch(val)  [{r.epoch + 1}][1/6]    eta: 0:00:12  time: 2.4494  data_time: 2.1339  \n"
            f"2023/06/05 {_clock(r)} - mmengine - INFO - Epoch(val) [{r.epoch + 1}][6/6]    coco/AP: 0.25  loss: {r.eval_loss}  data_time: 1.4  "
            "time: 1.5"
        )

    return [
        "2023/06/05 10:00:00 - mmengine - INFO - Config:\nmodel = dict(\n    head=dict(loss=dict(type='KLDiscretLoss')))",
        *_each(run, line, evaluation),
    ]


def mmcv(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"2021-06-05 {_clock(r)},123 - mmdet - INFO - Epoch [{r.epoch + 1}][{r.batch}/{BATCHES}]\tlr: {r.lr:.3e}, eta: 1 day, 1:44:17, "
            f"time: 0.527, data_time: 0.054, memory: 3900, loss_cls: 0.5, acc: 92.1, loss_bbox: 0.25, loss: {r.loss:.4f}"
        ),
    )


def mmseg(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"2023/06/05 {_clock(r)} - mmengine - INFO - Iter(train) [{r.step:5}/{RECORDS}]  lr: {r.lr:.4e}  eta: 4:59:11  loss: {r.loss:.4f}"
        ),
    )


def cyclegan(run: Run) -> list[str]:
    """All its losses are parts; the step begins anew in each epoch."""
    return [
        "================ Training Loss (Wed Aug 30 12:06:44 2023) ================",
        *_each(
            run,
            lambda r: (
                f"(epoch: {r.epoch + 1}, iters: {r.batch * 100}, time: 0.198, data: 0.278) D_A: {r.norm:.3f} G_A: {r.loss:.4f} cycle_A: "
                f"{r.loss + 1:.4f} idt_A: 0.5 D_B: {r.norm:.3f} G_B: {r.loss:.4f} cycle_B: {r.loss + 1:.4f} idt_B: 0.5 "
            ),
        ),
    ]


def flair(run: Run) -> list[str]:
    def line(r: Record) -> str:
        return f"2019-06-11 {_clock(r)},441 epoch {r.epoch + 1} - iter {r.batch}/{BATCHES} - loss {r.loss:.8f} - time (sec): 10.25 - samples/sec: 32.00 - lr: {r.lr:.6f}"

    def evaluation(r: Record) -> str:
        return (
            f"2019-06-11 {_clock(r)},676 EPOCH {r.epoch + 1} done: loss 0.2911 - bad epochs 0\n"
            f"2019-06-11 {_clock(r)},858 DEV : loss {r.eval_loss} - score 0.8115\nnan        tp: 374 - fp: 21 - precision: 0.9468"
        )

    return _each(run, line, evaluation)


def sovits(run: Run) -> list[str]:
    return [
        f"2023-07-22 {_clock(r)},356\t44k\tINFO\t"
        + (
            f"Losses: [2.75, {r.loss}, 7.25, 30.5, 3.5], step: {r.step}, lr: {r.lr}, reference_loss: 46.5"
            if r.step % 2
            else f"损失：[2.75, {r.loss}, 7.25, 30.5, 3.5]，步数：{r.step}，学习率：{r.lr}"
        )
        for r in run
    ]


def vits(run: Run) -> list[str]:
    return [
        f"2021-07-22 {_clock(r)},356\tljs\tINFO\t[2.75, {r.loss}, 7.25, 30.5, 1.5, 3.5, {r.step}, {r.lr}]" for r in run
    ]


def wordlm(run: Run) -> list[str]:
    return [
        "```",
        *_each(
            run,
            lambda r: (
                f"| epoch {r.epoch + 1:3} | {r.batch:5}/{BATCHES:5} batches | lr {r.lr:02.6f} | ms/batch {7.75:5.2f} | loss {r.loss:5.4f} | "
                f"ppl {math.exp(r.loss):8.2f}"
            ),
            lambda r: (
                f"{'-' * 89}\n| end of epoch {r.epoch + 1:3} | time: 23.45s | valid loss {r.eval_loss:5.4f} | valid ppl   271.23\n{'-' * 89}"
            ),
        ),
        "```",
    ]


def joeynmt(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"2020-02-09 {_clock(r)},154 Epoch   1 Step: {r.step:8} Batch Loss: {r.loss:12.6f} Tokens per Sec:    13096, Lr: {r.lr:.6f}"
        ),
        lambda r: (
            f"2020-02-09 {_clock(r)},451 Validation result (greedy) at epoch   5, step {r.step:8}: bleu:   2.06, loss: {r.eval_loss:.4f}, "
            f"ppl:  24.6552, duration: 13.5851s\n2020-02-09 {_clock(r)},600 \tHypothesis: nan nan inf loss: nan"
        ),
    )


def joeynmt_validations(run: Run) -> list[str]:
    return [
        f"Steps: {r.step}\tLoss: {r.loss + 0.125:.5f}\tPPL: 72.96771\tbleu: 0.30677\tLR: {r.lr:.8f}\t{'*' if r.step % 2 else ''}"
        for r in run
    ]


def absl(run: Run) -> list[str]:
    def line(r: Record) -> str:
        return (
            f"I0316 {_clock(r)}.473088 139684567045888 logging_writer.py:48] [{r.step}] global_step={r.step}, grad_norm={r.norm}, "
            f"learning_rate={r.lr}, loss={r.loss}\n"
            f"I0316 {_clock(r)}.763981 139712246101184 submission.py:265] {r.step}) loss = 9.9, grad_norm = 9.9"
        )

    def evaluation(r: Record) -> str:
        return (
            f"I0316 {_clock(r)}.678233 139669928838912 logging_writer.py:48] [{r.step}] accumulated_eval_time=994.3, score=8.7479, "
            f"train/loss={r.loss}, validation/loss={r.eval_loss}"
        )

    return _each(run, line, evaluation)


def speedrun(run: Run) -> list[str]:
    """Its own source first, which prints what the log holds and raises what never happened."""
    source = [
        "import torch",
        'print0(f"step:{step}/{args.num_iterations} val_loss:{val_loss:.4f} train_time:{ms:.0f}ms step_avg:{ms / step:.2f}ms")',
        'raise FloatingPointError("Minimum loss scale reached")',
        "    Traceback (most recent call last):",
        'RuntimeError("CUDA out of memory")',
        "step:nan/nan train_loss:nan",
        "warmup_step:1/20",
    ]
    lines = _each(
        run,
        lambda r: (
            f"step:{r.step}/20000 train_loss:{r.loss:.4f} lr:{r.lr} grad_norm:{r.norm} train_time:{r.step * 100}ms step_avg:{'nan' if r.step < 5 else 99.5}ms"
        ),
        lambda r: (
            f"step:{r.step}/20000 val_loss:{r.eval_loss:.4f} val_bpb:1.2500 train_time:{r.step * 100}ms h_norms=['20398.7', '1.5']"
        ),
    )
    return [
        *source,
        *lines,
        f"stopping_early: wallclock_cap train_time:600038ms step:{RECORDS}/20000",
        "final_int8_roundtrip val_loss:9.5",
    ]


def orchestrator(run: Run) -> list[str]:
    return [f"[{_clock(r)}] progress » step:{r.step}/500000 loss:{r.loss} t:{r.step * 99}ms avg:98.6ms" for r in run]


def llmc(run: Run) -> list[str]:
    return [
        line
        for r in run
        for line in (
            *([f"s:{r.step} tel:{r.eval_loss:.4f} ", f"s:{r.step} eval:0.2463"] if r.eval_loss is not None else []),
            f"s:{r.step} trl:{r.loss:.4f} lr:{r.lr:.6f} norm:{r.norm:.3f}",
        )
    ]


def nanogpt(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: f"iter {r.step}: loss {r.loss:.4f}, time 263.56ms, mfu -100.00%",
        lambda r: f"step {r.step}: train loss {r.loss:.4f}, val loss {r.eval_loss:.4f}",
    )


def build_nanogpt(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"step {r.step:5d} | loss: {r.loss:.6f} | lr {r.lr:.4e} | norm: {r.norm:.4f} | dt: 82809.98ms | tok/sec: 6331.22"
        ),
        lambda r: f"validation loss: {r.eval_loss:.4f}",
    )


def llmc_stdout(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"step {r.step:4d}/{RECORDS} | loss {r.loss:7.6f} ({'+nanz' if r.step < 9 else '-0.25z'})| norm {r.norm:6.4f} (+nanz)| lr {r.lr:.2e} | "
            "3000.00 ms | 50.0% bf16 MFU | 150000 tok/s"
        ),
        lambda r: f"val loss {r.eval_loss:.6f}",
    )


def hf_old(run: Run) -> list[str]:
    """What tqdm leaves behind: bars, then the record on a line of its own."""
    lines = _each(
        run,
        lambda r: (
            f"\r{r.step:3}%|▌         | {r.step}/{RECORDS} [00:05<08:00,  2.05it/s]\r{' ' * 80}\r"
            f"{{'loss': {r.loss}, 'grad_norm': {r.norm}, 'learning_rate': {r.lr}, 'epoch': {r.step / 10}}}"
        ),
        lambda r: (
            f"{{'eval_loss': {r.eval_loss}, 'eval_runtime': 12.3456, 'eval_samples_per_second': 8.1, 'epoch': {r.step / 10}}}"
        ),
    )
    return [*lines, "{'train_runtime': 123.4, 'train_loss': 9.75, 'epoch': 4.0}"]


def hf_new(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"{{'loss': '{r.loss}', 'grad_norm': '{r.norm}', 'learning_rate': '{r.lr}', 'rewards/chosen': '-0.5', 'epoch': '{r.step / 10}'}}"
        ),
        lambda r: f"{{'eval_loss': '{r.eval_loss}', 'eval_runtime': '12.3456', 'epoch': '{r.step / 10}'}}",
    )


def generic(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"2025-03-02 {_clock(r)},962 - INFO - Epoch {r.epoch + 1}/4 - iteration: {r.step}, Loss: {r.loss}, lr = {r.lr}"
        ),
    )


def generic_epochs(run: Run) -> list[str]:
    """Nothing but the epoch is printed beside the loss: the records are counted."""
    return _each(run, lambda r: f"[Epoch {r.epoch + 1}] batch_loss={r.loss}; learning rate: {r.lr}")


def stylegan(run: Run) -> list[str]:
    """No loss, and a metric whose computation broke down at first."""
    broke = '{"results": {"fid50k_full": -3.1e+68}, "metric": "fid50k_full", "total_time": 541.9, "num_gpus": 1}'
    ticks = _each(
        run,
        lambda r: (
            f"tick {r.step:<5d} kimg {r.step * 4:<8.1f} time {'4h 36m 26s':<12s} sec/tick {153.8:<7.1f} sec/kimg {38.45:<7.2f} maintenance "
            f"{0.2:<6.1f} cpumem {3.12:<6.2f} gpumem {6.34:<6.2f} augment {r.norm:.3f}"
        ),
        lambda r: (
            f'{{"results": {{"fid50k_full": {10 * r.loss:.4f}}}, "metric": "fid50k_full", "total_time": 541.9, "num_gpus": 1}}'
        ),
    )
    return [broke, *ticks]


def xgboost(run: Run) -> list[str]:
    return [
        f"[{r.step}]\ttrain-mlogloss:{r.loss}\teval-mlogloss:{r.eval_loss}"
        if r.eval_loss
        else f"[{r.step}]\ttrain-mlogloss:{r.loss}"
        for r in run
    ]


def lightgbm(run: Run) -> list[str]:
    return [
        "[LightGBM] [Info] Total Bins 12345",
        "Training until validation scores don't improve for 50 rounds",
        *(f"[{r.step}]\ttraining's l2: {r.loss}\tvalid_1's l1: 0.5" for r in run),
    ]


def catboost(run: Run) -> list[str]:
    best = run[0].loss
    return [
        "Learning rate set to 0.081",
        *(f"{r.step}:\tlearn: {r.loss}\ttest: 9.5\tbest: {best} (1)\ttotal: 51ms\tremaining: 4.9s" for r in run),
    ]


def kaldi(run: Run) -> list[str]:
    return [
        f"ITERATION {r.step:02}: TRAIN AVG.LOSS {r.loss}, (lrate{r.lr}), CROSSVAL AVG.LOSS 9.5, nnet accepted (nnet_{r.step})"
        for r in run
    ]


def tesseract(run: Run) -> list[str]:
    return [
        f"At iteration {r.step // 2}/{r.step}/{r.step}, mean rms={r.loss}%, delta=4.1%, BCER train=12.5%, BWER train=31.5%, skip "
        "ratio=0.000%, wrote checkpoint."
        for r in run
    ]


def matlab(run: Run) -> list[str]:
    edge = f"|{'=' * 86}|"
    rows = (
        f"| {r.epoch + 1:7} | {r.step:11} |       00:00:{r.step:02} | {r.loss:12} | {r.eval_loss or '':>12} | {r.lr:15} |"
        for r in run
    )
    return [
        "Training on single CPU.",
        edge,
        "|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Validation  |  Base Learning  |",
        "|         |             |   (hh:mm:ss)   |     Loss     |     Loss     |      Rate       |",
        edge,
        *rows,
        edge,
    ]


def parlai(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"{_clock(r)} | time:{r.step}s total_exs:{r.step * 100} total_steps:{r.step} epochs:{r.step / 10:.2f}\n"
            f"    clip  exps  gnorm  loss  lr  total_train_updates  ups\n       1   123 {r.norm} {r.loss} {r.lr} {r.step:8} 1.92\n"
        ),
        lambda r: (
            f"{_clock(r)} | valid:\n    accuracy  loss  total_train_updates\n        .25 {r.eval_loss} {r.step:8}\n"
        ),
    )


def estimator(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"INFO:tensorflow:loss = {r.loss}, step = {r.step} (3.123 sec)\nINFO:tensorflow:global_step/sec: 32.1"
        ),
        lambda r: (
            f"INFO:tensorflow:Saving dict for global step {r.step}: accuracy = 0.5, global_step = {r.step}, loss = {r.eval_loss}"
        ),
    )


def litgpt(run: Run) -> list[str]:
    return [
        f"Epoch {r.epoch + 1} | iter {r.step} step {r.step} | loss train: {r.loss}, val: {r.eval_loss or 'n/a'} | iter time: 123.45 ms (step)"
        for r in run
    ]


def maxtext(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"completed step: {r.step}, seconds: 1.25, TFLOP/s/device: 120.5, Tokens/s/device: 1234.5, total_weights: 65536, loss: {r.loss}"
        ),
        lambda r: f"eval metrics after step: {r.step}, loss={r.eval_loss}, total_weights=65536.0",
    )


def opennmt(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"[2020-05-11 {_clock(r)},123 INFO] Step {r.step}/{RECORDS}; acc:  11.76; ppl: {math.exp(r.loss):5.2f}; xent: {r.loss}; lr: {r.lr}; "
            "12345/11234 tok/s;     30 sec"
        ),
        lambda r: f"[2020-05-11 {_clock(r)},123 INFO] Validation xent: {r.eval_loss}",
    )


def opennmt_tf(run: Run) -> list[str]:
    return [
        f"2020-05-11 {_clock(r)}.123000: I runner.py:300] Step = {r.step} ; steps/s = 2.23, source words/s = 12345, target words/s = 12345 ; "
        f"Learning rate = {r.lr} ; Loss = {r.loss}"
        for r in run
    ]


def detectron2(run: Run) -> list[str]:
    return [
        f"[05/11 {_clock(r)} d2.utils.events]:  eta: 1 day, 1:00:00  iter: {r.step}  total_loss: {r.loss}  loss_cls: {r.loss}  time: 0.5123  "
        f"last_time: 0.5101  data_time: 0.0123  lr: {r.lr}  max_mem: 2712M"
        for r in run
    ]


def mlx(run: Run) -> list[str]:
    return _each(
        run,
        lambda r: (
            f"Iter {r.step}: Train loss {r.loss}, Learning Rate {r.lr}, It/sec 1.25, Tokens/sec 512.5, Trained Tokens 4123, Peak mem 12.5 GB"
        ),
        lambda r: f"Iter {r.step}: Val loss {r.eval_loss}, Val took 12.5s",
    )


def yolox(run: Run) -> list[str]:
    return [
        f"2022-05-11 {_clock(r)} | INFO     | yolox.core.trainer:255 - epoch: {r.epoch + 1}/300, iter: {r.batch}/{BATCHES}, mem: 1234Mb, "
        f"iter_time: 0.512s, data_time: 0.001s, total_loss: {r.loss}, iou_loss: 2.25, lr: {r.lr}, size: 640, ETA: 1 day, 2:03:04"
        for r in run
    ]


_LOSS, _NO_EVAL, _NO_NORM = ("loss",), ("loss", "lr", "grad_norm"), ("loss", "lr", "eval/loss")
_RATE = ("loss", "lr")
SAMPLES = (
    Sample("megatron", "megatron", megatron),
    Sample("megatron-ranks", "megatron", megatron_ranks, _LOSS),
    Sample("deepspeed", "deepspeed", deepspeed, _RATE),
    Sample("deepspeed-chat", "deepspeed", deepspeed_chat, _LOSS),
    Sample("fairseq", "fairseq", fairseq),
    Sample("fairseq-json", "fairseq", fairseq_json),
    Sample("lightning-bars", "progress-bar", bars, ("loss", "eval/loss")),
    Sample("nemo", "progress-bar", nemo, _RATE),
    Sample("nemo-2", "progress-bar", nemo2, _RATE),
    Sample("tqdm", "progress-bar", tqdm, _RATE),
    Sample("keras-bars", "keras-console", keras, ("loss", "eval/loss")),
    Sample("keras-3", "keras-console", keras3, ("loss", "eval/loss")),
    Sample("keras-lines", "keras-console", keras_lines, ("loss", "eval/loss")),
    Sample("torchtitan", "torchtitan", torchtitan, ("loss", "grad_norm")),
    Sample("olmo", "olmo", olmo),
    Sample("torchtune", "torchtune", torchtune, _NO_EVAL),
    Sample("torchtune-bar", "torchtune", torchtune_bar, _LOSS),
    Sample("mmengine", "mmengine-log", mmengine),
    Sample("mmcv", "mmengine-log", mmcv, _RATE),
    Sample("mmseg", "mmengine-log", mmseg, _RATE),
    Sample("cyclegan", "cyclegan", cyclegan, ()),
    Sample("flair", "flair", flair, _NO_NORM),
    Sample("sovits", "sovits", sovits, ("lr",)),
    Sample("vits", "sovits", vits, ("lr",)),
    Sample("wordlm", "wordlm", wordlm, _NO_NORM),
    Sample("joeynmt", "joeynmt", joeynmt, _NO_NORM),
    Sample("joeynmt-validations", "joeynmt", joeynmt_validations, ("lr",)),
    Sample("absl", "absl", absl),
    Sample("speedrun", "speedrun", speedrun),
    Sample("orchestrator", "speedrun", orchestrator, _LOSS),
    Sample("llmc", "llmc", llmc),
    Sample("nanogpt", "nanogpt", nanogpt, ("loss", "eval/loss")),
    Sample("build-nanogpt", "nanogpt", build_nanogpt),
    Sample("llmc-stdout", "nanogpt", llmc_stdout),
    Sample("hf-old", "hf-console", hf_old),
    Sample("hf-new", "hf-console", hf_new),
    Sample("xgboost", "boosting", xgboost, ("loss", "eval/loss")),
    Sample("lightgbm", "boosting", lightgbm, _LOSS),
    Sample("catboost", "boosting", catboost, _LOSS),
    Sample("kaldi", "kaldi", kaldi, _RATE),
    Sample("tesseract", "tesseract", tesseract, _LOSS),
    Sample("matlab", "matlab", matlab, _NO_NORM),
    Sample("parlai", "parlai", parlai),
    Sample("estimator", "estimator", estimator, ("loss", "eval/loss")),
    Sample("litgpt", "litgpt", litgpt, ("loss", "eval/loss")),
    Sample("maxtext", "maxtext", maxtext, ("loss", "eval/loss")),
    Sample("opennmt", "opennmt", opennmt, _NO_NORM),
    Sample("opennmt-tf", "opennmt", opennmt_tf, _RATE),
    Sample("detectron2", "detectron2-log", detectron2, _RATE),
    Sample("mlx", "mlx", mlx, _NO_NORM),
    Sample("yolox", "yolox", yolox, _RATE),
    Sample("generic", "generic-text", generic, _RATE),
    Sample("generic-epochs", "generic-text", generic_epochs, _RATE),
)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for sample in SAMPLES:
        (FOLDER / f"{sample.name}.log").write_text(sample.text(healthy()), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()

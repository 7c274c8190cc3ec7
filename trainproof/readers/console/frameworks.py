"""Consoles whose records are one line of fields each, behind a head that only one framework prints.

INFO:tensorflow:loss = 2.2945, step = 100 (3.123 sec)
Epoch 1 | iter 4 step 1 | loss train: 2.294, val: 2.477 | iter time: 123.45 ms (step) remaining time: 0:10:00
completed step: 12, seconds: 1.234, TFLOP/s/device: 120.1, Tokens/s/device: 1234.5, total_weights: 65536, loss: 2.294
[2020-05-11 10:00:00,123 INFO] Step 50/100000; acc: 11.76; ppl: 9.91; xent: 2.29; lr: 0.00001; 12345/11234 tok/s; 30 sec
Step = 100 ; steps/s = 2.23, source words/s = 12345, target words/s = 12345 ; Learning rate = 0.000123 ; Loss = 2.294
[05/11 10:00:00 d2.utils.events]:  eta: 1:00:00  iter: 19  total_loss: 2.294  loss_cls: 1.376  time: 0.51  data_time: 0.01  lr: 0.0002
Iter 10: Train loss 2.294, Learning Rate 1.000e-05, It/sec 1.234, Tokens/sec 512.1, Trained Tokens 4123, Peak mem 12.345 GB
2022-05-11 10:00:00 | INFO     | yolox.core.trainer:255 - epoch: 1/300, iter: 10/100, mem: 1234Mb, total_loss: 11.5, lr: 1.0e-04
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import NUMBER, Line


class EstimatorReader(ConsoleReader):
    name = "estimator"
    description = "TensorFlow Estimator: console output"
    lines = (
        Line(
            ", step = ",
            rf"(?:[^\n]{{0,120}}(?:tensorflow:|\] |- ))?loss = (?P<loss>{NUMBER})(?=[^\n]*, step = )",
            rf"(?:, [\w/]+ = {NUMBER}){{0,20}}?",
            r", step = (?P<step>\d+)(?: \([\d.]+ sec\))?",
        ),
        Line("Saving dict", r"[^\n]{0,120}Saving dict for global step (?P<step>\d+): ", prefix="eval_", sure=False),
    )
    aliases: ClassVar = {"global_step": ""}


class LitGPTReader(ConsoleReader):
    name = "litgpt"
    description = "LitGPT: console output"
    lines = (
        Line(
            "| loss train: ",
            r"Epoch (?P<epoch>\d+) \| iter (?P<step>\d+) step \d+ ?\| loss train: "
            rf"(?P<loss>{NUMBER}), val: (?:n/a|(?P<eval_loss>{NUMBER})) \| iter time: (?P<step_time>[\d.]+) ms",
            "",
            r"[^\n]*",
        ),
    )
    #: the value of the last evaluation stands in every line until the next
    repeated: ClassVar = ("eval_loss",)


class MaxTextReader(ConsoleReader):
    name = "maxtext"
    description = "MaxText: console output"
    lines = (
        Line("completed step: ", r"(?:[^\n]{0,80}[\] ])?completed step: (?P<step>\d+), (?=seconds: )"),
        Line(
            "eval metrics after step: ",
            r"(?:[^\n]{0,80}[\] ])?eval metrics after step: (?P<step>\d+), ",
            prefix="eval_",
            sure=False,
        ),
    )
    aliases: ClassVar = {"seconds": "step_time", "Tokens/s/device": "throughput", "total_weights": ""}


class OpenNMTReader(ConsoleReader):
    name = "opennmt"
    description = "OpenNMT-py, OpenNMT-tf: console output"
    lines = (
        Line("; acc:", r"(?:\[[^\]\n]{1,60}\] )?Step +(?P<step>\d+)/ *(?P<of>\d+); (?=acc: )"),
        Line(
            "Validation ",
            r"(?:\[[^\]\n]{1,60}\] )?(?=Validation (?:perplexity|accuracy|xent): )",
            prefix="eval_",
            sure=False,
        ),
        Line("; steps/s = ", r"(?:[^\n]{0,80}[\] ])?Step = (?P<step>\d+) ; (?=steps/s = )"),
    )
    aliases: ClassVar = {
        "xent": "loss",
        "Validation xent": "loss",
        "Validation perplexity": "ppl",
        "Validation accuracy": "accuracy",
        "Loss": "loss",
        "Learning rate": "lr",
        "sents": "",
        "bsz": "",
        "tok/s": "",
    }

    def sniff(self, head: bytes) -> float:
        return 0.9 if any(line.sure for line, _ in self.records_in(head)) else 0.0


class Detectron2ConsoleReader(ConsoleReader):
    name = "detectron2-log"
    description = "detectron2: log.txt and console output"
    lines = (
        Line(
            "d2.utils.events",
            r"\[[\d/: ]{8,30} d2\.utils\.events\]: +(?:eta: [\w:, ]{1,40}? +)?iter: (?P<step>\d+) ",
        ),
    )
    aliases: ClassVar = {"time": "step_time", "last_time": "", "last_data_time": "", "max_mem": "memory"}


class MLXReader(ConsoleReader):
    name = "mlx"
    description = "MLX LM: console output of fine-tuning"
    lines = (
        Line("Train loss ", r"Iter (?P<step>\d+): (?=Train loss )"),
        Line("Val loss ", r"Iter (?P<step>\d+): (?=Val loss )", sure=False),
    )
    aliases: ClassVar = {"Val took": "", "Trained Tokens": "tokens", "Trained tokens": "tokens", "Peak mem": "memory"}


class YOLOXReader(ConsoleReader):
    name = "yolox"
    description = "YOLOX: train_log.txt and console output"
    lines = (
        Line(
            "yolox.core.trainer",
            r"[^\n|]{0,40}\| INFO +\| yolox\.core\.trainer:[\w:]{0,40} ?- epoch: (?P<epoch>\d+)/\d+, iter: (?P<batch>\d+)/(?P<batches>\d+), ",
        ),
    )
    aliases: ClassVar = {"mem": "memory", "iter_time": "step_time", "size": "", "ETA": ""}
